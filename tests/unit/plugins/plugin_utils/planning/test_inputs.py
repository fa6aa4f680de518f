# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import (
    SETTINGS,
    Library,
    PermissionNeededError,
    PlanError,
    SiteSettings,
    UnknownNameError,
    how_to_pin,
)

from tests.fakes.plans import SITE
from tests.unit.test_layout import TOP


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("org/model", ["pin_model=org/model", "pin_dest=DIR"]),
        ("org/model@abc", ["pin_model=org/model", "pin_revision=abc", "pin_beside=true", "pin_dest=DIR"]),
    ],
)
def test_the_command_that_pins_a_model_has_options_that_its_playbook_takes(model, options):
    command = shlex.split(how_to_pin(model).partition(": ")[2].partition(",")[0])
    assert command[:2] == ["ansible-playbook", "playbooks/pin_weights.yml"]
    assert command[3::2] == options and set(command[2::2]) == {"-e"}
    text = (TOP / command[1]).read_text()
    assert all(option.partition("=")[0] in text for option in options)


def test_settings_have_defaults_where_the_release_or_the_stack_decides():
    bare = SiteSettings("", "/w", "/e", "/c", "/opt/vllm", 60)
    assert (bare.runtime, bare.image, bare.registry, bare.python, bare.strict) == ("", "", "", "", True)
    assert set(SETTINGS) == set(vars(bare)) == set(vars(SITE))


def test_a_library_has_no_notes_chips_or_router_unless_a_catalogue_gives_them():
    library = Library(*[lambda *_words: None] * 6)
    assert library.notes("recipes", "x") == library.chips(8) == () and library.router() == {}


def test_errors_of_a_plan_are_caught_as_one():
    error = PermissionNeededError("chat needs it", {"args": {"trust-remote-code": True}})
    assert isinstance(error, PlanError) and str(error) == "chat needs it"
    assert error.settings == {"args": {"trust-remote-code": True}} and issubclass(UnknownNameError, PlanError)
