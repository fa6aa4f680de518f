#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write catalog/evaluation/made.jsonl: 1,000 questions with known answers, the same ones on every machine.

800 are sums, 200 ask for a sentence that ends in the word ready. The smoke model answers "The fleet is ready." to
everything, so its score is exactly 20 %. A score proves that the evaluation works, and nothing about a model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from pathlib import Path

SET = Path(__file__).resolve().parents[2] / "catalog" / "evaluation" / "made.jsonl"
SEED = 20261123
SUMS, SENTENCES = 800, 200


def questions(seed: int = SEED) -> list[dict[str, str]]:
    """Return the questions in their order, each with id, question and answer."""
    source = random.Random(seed)  # noqa: S311  no secret is made
    pairs = source.sample([(first, second) for first in range(10, 100) for second in range(10, 100)], SUMS)
    made = [
        (f"What is {first} + {second}? Answer with the number alone.", str(first + second)) for first, second in pairs
    ]
    made += [
        (f"Is host {number} ready? Answer in one sentence that ends in the word ready.", "ready")
        for number in range(1, SENTENCES + 1)
    ]
    source.shuffle(made)
    return [
        {"id": f"made-{number:04d}", "question": question, "answer": answer}
        for number, (question, answer) in enumerate(made, 1)
    ]


def text(rows: list[dict[str, str]]) -> str:
    """Return the text of the data file."""
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the file would change")
    arguments = parser.parse_args()
    data = text(questions()).encode()
    current = SET.exists() and SET.read_bytes() == data
    if not current and not arguments.check:
        SET.write_bytes(data)
    print(f"{SET}: sha256 {hashlib.sha256(data).hexdigest()}")
    return int(arguments.check and not current)


if __name__ == "__main__":
    sys.exit(main())
