# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the ledger of the health service in a file, so that a new start of the service forgets nothing."""

from __future__ import annotations

import json
import os

from ..common.files_host import publish, text_of
from .ledger import Ledger, LedgerError

STATE_FILE = "state.json"


class SavedState:
    """The file below ``directory`` with the ledger and the place in the kernel's log of this ``boot``."""

    def __init__(self, directory: str, boot: str) -> None:
        self.path = os.path.join(directory, STATE_FILE)
        self.boot = boot
        self.damage = ""
        # The time of the newest error record of the chips that the ledger knows, of this boot.
        self.newest = 0.0
        self._marks = ""

    def restore(self) -> tuple[Ledger, int]:
        """Return the ledger and the number of the last record of the kernel's log that it knows, -1 for none.

        A damaged file is moved aside, and ``damage`` says why. Everything since the boot is read again then: what was
        sick is found sick again.
        """
        text = text_of(self.path)
        if not text:
            return Ledger(), -1
        try:
            data = json.loads(text)
            ledger = Ledger.from_document(data.get("ledger") if isinstance(data, dict) else None)
            same = data["boot"] == self.boot
            record, newest = (data["record"], data.get("newest", 0.0)) if same else (-1, 0.0)
            if not isinstance(record, int) or not isinstance(newest, (int, float)):
                raise LedgerError("record or newest is no number")
        except (ValueError, KeyError) as exc:
            self.damage = str(exc)
            os.replace(self.path, f"{self.path}.damaged")
            return Ledger(), -1
        self.newest = float(newest)
        return ledger, record

    def save(self, ledger: Ledger, record: int, *, due: bool) -> None:
        """Save the ledger if it has changed, or if the ``record`` is due. Raises OSError."""
        document = ledger.document()
        marks = json.dumps(document, sort_keys=True)
        changed = marks != self._marks
        if changed or due:
            state = {"boot": self.boot, "record": record, "newest": self.newest, "ledger": document}
            publish(self.path, json.dumps(state, sort_keys=True), durable=changed)
            self._marks = marks
