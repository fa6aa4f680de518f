# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the vendor's tool for the error records of the chips. Changes nothing; only AMD's tool has such records."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from ..rocm.counters import BUS, addresses_of
from ..rocm.error_records import SEVERITIES, ErrorRecord, command, parse_records
from ..vendor_stack.answers import NOT_FOUND
from ..vendor_stack.counters import explain_silence
from ..vendor_stack.host import Run, run_command
from .read_host import ROCM, ask_amd_smi


@dataclass(frozen=True)
class RecordsAnswer:
    """All records that the driver keeps; ``problem`` is the reason where the tool told none, empty otherwise."""

    records: tuple[ErrorRecord, ...] = ()
    problem: str = ""


def read_records(stack: str, run: Run = run_command) -> RecordsAnswer:
    """Return the error records of the host's chips; none, and no problem, for other stacks than AMD's."""
    if stack != ROCM:
        return RecordsAnswer()
    texts = []
    for severity in SEVERITIES:
        try:
            # amd-smi decodes a record from the file that it writes.
            with tempfile.TemporaryDirectory() as directory:
                answer = ask_amd_smi(command(severity, directory), run)
        except OSError as exc:
            return RecordsAnswer(problem=f"amd-smi ras --cper needs a temporary directory: {exc.strerror}")
        if answer.rc == NOT_FOUND:
            return RecordsAnswer(problem="amd-smi is not installed")
        if answer.rc != 0:
            return RecordsAnswer(problem=f"amd-smi ras --cper fails: {explain_silence(answer)}")
        texts.append(answer.out)
    text = "\n".join(texts)
    addresses = addresses_of(ask_amd_smi(BUS, run)) if ".cper" in text else {}
    return RecordsAnswer(tuple(parse_records(text, addresses)))
