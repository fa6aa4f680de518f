# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of evaluations, and stand-ins for the tools that ask the endpoint and write what the tools write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PYTHON = "/usr/bin/python3"
SETTINGS = {
    "instance": "chat", "tool": "lm-eval 0.4.13", "definition_sha256": "d" * 64, "data_sha256": "f" * 64, "limit": 0,
    "request": {"max_tokens": 64},
}  # fmt: skip
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


# The packages of gpt_oss.evals, as far as gpt_oss_program_host.py uses them; the evaluations read their data,
# ask and judge as gpt-oss 0.0.9 does.
GPT_OSS = {
    "pandas.py": """
class DataFrame:
    def __init__(self, rows, columns=None):
        self.rows = rows
    def iterrows(self):
        return enumerate(self.rows)
""",
    "openai.py": """
import json, os, types, urllib.request
class OpenAI:
    def __init__(self, base_url, timeout, max_retries):
        self.base = base_url
        self.chat = types.SimpleNamespace(completions=self)
    def create(self, messages, extra_body=None, **parameters):
        body = json.dumps({"messages": messages, **parameters, **(extra_body or {})}).encode()
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
        request = urllib.request.Request(self.base + "/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            found = json.load(answer, object_hook=lambda pairs: types.SimpleNamespace(**pairs))
        return types.SimpleNamespace(choices=found.choices, usage=None)
""",
    "gpt_oss/__init__.py": "",
    "gpt_oss/evals/__init__.py": "",
    "gpt_oss/evals/types.py": """
import types
class SamplerBase: pass
class SamplerResponse(types.SimpleNamespace):
    def __init__(self, response_text, actual_queried_message_list, response_metadata):
        super().__init__(response_text=response_text, actual_queried_message_list=actual_queried_message_list)
""",
    "gpt_oss/evals/report.py": "def map_with_progress(f, xs, num_threads): raise SystemExit('not in order')\n",
    "gpt_oss/evals/gpqa_eval.py": """
import html, types
import pandas
from . import report
class GPQAEval:
    def __init__(self, n_repeats, n_threads):
        rows = [row for _, row in pandas.read_csv("https://example.invalid/gpqa_diamond.csv").iterrows()]
        self.rows, self.threads = [row for row in rows for _ in range(n_repeats)], n_threads
    def __call__(self, sampler):
        def ask(row):
            text = row["Question"] + " (A) " + row["Incorrect Answer 1"] + " (B) " + row["Correct Answer"]
            answer = sampler([sampler._pack_message(content=text, role="user")]).response_text
            found = answer[8:9]
            page = f"<p>x: {html.escape(answer)}</p><p>Correct Answer: B</p><p>Extracted Answer: {found}</p>"
            convo = [{"content": text}, {"content": answer}]
            return types.SimpleNamespace(html=page, score=float(found == "B"), convo=convo)
        return report.map_with_progress(ask, self.rows, num_threads=self.threads)
""",
    "gpt_oss/evals/aime_eval.py": """
import types
import pandas
from . import report
class AIME25Eval:
    def __init__(self, n_repeats, n_threads):
        parts = [pandas.read_json(f"https://example.invalid/{part}.jsonl", lines=True) for part in ("I", "II")]
        self.rows, self.threads = [row for part in parts for _, row in part.iterrows()] * n_repeats, n_threads
    def __call__(self, sampler):
        def ask(row):
            answer = sampler([sampler._pack_message(content=row["question"], role="user")]).response_text
            page = f"<p>Correct Answer: {row['answer']}</p><p>Extracted Answer: {answer}</p>"
            return types.SimpleNamespace(html=page, score=float(answer == row["answer"]), convo=[{"content": answer}])
        return report.map_with_progress(ask, self.rows, num_threads=self.threads)
""",
}
# It writes what AISBench 3.1.20260630 writes, for a configuration whose options are on the line of models.
AIS_BENCH = """#!{python}
import ast, csv, json, os, pathlib, re, sys, urllib.request
text = pathlib.Path(sys.argv[1]).read_text()
options = ast.literal_eval(re.search(r"type=InstanceChat, \\*\\*(.*)\\)\\]$", text, re.M)[1])
assert "OPENAI_API_KEY" in pathlib.Path(os.environ["PYTHONPATH"], "instance_chat.py").read_text()
rows = list(csv.reader(pathlib.Path(sys.argv[1]).with_name("data").joinpath("gpqa_diamond.csv").open()))[1:]
out = pathlib.Path(sys.argv[sys.argv.index("--work-dir") + 1], "20261125_120000")
(out / "results/instance").mkdir(parents=True)
(out / "predictions/instance").mkdir(parents=True)
details, failed = {{}}, []
for number, row in enumerate(rows):
    content = row[7] + " A) " + row[9] + " B) " + row[8]
    body = {{"model": options["model"], "messages": [{{"role": "user", "content": content}}],
             "max_tokens": options["max_out_len"], **options["generation_kwargs"]}}
    headers = {{"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}}
    url = "http://%s:%d/v1/chat/completions" % (options["host_ip"], options["host_port"])
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"] or ""
    except urllib.error.HTTPError as exc:
        failed.append({{"id": number, "error_info": exc.reason}})
        text = ""
    found = re.search(r"(?i)ANSWER\\s*:\\s*([A-D])", text)
    details[str(number)] = {{"origin_prediction": text, "predictions": [found and found[1]], "references": ["B"],
                            "correct": [bool(found) and found[1] == "B"]}}
(out / "results/instance/GPQA_diamond.json").write_text(json.dumps({{"accuracy": 0, "details": details}}))
if failed:
    lines = "".join(json.dumps(line) + "\\n" for line in failed)
    (out / "predictions/instance/GPQA_diamond_failed.jsonl").write_text(lines)
"""


def install_packages(directory: Path) -> Path:
    """Write the packages of gpt_oss.evals into a directory."""
    for path, text in GPT_OSS.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory


def install_tool(directory: Path, tool: str) -> Path:
    """Make an environment with a stand-in for gpt-oss or AISBench."""
    (directory / "bin").mkdir(parents=True)
    if tool == "gpt-oss":
        packages = install_packages(directory / "packages")
        program = directory / "bin" / "python"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {PYTHON} "$@"\n')
    else:
        program = directory / "bin" / "ais_bench"
        program.write_text(AIS_BENCH.format(python=PYTHON))
    program.chmod(0o755)
    return directory


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
