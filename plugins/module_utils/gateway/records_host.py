# SPDX-License-Identifier: GPL-3.0-or-later
"""The owners file of a gateway: who drained which server, since when and why."""

from __future__ import annotations

import contextlib
import json
from typing import Iterator

from ..common.files_host import LockedError, locked, publish
from ..common.foreign_json import load_json
from .servers import Records, RecordsError, ServersError, read_records, records_document

# Seconds to wait for another run that changes servers of this gateway.
LOCK_SECONDS = 60.0


class OwnersFile:
    """The owners file at ``path``; ``gateway`` begins each message, ``warnings`` describe a damaged file."""

    def __init__(self, path: str, gateway: str) -> None:
        self.path, self.gateway = path, gateway
        self.warnings: list[str] = []

    def read(self) -> dict[str, dict[str, str]]:
        """Return the records, empty with a warning for a damaged file. Raises ServersError."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return read_records(load_json(file.read()))
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise ServersError(
                f"{self.gateway}: {self.path}: cannot be read: {exc.strerror}; run as root (become)"
            ) from exc
        except RecordsError as exc:
            return self._distrust(str(exc))
        except ValueError as exc:
            return self._distrust(f"is not JSON ({exc})")

    def _distrust(self, problem: str) -> dict[str, dict[str, str]]:
        """Return no records for a damaged file, and warn of it once."""
        text = (
            f"{self.gateway}: {self.path}: {problem}; every drained server counts as drained by hand until it is made "
            "ready with force, and the next change rewrites the file"
        )
        if text not in self.warnings:
            self.warnings.append(text)
        return {}

    def write(self, records: Records) -> None:
        """Replace the records, readable by root alone. Raises ServersError."""
        try:
            publish(self.path, f"{json.dumps(records_document(records), indent=1)}\n", 0o600)
        except OSError as exc:
            raise ServersError(f"{self.gateway}: {self.path}: cannot be written: {exc.strerror}") from exc

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the gateway's lock. Raises ServersError when another run holds it for LOCK_SECONDS."""
        path = f"{self.path}.lock"
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(path, LOCK_SECONDS))
            except LockedError as exc:
                raise ServersError(
                    f"{self.gateway}: another run has changed servers here for {LOCK_SECONDS:.0f} s ({path} is locked "
                    f"by {exc.holder}); wait until that run ends, and try again"
                ) from exc
            except OSError as exc:
                raise ServersError(
                    f"{self.gateway}: {path}: cannot be locked: {exc.strerror}; run as root (become)"
                ) from exc
            yield
