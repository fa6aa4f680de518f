# SPDX-License-Identifier: GPL-3.0-or-later
"""What people ask of the health service and tell it: the commands status and clear."""

from __future__ import annotations

import json
import os
import time

from ..common.files_host import listed, publish, text_of
from ..common.spelling import nearest
from ..vendor_stack.faults import BY_BOOT, BY_HAND, BY_RESTART, chip_address
from .ledger import EVERYTHING, Ledger
from .saved_state_host import STATE_FILE
from .settings_host import Settings

WAITS_FOR = {
    BY_RESTART: "ends with a new start of the instance",
    BY_BOOT: "ends with a new start of the host, or with vllm-health clear",
    BY_HAND: "ends with vllm-health clear",
}
CLEAR_PREFIX = "clear-"


def _ledger(settings: Settings) -> Ledger:
    """Return the saved ledger. Raises ValueError and KeyError for a damaged one."""
    text = text_of(os.path.join(settings.state_dir, STATE_FILE))
    return Ledger.from_document(json.loads(text)["ledger"]) if text else Ledger()


def status(settings: Settings) -> str:
    """Return what keeps instances out of service, in lines; read from the saved state."""
    try:
        marks = _ledger(settings).marks.values()
    except (ValueError, KeyError) as exc:
        return f"The saved state is damaged: {exc}"
    lines = [
        f"{mark.instance}: {mark.reason} ({mark.action}, since {time.strftime('%F %T', time.localtime(mark.since))}, "
        f"{'waits for the proof' if mark.proving else WAITS_FOR[mark.back]})"
        for mark in marks
    ]
    return "\n".join(lines or ["Every instance is well."])


def boot_faults(settings: Settings) -> str:
    """Return the faults that only a new start of the host ends, a JSON list of sentences for power_cycle.yml."""
    try:
        return json.dumps(sorted(_ledger(settings).awaiting_boot().values()))
    except (ValueError, KeyError) as exc:
        raise SystemExit(f"The saved state is damaged: {exc}") from None


def clear(settings: Settings, chip: str, name: str) -> str:
    """Leave word for the service that a chip is well; return what happens next."""
    address = chip if chip == EVERYTHING else chip_address(chip)
    known = {*settings.addresses, EVERYTHING}
    if address not in known:
        raise SystemExit(f"{chip}: no chip of this host; {nearest(chip, known)}")
    publish(os.path.join(settings.state_dir, f"{CLEAR_PREFIX}{name}"), address)
    return f"Told the service that {address} is well; once the proof has passed, its instances return to service."


def take_cleared(directory: str) -> list[str]:
    """Return the chips that people have said are well since the last call; ``directory`` is that of the state."""
    chips = []
    for name in listed(directory):
        if name.startswith(CLEAR_PREFIX):
            path = os.path.join(directory, name)
            chips.append(text_of(path).strip())
            os.unlink(path)
    return chips
