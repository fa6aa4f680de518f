# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of this host, and the processes that use what they provide."""

from __future__ import annotations

import re
from functools import partial
from typing import Callable, Iterable

from ..vendor_stack.host import read_holders
from ..vendor_stack.users import DAEMONS, foreign_holders
from .engine_host import CommandResult
from .model import RemovalError
from .packages import APT, DNF, removal_command

# For each vendor, the device nodes that a program opens when it uses a chip.
NODES = re.compile(r"/dev/(nvidia\d+|kfd|davinci\d+)\Z")
_QUERIES = {
    APT: ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n"],
    DNF: ["rpm", "--query", "--all", "--queryformat=installed %{NAME}\\n"],
}


class Packages:
    """The package manager of this host: ``manager`` is apt, dnf, or empty where there is neither."""

    def __init__(self, run: Callable[..., CommandResult]) -> None:
        # Without this option Ansible ends the module where the command is missing.
        self._run = partial(run, handle_exceptions=False)
        self.manager = ""
        self.installed: tuple[str, ...] = ()
        for manager, query in _QUERIES.items():
            out = self._output(query)
            if out:
                self.manager = manager
                self.installed = tuple(line.split()[-1] for line in out.splitlines() if line.startswith("installed "))
                return

    def refusal(self, names: Iterable[str]) -> str:
        """Return why packages cannot be removed, empty where they can."""
        try:
            self.call(removal_command(self.manager, names, dry=True))
        except RemovalError as exc:
            return str(exc)
        return ""

    def remove(self, names: Iterable[str]) -> None:
        """Remove packages. Raises RemovalError."""
        self.call(removal_command(self.manager, names))

    def call(self, words: list[str]) -> None:
        """Run a command of the system. Raises RemovalError."""
        try:
            rc, out, err = self._run(words, environ_update={"DEBIAN_FRONTEND": "noninteractive"})
        except OSError as exc:
            raise RemovalError(f"{words[0]}: {exc.strerror}") from exc
        if rc:
            raise RemovalError(f"{' '.join(words[:4])}: {(err or out).strip()[-400:]}")

    def _output(self, words: list[str]) -> str:
        try:
            return self._run(words)[1]
        except OSError:
            return ""


def chip_users(instances: Iterable[str], proc: str = "/proc") -> list[str]:
    """Return the processes with work on a chip that are not the named instances' or a vendor's daemons'."""
    stopping = [*(f"vllm@{name}.service" for name in instances), *DAEMONS]
    return [str(holder) for holder in foreign_holders(read_holders(proc, NODES), stopping)]
