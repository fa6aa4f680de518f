# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the vendor's tool of a stack for its counters. Changes nothing."""

from typing import Sequence

from ..cann import counters as cann
from ..cann.answers import parse_table
from ..cann.host import TOOLS as NPU_SMI
from ..cuda import counters as cuda
from ..rocm import counters as rocm
from ..rocm.tools_host import ask_tool
from ..vendor_stack.answers import NOT_FOUND, NOT_INSTALLED, CommandResult
from ..vendor_stack.counters import CountersAnswer
from ..vendor_stack.host import KMSG, Run, kernel_log, run_command

CUDA, ROCM, CANN = "cuda", "rocm", "cann"


def read_counters(stack: str, run: Run = run_command, device: str = KMSG) -> CountersAnswer:
    """Return the counters of the host's chips; none, and no problem, for a stack without accelerators.

    ``device`` is that of the kernel's log, empty to leave the log out.
    """
    if stack == CUDA:
        answers = [run(argv) for argv in cuda.COMMANDS]
        return cuda.parse_counters(answers, kernel_log(run, (cuda.LOG_WORD,), device) if device else "")
    if stack == ROCM:
        answers = [ask_tool(argv, run) for argv in rocm.COMMANDS]
        return rocm.parse_counters(answers, kernel_log(run, (rocm.LOG_WORD,), device) if device else "")
    if stack == CANN:
        table = _ask(cann.TABLE, NPU_SMI, run)
        rows = parse_table(table.out)
        details = {(row.npu, row.chip): [_ask(argv, NPU_SMI, run) for argv in cann.commands_of(row)] for row in rows}
        return cann.parse_counters(table, details)
    return CountersAnswer()


def _ask(argv: Sequence[str], tools: Sequence[str], run: Run) -> CommandResult:
    """Return the answer of the first of these places that has the tool."""
    answers = (run([tool, *argv[1:]]) for tool in tools)
    return next((answer for answer in answers if answer.rc != NOT_FOUND), NOT_INSTALLED)
