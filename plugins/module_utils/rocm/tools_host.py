# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask AMD's tools, also for the error records of the chips. Changes nothing."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Sequence

from ..vendor_stack.answers import NOT_FOUND, CommandResult
from ..vendor_stack.counters import explain_silence
from ..vendor_stack.host import Run, run_command
from .counters import BUS, addresses_of
from .error_records import SEVERITIES, ErrorRecord, command, parse_records

# The directories of ROCm's tools; older packages link them into /usr/bin.
TOOL_DIRECTORIES = ("/opt/rocm/bin", "/opt/rocm/core/bin")


@dataclass(frozen=True)
class RecordsAnswer:
    """All records that the driver keeps; ``problem`` is the reason where the tool told none, empty otherwise."""

    records: tuple[ErrorRecord, ...] = ()
    problem: str = ""


def ask_tool(argv: Sequence[str], run: Run = run_command) -> CommandResult:
    """Return the answer of one of ROCm's tools, from any of its directories."""
    answer = run(argv)
    for directory in TOOL_DIRECTORIES:
        if answer.rc == NOT_FOUND:
            answer = run([os.path.join(directory, argv[0]), *argv[1:]])
    return answer


def read_records(run: Run = run_command) -> RecordsAnswer:
    """Return the error records of the host's chips."""
    texts = []
    for severity in SEVERITIES:
        try:
            # amd-smi decodes a record from the file that it writes.
            with tempfile.TemporaryDirectory() as directory:
                answer = ask_tool(command(severity, directory), run)
        except OSError as exc:
            return RecordsAnswer(problem=f"amd-smi ras --cper needs a temporary directory: {exc.strerror}")
        if answer.rc == NOT_FOUND:
            return RecordsAnswer(problem="amd-smi is not installed")
        if answer.rc != 0:
            return RecordsAnswer(problem=f"amd-smi ras --cper fails: {explain_silence(answer)}")
        texts.append(answer.out)
    text = "\n".join(texts)
    addresses = addresses_of(ask_tool(BUS, run)) if ".cper" in text else {}
    return RecordsAnswer(tuple(parse_records(text, addresses)))
