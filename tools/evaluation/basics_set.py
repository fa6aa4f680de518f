#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write catalog/evaluation/basics.jsonl: 200 questions that a small model with real weights answers about half of.

40 of each kind: capitals, sums of one digit, "repeat this word", opposites, and "what comes after". The id names the
kind. The file is the same on every machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from pathlib import Path

SET = Path(__file__).resolve().parents[2] / "catalog" / "evaluation" / "basics.jsonl"
SEED = 20261128
EACH = 40
CAPITALS = (
    "France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, England London, Ireland Dublin, "
    "Austria Vienna, Poland Warsaw, Hungary Budapest, Greece Athens, Turkey Ankara, Russia Moscow, Lebanon Beirut, "
    "Sweden Stockholm, Norway Oslo, Denmark Copenhagen, Finland Helsinki, Belgium Brussels, Romania Bucharest, "
    "Bulgaria Sofia, Serbia Belgrade, Croatia Zagreb, Egypt Cairo, Kenya Nairobi, Tunisia Tunis, Morocco Rabat, "
    "Nigeria Abuja, Ghana Accra, Japan Tokyo, China Beijing, Thailand Bangkok, Vietnam Hanoi, Iran Tehran, "
    "Iraq Baghdad, Canada Ottawa, Cuba Havana, Peru Lima, Chile Santiago, Australia Canberra"
)
WORDS = (
    "river candle window purple garden hammer silver mountain bottle thunder pencil ladder orange castle button "
    "forest magnet pillow rocket saddle teapot violin walnut zebra anchor basket cherry dragon engine feather guitar "
    "helmet island jacket kitten lemon marble needle oyster parrot"
)
OPPOSITES = (
    "hot cold, big small, fast slow, up down, left right, day night, black white, good bad, happy sad, old young, "
    "rich poor, hard soft, light dark, high low, open closed, full empty, wet dry, early late, long short, thick thin, "
    "strong weak, clean dirty, near far, inside outside, first last, love hate, win lose, push pull, buy sell, "
    "true false, loud quiet, sweet sour, wide narrow, heavy light, alive dead, war peace, friend enemy, "
    "arrive depart, north south, beginning end"
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "January February March April May June July August September October November December"


def pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of words of a list."""
    found = []
    for pair in text.split(", "):
        first, second = pair.split()
        found.append((first, second))
    return found


def followers(text: str) -> list[tuple[str, str]]:
    """Return each word with the one that comes after it."""
    return list(zip(text.split(), text.split()[1:]))


def questions(seed: int = SEED) -> list[dict[str, str]]:
    """Return the questions in their order, each with id, question and answer."""
    source = random.Random(seed)  # noqa: S311  no secret is made
    sums = source.sample([(first, second) for first in range(1, 10) for second in range(1, 10)], EACH)
    numbers = source.sample([(str(number), str(number + 1)) for number in range(1, 100)], 13)
    letters = source.sample(followers(" ".join(LETTERS)), 10)
    made = {
        "capital": [
            (f"What is the capital of {country}? Answer with one word.", city) for country, city in pairs(CAPITALS)
        ],
        "sum": [
            (f"What is {first} + {second}? Answer with the number alone.", str(first + second))
            for first, second in sums
        ],
        "repeat": [(f"Repeat this word: {word}", word) for word in WORDS.split()],
        "opposite": [
            (f"What is the opposite of {word}? Answer with one word.", other) for word, other in pairs(OPPOSITES)
        ],
        "next": [
            *((f"What day comes after {day}? Answer with one word.", after) for day, after in followers(DAYS)),
            *((f"What month comes after {month}? Answer with one word.", after) for month, after in followers(MONTHS)),
            *((f"What letter comes after {letter}? Answer with one letter.", after) for letter, after in letters),
            *((f"What number comes after {number}? Answer with the number alone.", after) for number, after in numbers),
        ],
    }
    rows = [
        {"id": f"{kind}-{number:02d}", "question": question, "answer": answer}
        for kind, asked in made.items()
        for number, (question, answer) in enumerate(asked, 1)
    ]
    source.shuffle(rows)
    return rows


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
