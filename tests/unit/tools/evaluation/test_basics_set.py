# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import collections
import re

from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation import files
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.data import read_samples

from tools.evaluation import basics_set


def test_the_file_is_the_one_that_the_tool_writes():
    assert basics_set.SET.read_text() == basics_set.text(basics_set.questions())


def test_the_collection_reads_200_questions_of_five_kinds():
    definition = files.load_task(files.BUNDLED / "basics.yml")
    where, expected = files.locate_data(files.BUNDLED / "basics.yml", definition, {}, "/none")
    samples = read_samples(definition, files.read_data("basics", where, expected)[0], where)
    kinds = collections.Counter(sample.id.partition("-")[0] for sample in samples)
    assert kinds == dict.fromkeys(("capital", "sum", "repeat", "opposite", "next"), 40)
    assert len({sample.prompt for sample in samples}) == 200


def test_no_question_but_one_of_repeating_holds_its_answer():
    found = [
        row["id"]
        for row in basics_set.questions()
        if row["answer"].lower() in re.findall(r"\w+", row["question"].lower()) and not row["id"].startswith("repeat-")
    ]
    assert found == []
