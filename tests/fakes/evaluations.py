# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of evaluations, and a stand-in for lm-eval that asks the endpoint and writes what lm-eval 0.4.13 writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PYTHON = "/usr/bin/python3"
SETTINGS = {"definition_sha256": "d" * 64, "data_sha256": "f" * 64, "limit": 0, "request": {"max_tokens": 64}}
# It shares nothing with the code under test but lm-eval's formats.
LM_EVAL = """#!{python}
import json, os, pathlib, re, sys, time, urllib.error, urllib.request
{before}
config = json.loads(pathlib.Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
task = config["tasks"][0]
definition = json.loads(pathlib.Path(config["include_path"], task + ".yaml").read_text())
pattern = re.compile(definition["filter_list"][0]["filter"][0]["regex_pattern"])
fallback = definition["filter_list"][0]["filter"][0]["fallback"]
out = pathlib.Path(config["output_path"], "model")
out.mkdir(parents=True)
rows = []
for line in pathlib.Path(definition["dataset_kwargs"]["data_files"]["test"]).read_text().splitlines():
    doc = json.loads(line)
    body = {{"model": config["model_args"]["model"], "messages": [{{"role": "user", "content": doc["prompt"]}}]}}
    body.update(definition["generation_kwargs"])
    headers = {{"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}}
    request = urllib.request.Request(config["model_args"]["base_url"], json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"] or ""
    except urllib.error.HTTPError as exc:
        print("WARNING  [models.api_models:493] API request failed! Status code: %d, Response text: %s. Retrying..."
              % (exc.code, exc.read().decode()))
        print("ERROR Exception:ClientResponseError(RequestInfo(headers=%r)), retrying." % headers)
        raise SystemExit(1)
    found = pattern.findall(text)
    answer = found[-1].strip() if found else fallback
    rows.append({{"doc_id": len(rows), "doc": doc, "target": doc["expected"], "resps": [[text]],
                 "filtered_resps": [answer], "filter": "answer", "metrics": ["exact_match"],
                 "exact_match": 1.0 if answer.lower() == doc["expected"].lower() else 0.0}})
{after}
with open(out / ("samples_" + task + "_2026-11-23T12-00-00.000000.jsonl"), "w") as file:
    file.writelines(json.dumps(row) + "\\n" for row in rows)
"""


def install_lm_eval(directory: Path, before: str = "", after: str = "") -> Path:
    """Make an environment whose lm-eval runs these lines before its first question and after its last answer."""
    program = directory / "bin" / "lm_eval"
    program.parent.mkdir(parents=True)
    program.write_text(LM_EVAL.format(python=PYTHON, before=before, after=after))
    program.chmod(0o755)
    return directory


def answers(task: str, correct: list[bool], **changes: Any) -> dict[str, Any]:
    """Return what a host sends."""
    items = [
        {"id": str(n), "expected": "ready", "answer": "ready" if right else "no", "correct": right, "response": "So."}
        for n, right in enumerate(correct)
    ]
    plan = {"model": "openai/gpt-oss-20b", "vllm_version": "0.32.0"}
    host = {"instance": "chat", "model": "openai/gpt-oss-20b", "state": "a" * 16, "plan": plan}
    return {**host, "tool": "lm-eval 0.4.13", "task": task, "unreadable": 0, "items": items, **changes}
