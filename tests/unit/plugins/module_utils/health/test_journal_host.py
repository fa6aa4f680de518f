# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.health.journal_host import SAY_EVERY, Journal


def test_a_line_about_one_thing_comes_once_in_a_while_with_the_number_of_times(capsys):
    now = [1000.0]
    journal = Journal(lambda: now[0])
    for _time in range(3):
        journal.say_at_times(("xid 13", "chip"), "an application error", 2)
    journal.say_at_times(("xid 13", "other chip"), "another chip")
    assert capsys.readouterr().out == "an application error (2 times)\nanother chip\n"
    now[0] += SAY_EVERY
    journal.say_at_times(("xid 13", "chip"), "an application error")
    assert capsys.readouterr().out == "an application error (5 times)\n"
