# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a gateway should have the address that gateways share."""

import contextlib
from dataclasses import dataclass

from ..common.files_host import publish
from ..common.lines_host import write_line

# A shared address moves only after this long: without servers, or without an answer of a HAProxy that still listens.
# The second is long because a machine without free CPU time answers late. If HAProxy does not listen, it has ended.
NO_SERVER_SECONDS, SILENT_SECONDS, ENDED_SECONDS = 10.0, 60.0, 3.0


@dataclass
class SharedAddress:
    """Whether this gateway should have the shared address; ``path`` is the file for keepalived, empty for none."""

    path: str
    interval: float
    usable: bool = True
    # The fault that was seen last, since when, and when it was seen.
    fault: str = ""
    since: float = 0.0
    seen_at: float = 0.0

    def saw(self, fault: str, now: float) -> bool:
        """Return whether the gateway is usable; ``fault`` is ``ended``, ``silent``, ``no server`` or nothing."""
        # A process that did not run itself has not seen how long a fault lasted.
        if fault != self.fault or now - self.seen_at > 3 * self.interval + 2:
            self.fault, self.since = fault, now
        self.seen_at = now
        patience = {"ended": ENDED_SECONDS, "silent": SILENT_SECONDS, "no server": NO_SERVER_SECONDS, "": self.interval}
        if now - self.since >= patience[fault]:
            self.usable = not fault
        return self.usable

    def write(self) -> None:
        """Write the file for keepalived if its content changes; keepalived reads it then."""
        if not self.path:
            return
        text = f"{int(not self.usable)}\n"
        with contextlib.suppress(OSError, ValueError), open(self.path, encoding="ascii") as file:
            if file.read() == text:
                return
        try:
            publish(self.path, text, durable=False)
            note = f"shared address: this gateway is {'usable' if self.usable else f'not usable: {self.fault}'}"
        except OSError as exc:
            note = f"{self.path}: cannot be written: {exc.strerror}"
        write_line(note)
