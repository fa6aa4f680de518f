# SPDX-License-Identifier: GPL-3.0-or-later
"""AISBench: its configuration, its data files, and the meaning of its output.

AISBench makes the prompts and judges the answers. It keeps copies of its configuration, a Python file: the key of
the instance must not be in it, so a class beside it reads the key from the environment.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any, Iterable, Mapping, Sequence

from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign
from .tool import OUT, UNREADABLE, OutputError, Run, Tool, last_reason, shorten

VERSION = "3.1.20260630"
# By task: where AISBench defines its data set, the name of the list there, the name of the results, and the data.
_DATASETS = {
    "gpqa": ("gpqa.gpqa_gen_0_shot_cot_chat_prompt", "gpqa_datasets", "GPQA_diamond", "."),
    "aime25": ("aime2025.aime2025_gen_0_shot_chat_prompt", "aime2025_datasets", "aime2025", "aime2025.jsonl"),
}
_MODEL = '''import os
from ais_bench.benchmark.models import VLLMCustomAPIChat
from ais_bench.benchmark.registry import MODELS


@MODELS.register_module()
class InstanceChat(VLLMCustomAPIChat):
    """A chat whose key is in the environment."""

    def __init__(self, **options):
        super().__init__(**options, api_key=os.environ["OPENAI_API_KEY"])
'''
_RUN = """from mmengine.config import read_base
with read_base():
    from ais_bench.benchmark.configs.datasets.{module} import {datasets} as datasets
from ais_bench.benchmark.summarizers import DefaultSummarizer
from instance_chat import InstanceChat

datasets[0]["path"] = {path!r}
models = [dict(type=InstanceChat, **{options!r})]
summarizer = dict(attr="accuracy", type=DefaultSummarizer)
"""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# AISBench ends with status 0 where a part failed; this line names the reason.
_FAILED = re.compile(r"(?:failed reasons: |\] )(.*?)(?: \| Visit .*)?\Z")


def configuration(run: Run) -> str:
    """Return AISBench's configuration of a run, a Python file. The key is not in it."""
    module, datasets, _results, path = _DATASETS[run.task]
    host, _colon, port = run.url.split("//", 1)[1].rpartition(":")
    parameters = {key: value for key, value in run.request.items() if key != "max_tokens"}
    options = {
        "attr": "service",
        "abbr": "instance",
        "path": "",
        "url": "",
        "model": run.model,
        "stream": False,
        "request_rate": 0,
        "use_timestamp": False,
        "trust_remote_code": False,
        "retry": 2,
        "host_ip": host,
        "host_port": int(port),
        "max_out_len": run.request["max_tokens"],
        "batch_size": run.concurrency,
        "generation_kwargs": parameters,
    }
    return _RUN.format(module=module, datasets=datasets, path=f"{run.work}/data/{path}".rstrip("."), options=options)


def data_file(task: str, questions: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return name and text of AISBench's data file; the first choice of a question is the right one."""
    if task == "aime25":
        lines = [json.dumps({"question": row["question"], "answer": row["expected"]}) for row in questions]
        return "aime2025.jsonl", "".join(f"{line}\n" for line in lines)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    # AISBench reads the columns 8 to 12 by their positions, and knows the header by "Question".
    blank = [""] * 7
    writer.writerow([*blank, "Question", "Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3))])
    for row in questions:
        writer.writerow([*blank, row["question"], *row["choices"]])
    return "gpqa_diamond.csv", text.getvalue()


def read_output(lines: Iterable[str], questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return id, expected, answer, correct and response of each question from the details. Raises OutputError."""
    try:
        details = load_json("".join(lines))["details"]
        numbers = [str(number) for number in range(len(questions))]
        if set(details) != set(numbers):
            judged = sum(number in details for number in numbers)
            raise OutputError(f"AISBench judged {judged} of the answers, expected {len(questions)}")
        return [_item(row["id"], details[str(number)]) for number, row in enumerate(questions)]
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        raise OutputError(f"AISBench's details are not as expected: {quote_foreign(repr(exc))}") from exc


def _item(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    answer = found["predictions"][0]
    return {
        "id": name,
        "expected": str(found["references"][0]),
        "answer": UNREADABLE if answer in (None, "") else str(answer),
        "correct": {False: False, True: True}[found["correct"][0]],
        "response": str(found["origin_prediction"]),
    }


def reason_of(log: str) -> str:
    """Return why AISBench failed: its last error without colours and the address of its manual, else the last line."""
    lines = [_COLOURS.sub("", line) for line in log.splitlines()]
    errors = [line for line in lines if "failed reasons: " in line] or [line for line in lines if "[ERROR]" in line]
    match = _FAILED.search(errors[-1]) if errors else None
    return shorten(match[1].strip()) if match else last_reason("\n".join(lines))


def _files(run: Run, questions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    name, text = data_file(run.task, questions)
    return {"python/instance_chat.py": _MODEL, "run.py": configuration(run), f"data/{name}": text}


TOOL = Tool(
    "aisbench",
    "AISBench",
    VERSION,
    "bin/ais_bench",
    tuple(_DATASETS),
    _files,
    lambda work: [f"{work}/run.py", "--work-dir", f"{work}/{OUT}", "--mode", "all", "--dump-eval-details"],
    lambda task: f"*/results/instance/{_DATASETS[task][2]}.json",
    read_output,
    reason_of,
    # A request that failed counts as a wrong answer in the details.
    "*/predictions/instance/*_failed.jsonl",
)
