# SPDX-License-Identifier: GPL-3.0-or-later
"""make fast runs each fast test once, and nothing that slow.txt names."""

from __future__ import annotations

import pytest

from tools.fast_tests import SLOW, UNIT, fast_files, is_slow, shares


def test_each_fast_file_is_in_one_share():
    files = fast_files()
    assert len(files) > 300
    assert sorted(path for share in shares(files, 4) for path in share) == sorted(files)
    assert shares(files[:1], 4) == [files[:1]]


@pytest.mark.parametrize("name", SLOW)
def test_what_is_named_slow_is_there_and_left_out(name):
    """Remove a line of slow.txt whose files are gone."""
    folder, _slash, start = name.rpartition("/")
    named = [path for path in (UNIT / folder).iterdir() if path.name.startswith(start)]
    assert named
    assert not {path for path in fast_files() if path.relative_to(UNIT).as_posix().startswith(name)}
    assert is_slow(UNIT / "plugins/plugin_utils/redfish/test_survey_fuzz.py")


def test_a_unit_test_that_hangs_fails(request):
    assert request.config.pluginmanager.hasplugin("timeout")
    assert request.node.get_closest_marker("timeout").args == (900,)
