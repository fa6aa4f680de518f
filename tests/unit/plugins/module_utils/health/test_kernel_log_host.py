# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

from ansible_collections.baremetal.inference.plugins.module_utils.health.kernel_log_host import KernelLog


class OddBook:
    """Knows no line, and fails at one of them."""

    def read(self, record):
        if "odd" in record.text:
            raise OverflowError("too large")


def test_a_line_that_cannot_be_read_ends_nothing(tmp_path, capsys):
    path = tmp_path / "kmsg"
    path.write_text("6,1,5,-;first\n6,2,6,-;odd\n6,3,7,-;third\n")
    log = KernelLog(str(path), OddBook())
    log.start()
    deadline = time.monotonic() + 60
    while log.last < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert log.is_alive() and log.lines == 3
    assert "A line of the kernel's log failed, and is tried again: OverflowError: too large" in capsys.readouterr().out
