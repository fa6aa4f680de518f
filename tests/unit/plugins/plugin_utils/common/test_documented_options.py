# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of an action are those that its module documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.documented_options import documented_options

TOP = Path(__file__).resolve().parents[5]
ACTIONS = sorted(path.stem for path in (TOP / "plugins/action").glob("*.py"))


OWN = "baremetal.inference."


@pytest.fixture(scope="module")
def documented():
    """The options of each module with those of its fragments, as ansible-doc shows them."""
    words = [
        str(Path(sys.executable).with_name("ansible-doc")),
        "--json",
        "-t",
        "module",
        *(OWN + name for name in ACTIONS),
    ]
    done = subprocess.run(words, cwd=TOP, check=True, capture_output=True, text=True)
    return {name.removeprefix(OWN): found["doc"]["options"] for name, found in json.loads(done.stdout).items()}


def without_prose(options):
    kept = {}
    for name, option in options.items():
        kept[name] = {key: value for key, value in option.items() if not key.startswith(("description", "version_"))}
        kept[name]["no_log"] = False
        if "suboptions" in option:
            kept[name]["options"] = without_prose(kept[name].pop("suboptions"))
    return kept


@pytest.mark.slow
def test_the_options_are_those_that_ansible_doc_shows(documented):
    assert len(documented) > 40
    assert {name: documented_options(name) for name in ACTIONS} == {
        name: without_prose(options) for name, options in documented.items()
    }


def test_options_of_an_option_become_a_spec_of_their_own():
    files = documented_options("driver_plan")["run_files"]
    assert files["elements"] == "dict" and files["options"]["url"] == {"type": "str", "required": True, "no_log": False}


def test_a_fragment_adds_its_options():
    assert documented_options("bench_request")["repeats"] == {"type": "int", "default": 3, "no_log": False}
