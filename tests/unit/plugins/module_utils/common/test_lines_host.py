# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.common.lines_host import write_error, write_line


def test_lines_go_where_a_program_has_them(capsys):
    write_line("serves")
    write_error("fails")
    assert capsys.readouterr() == ("serves\n", "fails\n")


def test_a_terminal_obeys_no_line(capsys):
    write_line("a\x1b[2J\nb")
    write_error("\x07")
    assert capsys.readouterr() == ("a\\x1b[2J\nb\n", "\\x07\n")
