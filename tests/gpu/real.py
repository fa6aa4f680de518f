# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a server the questions of a file, at temperature 0 and 8 at a time:  real.py PORT QUESTIONS [RESULT [EARLIER]]

Prints how many of each kind are right, and the seconds. Right is an answer whose last word is the expected one, as in
the kind `word` of an evaluation; `contains` also counts answers that hold the word elsewhere. RESULT gets the texts,
which are compared with those of EARLIER. Runs with any Python 3.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

AT_ONCE = 8
LAST_WORD = re.compile(r"(\w+)\W*\Z")


def ask(port: int, model: str, question: str) -> tuple[str, float]:
    """Return the text of one answer, and its seconds."""
    body = {
        "model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 24, "temperature": 0,
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    start = time.monotonic()
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]["content"] or "", time.monotonic() - start


def first_model(port: int) -> str:
    """Return the name of the first model of the server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def judge(row: dict[str, Any], text: str, seconds: float) -> dict[str, Any]:
    """Return the row with its answer and whether it is right."""
    last, expected = LAST_WORD.search(text), row["answer"].lower()
    return {
        **row,
        "text": text,
        "seconds": seconds,
        "right": bool(last) and last[1].lower() == expected,
        "contains": expected in re.findall(r"\w+", text.lower()),
    }


def compare(found: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> str:
    """Return in words how much two results differ."""
    pairs = list(zip(earlier, found, strict=True))
    lost = sum(a["right"] and not b["right"] for a, b in pairs)
    gained = sum(b["right"] and not a["right"] for a, b in pairs)
    return f"{sum(a['text'] != b['text'] for a, b in pairs)} texts changed, {lost} lost, {gained} gained"


def main() -> None:
    """Run the command of the command line."""
    port, rows = int(sys.argv[1]), [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]
    model, start = first_model(port), time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda row: ask(port, model, row["question"]), rows))
    whole = time.monotonic() - start
    found = [judge(row, *answer) for row, answer in zip(rows, answers, strict=True)]
    for kind in sorted({row["id"].partition("-")[0] for row in found}):
        some = [row for row in found if row["id"].startswith(f"{kind}-")]
        right, contains = sum(row["right"] for row in some), sum(row["contains"] for row in some)
        mean = sum(row["seconds"] for row in some) / len(some)
        print(f"{kind:10} {right:3} right, {contains:3} contain it, of {len(some)}; {mean:.2f} s an answer")
    print(
        f"{model}: {sum(row['right'] for row in found)}/{len(found)} right, {sum(row['contains'] for row in found)} "
        f"contain it, {whole:.1f} s at {AT_ONCE} at once"
    )
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(found, indent=0) + "\n")
    if len(sys.argv) > 4:
        earlier = json.loads(Path(sys.argv[4]).read_text())
        print(f"  against {Path(sys.argv[4]).stem}: {compare(found, earlier)}")


if __name__ == "__main__":
    main()
