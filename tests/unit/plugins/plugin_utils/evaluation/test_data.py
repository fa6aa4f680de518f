# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import collections
import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.data import Sample, choose, read_samples
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import EvaluationError, parse_task


def task(kind, form, columns, prompt="{question}"):
    data = {"title": "t", "kind": kind, "format": form, "columns": columns, "prompt": prompt, "max_tokens": 9}
    return parse_task("t", data, "t.yml")


LETTERS = task(
    "choice", "csv", {"question": "Question", "choices": ["A", "B"], "answer": "Answer"}, "{question}\n{choices}"
)
RIGHT = task(
    "choice",
    "csv",
    {"question": "Q", "choices": ["Right", "W1", "W2", "W3"], "answer": "Right", "id": "Id"},
    "{question}\n{choices}",
)
NUMBERS = task("number", "jsonl", {"question": "question", "answer": "answer"})
WORDS = task("word", "jsonl", {"question": "question", "answer": "answer", "id": "id"})


def test_a_letter_and_its_choices():
    text = 'Question,A,B,Answer\n"What is {choices}, or\n{question}?",one,two,b\n'
    assert read_samples(LETTERS, text, "f.csv") == [
        Sample(
            "1",
            "What is {choices}, or\n{question}?\nA) one\nB) two",
            "B",
            "What is {choices}, or\n{question}?",
            ("one", "two"),
        )
    ]


def test_a_right_answer_with_a_column_of_its_own_has_every_letter_equally_often():
    text = "Id,Q,Right,W1,W2,W3\n" + "".join(f"q{n},Why {n}?,right{n},a{n},b{n},c{n}\n" for n in range(400))
    samples = read_samples(RIGHT, text, "f.csv")
    for number, sample in enumerate(samples):
        assert f"{sample.expected}) right{number}" in sample.prompt.split("\n")
    counts = collections.Counter(sample.expected for sample in samples)
    assert sorted(counts) == list("ABCD") and min(counts.values()) > 70
    assert read_samples(RIGHT, text, "f.csv") == samples


def test_numbers_lose_the_zeros_in_front():
    text = '{"question": "1?", "answer": "070"}\n\n{"question": "2?", "answer": 7}\n'
    assert [sample.expected for sample in read_samples(NUMBERS, text, "f")] == ["70", "7"]


@pytest.mark.parametrize(
    ("definition", "text", "expected"),
    [
        (LETTERS, "Question,A,B,Anser\n", "f: line 1: has no column 'Answer' of the task t; nearest: 'Anser'"),
        (LETTERS, "Question,A,B,Answer\nWhy?,x,y,C\n", "f: line 2: column 'Answer': found 'C', expected a letter"),
        (LETTERS, 'Question,A,B,Answer\n"a\nb",x,y,A\n"c\nd",x,y,Z\n', "f: line 4: column 'Answer': found 'Z'"),
        (LETTERS, "Question,A,B,Answer\nWhy?,x,y\n", "f: line 2: column 'Answer': found nothing, expected a text"),
        (LETTERS, "Question,A,B,Answer\nWhy?,x,,A\n", "f: line 2: column 'B': found '', expected a text"),
        (LETTERS, 'Question,A,B,Answer\n"Why"?,x,y,A\n', "f: line 2: is not CSV"),
        (LETTERS, "Question,A,B,Answer\n", "f: the file has no question, expected one in each line of csv"),
        (NUMBERS, '{"question": "1?", "answer": 7}\n{"question"\n', "f: line 2: is not JSON"),
        (NUMBERS, "[1]\n", "f: line 1: found list, expected a JSON object"),
        (NUMBERS, '{"question": "1?", "answer": "seven"}\n', "column 'answer': found 'seven', expected a whole number"),
        (NUMBERS, '{"question": "1?", "answer": true}\n', "f: line 1: column 'answer': found true, expected a text"),
        (NUMBERS, '{"question": "1?"}\n', "f: line 1: has no column 'answer'"),
        (NUMBERS, "", "f: the file has no question"),
        (WORDS, '{"id": 1, "question": "1?", "answer": "two words"}\n', "found 'two words', expected one word"),
        (
            WORDS,
            '{"id": 1, "question": "1?", "answer": "a"}\n{"id": "1", "question": "2?", "answer": "a"}\n',
            "f: line 2: found the id '1' of line 1 again, expected another one",
        ),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(definition, text, expected):
    with pytest.raises(EvaluationError) as caught:
        read_samples(definition, text, "f")
    assert expected in str(caught.value)


def test_a_part_of_the_questions_is_the_same_in_every_run_and_from_the_whole_file():
    samples = [Sample(str(number), "?", "a") for number in range(1000)]
    chosen = choose(samples, "t", 100)
    assert chosen == choose(list(samples), "t", 100) and len(chosen) == 100
    assert chosen == sorted(chosen, key=lambda sample: int(sample.id))
    # Files are often sorted by subject: every tenth of them has to be there.
    assert {int(sample.id) // 100 for sample in chosen} == set(range(10))
    assert choose(samples, "other", 100) != chosen
    assert choose(samples, "t", 0) == choose(samples, "t", 1000) == samples
    assert set(choose(samples, "t", 50)) < set(chosen)


def test_a_line_is_json_with_the_text_as_it_is():
    line = Sample("1", 'Füße "x"\n', "A").line()
    assert json.loads(line) == {"id": "1", "prompt": 'Füße "x"\n', "expected": "A"} and "\n" not in line
