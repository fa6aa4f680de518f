# SPDX-License-Identifier: GPL-3.0-or-later

import difflib
import hashlib
import os
import secrets
import time
from pathlib import Path
from typing import Any, Mapping

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.gateway.client_files import find_file, open_terminal, write_file
from ..plugin_utils.gateway.client_lines import NotEditableError, client_line, with_client, without_client
from ..plugin_utils.gateway.client_request import UNMADE, ClientRequestError, check_request, clients_after, entry_of

# In check mode, in place of the sha256.
LATER = "(sha256 of the new key)"
MADE = "The key of {}. It is stored nowhere and not shown again:\n\n    {}\n\n"


class ActionModule(ControllerAction):
    """Check the request for a client, then make its key or take it out of the inventory."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        check_request(options, time.time())
        if not options["write"] or not (options["make"] or options["end"]):
            if self._makes_key(options):
                os.close(self._terminal())
            return {"clients": clients_after(options, options["sha256"] or UNMADE), "unmade": UNMADE}
        if not self._makes_key(options):
            return self._write(options, variables, options["sha256"] or UNMADE)
        # The terminal first: a key that nobody sees is of no use.
        terminal = self._terminal()
        try:
            key = secrets.token_hex(32)
            result = self._write(options, variables, hashlib.sha256(key.encode()).hexdigest())
            os.write(terminal, MADE.format(options["make"], key).encode())
        finally:
            os.close(terminal)
        return result

    def _makes_key(self, options: Mapping[str, Any]) -> bool:
        return bool(options["make"] and not options["sha256"] and not self._task.check_mode)

    def _terminal(self) -> int:
        try:
            # The worker that runs this has no terminal; its parent is the command that the user started.
            return open_terminal(os.getppid(), os.environ)
        except OSError as exc:
            raise ClientRequestError(
                f"gateway_keys_make: {exc}, and a new key is shown on a terminal only; let the client make its key, "
                "and give the sha256 of it: -e gateway_keys_sha256=... (`inference key add NAME` takes the same -e)"
            ) from exc

    def _write(self, options: Mapping[str, Any], variables: Mapping[str, Any], digest: str) -> dict[str, Any]:
        """Change the file of the inventory with the clients, or say what to change; return the result."""
        make, entry = options["make"], entry_of(options, digest)
        names = [str(name) for name in options["clients"]]
        path, before, why = find_file(variables.get("ansible_inventory_sources") or [], names)
        after = before
        try:
            if path:
                after = with_client(before, make, entry) if make else without_client(before, options["end"])
            if path and not self._task.check_mode:
                write_file(path, after)
        except (NotEditableError, OSError) as exc:
            path, why = None, f"{path}: {exc}"
        line = client_line(make, entry).replace(UNMADE, LATER) if make else ""
        verb = "would be" if self._task.check_mode else "is"
        show(_advice(path, why, make or options["end"], line, verb))
        result: dict[str, Any] = {"changed": True, "digest": digest, "file": str(path or ""), "line": line}
        if path and self._task.diff:
            result["diff"] = [{"prepared": _diff(path, before, after)}]
        return result


def _advice(path: Path | None, why: str, name: str, line: str, verb: str) -> str:
    if path:
        return f"{path}: {name} {verb} {'added' if line else 'removed'}"
    if line:
        return f"{why}. Add this line to it, or the next run of gateway.yml ends the key:\n  {line}"
    return f"{why}. Remove {name} from it, or the next run of gateway.yml lets it in again."


def _diff(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path), str(path))
    return "".join(lines).replace(UNMADE, LATER)
