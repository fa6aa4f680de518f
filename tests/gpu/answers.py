# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a server for its most probable tokens, and compare them with earlier answers:  answers.py PORT RESULT [EARLIER]

Eight prompts, one at a time, 64 tokens each, with their logarithms of probability. Runs with any Python 3.
"""

from __future__ import annotations

import json
import random
import sys
import urllib.request
from pathlib import Path

MODEL = "openai/gpt-oss-20b"


def ask(port: int, prompt: list[int]) -> dict[str, list[object]]:
    """Return the tokens of one answer, and the logarithms of their probability."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 64, "ignore_eos": True, "temperature": 0, "logprobs": 1}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found = json.load(answer)["choices"][0]["logprobs"]
    return {"tokens": found["tokens"], "logarithms": found["token_logprobs"]}


def compare(one: list[dict[str, list[object]]], other: list[dict[str, list[object]]]) -> str:
    """Return in words how much two lists of answers differ."""
    equal = sum(a["tokens"] == b["tokens"] for a, b in zip(one, other, strict=True))
    apart = [
        abs(float(str(x)) - float(str(y)))
        for a, b in zip(one, other, strict=True)
        for left, right, x, y in zip(a["tokens"], b["tokens"], a["logarithms"], b["logarithms"], strict=True)
        if left == right
    ]
    most = max(apart, default=0.0)
    return f"the same tokens in {equal} of {len(one)} answers; logarithms of equal tokens differ by at most {most:.6f}"


def main() -> None:
    """Run the command of the command line."""
    draw = random.Random(17)
    lengths = (16, 64, 100, 200, 400, 700, 1024, 3000)
    prompts = [[draw.randrange(1000, 190000) for _token in range(length)] for length in lengths]
    found = [ask(int(sys.argv[1]), prompt) for prompt in prompts]
    Path(sys.argv[2]).write_text(json.dumps(found) + "\n")
    different = len({token for answer in found for token in map(str, answer["tokens"])})
    print(f"{Path(sys.argv[2]).stem}: {len(found)} answers, {different} different tokens")
    if len(sys.argv) > 3:
        print(f"  against {Path(sys.argv[3]).stem}: {compare(found, json.loads(Path(sys.argv[3]).read_text()))}")


if __name__ == "__main__":
    main()
