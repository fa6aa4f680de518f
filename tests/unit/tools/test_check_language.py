# SPDX-License-Identifier: GPL-3.0-or-later
"""The language check finds the forms that this project does not use, and accepts plain English."""

from __future__ import annotations

import pytest

from tools.check_language import findings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The directory is made anew.", "anew"),
        ("A name that is not on the host any more is reported.", "any more"),
        ("Wait until the rollout comes to an end.", "comes to an end"),
        ("A working driver is left alone.", "left alone"),
        ("Each host gets a line of its own.", "a line of its own"),
        ("Give the clients an API key of their own.", "an API key of their own"),
        ("It uses the environment of whoever runs Ansible.", "whoever "),
        ("The manifest has the very same files.", "the very same"),
        ("Check first, so that nothing is downloaded in vain.", "in vain"),
        ("Its driver is updated all the same.", "all the same"),
        ("Take the lab down without a trace.", "without a trace"),
        ("The lab has no way out.", "way out"),
        ("Run it again to go on from here.", "go on from"),
        ("The instances have to be restarted.", "have to be"),
    ],
)
def test_a_form_is_found_with_its_line(text, found):
    (finding,) = findings("docs/page.md", f"# Title\n\n{text}\n")
    assert finding.startswith(f"docs/page.md:3: found {found!r}, write: ")


@pytest.mark.parametrize(
    "text",
    [
        "A driver from a .run file would have to be replaced.",
        "Everyone is welcome, whoever they are.",
        "Each host gets its own line.",
        "The host did not come back within 600 s.",
        "Switch it on with weights_scrub: true.",
        "All the same files are listed twice.",
    ],
)
def test_plain_english_passes(text):
    assert not list(findings("docs/page.md", text))


def test_a_task_name_begins_with_an_imperative_that_names_the_action():
    (finding,) = findings("roles/x/tasks/main.yml", "- name: main | Look before anything changes\n")
    assert "begins with 'Look'" in finding
    assert not list(findings("roles/x/tasks/main.yml", "- name: main | Check the weights\n"))


def test_a_function_is_a_verb_with_an_object():
    (finding,) = findings("plugins/x.py", "def look(host):\n")
    assert "the function 'look'" in finding
    assert not list(findings("plugins/x.py", "def read_host(host):\n"))
