# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of a daemon that are repeated for ever: one that fails is reported, and the next one follows."""

import time
import traceback
from typing import Callable

# The same failure is reported again after so many seconds.
REPEAT = 60.0


class Repeated:
    """A step called ``name``; ``worked_at`` is when it last worked, or began, in seconds since the epoch."""

    def __init__(self, name: str, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self.name, self._say, self._clock = name, say, clock
        self.worked_at = clock()
        self._told, self._told_at = "", 0.0

    def attempt(self, step: Callable[[], object]) -> bool:
        """Do the step; return whether it worked. Whatever it raises is reported, once a minute at most."""
        try:
            step()
        except Exception as exc:
            self._report(exc)
            return False
        if self._told:
            self._say(f"{self.name} works again")
            self._told = ""
        self.worked()
        return True

    def worked(self) -> None:
        """Note that the step works, for one that never ends by itself."""
        self.worked_at = self._clock()

    def _report(self, exc: Exception) -> None:
        place = traceback.extract_tb(exc.__traceback__)[-1]
        text = f"{self.name} failed, and is tried again: {type(exc).__name__}: {exc} ({place.name}:{place.lineno})"
        now = self._clock()
        if text != self._told or now - self._told_at >= REPEAT:
            self._told, self._told_at = text, now
            self._say(text)
