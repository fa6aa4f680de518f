# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an evaluation of gpt_oss.evals on a file of questions.

The module evaluation_run runs its text with the Python of an environment that has gpt-oss:

    python gpt_oss_evals.py SETTINGS.json

gpt_oss.evals makes the prompts and judges the answers. Three things differ from its own command. It downloads the
questions from the internet and repeats each eight times: here they come from a file, once. It returns answers in the
order in which they arrive: here in the order of the questions. Its sampler asks again while an answer is empty: here an
empty answer is a wrong one.
"""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Callable

CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
# Parameters that openai's client has no argument for.
KNOWN = ("max_tokens", "temperature", "top_p", "reasoning_effort", "frequency_penalty", "presence_penalty")


class Sampler:
    """Asks the instance by chats. The key is in the environment (OPENAI_API_KEY)."""

    def __init__(self, url: str, model: str, request: dict[str, Any], timeout: float) -> None:
        from openai import OpenAI

        self.client = OpenAI(base_url=f"{url}/v1", timeout=timeout, max_retries=3)
        known = {key: value for key, value in request.items() if key in KNOWN}
        other = {key: value for key, value in request.items() if key not in KNOWN}
        self.parameters = {"model": model, **known, **({"extra_body": other} if other else {})}

    def _pack_message(self, role: str, content: Any) -> dict[str, Any]:
        return {"role": str(role), "content": content}

    def __call__(self, message_list: list[dict[str, Any]]) -> Any:
        from gpt_oss.evals.types import SamplerResponse

        answer = self.client.chat.completions.create(messages=message_list, **self.parameters)
        return SamplerResponse(answer.choices[0].message.content or "", message_list, {"usage": answer.usage})


def build(task: str, rows: list[dict[str, Any]], threads: int) -> Any:
    """Return the evaluation of a task; it reads its data with pandas while it is made."""
    import pandas
    from gpt_oss.evals import aime_eval, gpqa_eval

    if task == "gpqa":
        # The columns of gpqa_diamond.csv; the first choice is the right one.
        columns = [{"Question": row["question"], **dict(zip(CHOICES, row["choices"]))} for row in rows]
        pandas.read_csv = lambda *_given, **_named: pandas.DataFrame(columns)
        return gpqa_eval.GPQAEval(n_repeats=1, n_threads=threads)
    # Two files of AIME 2025, part I and part II: all questions are in the first.
    parts: Any = iter(([{"question": row["question"], "answer": row["expected"]} for row in rows], []))
    pandas.read_json = lambda *_given, **_named: pandas.DataFrame(next(parts), columns=["question", "answer"])
    return aime_eval.AIME25Eval(n_repeats=1, n_threads=threads)


def read_label(html: str, label: str) -> str:
    """Return what the report of a question has behind a label."""
    return unescape(re.findall(f"<p>{label}: (.*?)</p>", html, re.DOTALL)[-1]).strip()


def main() -> None:
    """Write the judged answers."""
    from gpt_oss.evals import report

    settings = json.loads(Path(sys.argv[1]).read_text())
    rows = [json.loads(line) for line in Path(settings["data"]).read_text().splitlines()]
    results: list[Any] = []

    def in_order(ask: Callable[[Any], Any], examples: list[Any], num_threads: int = 1) -> list[Any]:
        with ThreadPool(min(num_threads, len(examples))) as pool:
            results.extend(pool.map(ask, examples, chunksize=1))
        return results

    report.map_with_progress = in_order
    sampler = Sampler(settings["url"], settings["model"], settings["request"], settings["timeout"])
    build(settings["task"], rows, settings["concurrency"])(sampler)
    with open(settings["output"], "w") as file:
        for row, result in zip(rows, results):
            item = {
                "id": row["id"],
                "expected": read_label(result.html, "Correct Answer"),
                "answer": read_label(result.html, "Extracted Answer"),
                "score": result.score,
                "response": result.convo[-1]["content"],
            }
            file.write(json.dumps(item) + "\n")


if __name__ == "__main__":
    main()
