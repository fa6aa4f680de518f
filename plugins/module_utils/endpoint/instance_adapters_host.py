# SPDX-License-Identifier: GPL-3.0-or-later
"""The adapters of an instance of this host, from its files."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

from ..common.foreign_files_host import ForeignDirectory
from ..common.kinds import show_value
from ..instance.config_file import API_KEY, endpoint_of
from ..instance.config_host import read_text, secrets_in, worth_masking
from ..instance.listener_host import processes_of
from ..instance.marks import APPLIED, OPERATOR_HEADER
from ..instance.operator_host import operator_token
from ..vllm.adapters import AdapterError, Changes, adapters_in, adapters_of
from .adapters_host import EngineAdapters, describe_paths
from .client import TimedClient


class OptionError(Exception):
    """An option or a file of the instance cannot be used; the message is the whole clause."""


class Instance:
    """The instance that the options name, as its files describe it."""

    def __init__(self, params: dict[str, Any]) -> None:
        """Read the files. Raises OptionError, AdapterError and InstanceError."""
        self.name, self._timeout = params["instance"], params["timeout"]
        if not re.match(r"[A-Za-z0-9][\w.-]*\Z", self.name):
            raise OptionError(f"instance: found {show_value(self.name)}, expected a name such as chat")
        if self._timeout <= 0:
            raise OptionError(f"timeout: found {self._timeout:g}, expected more than 0")
        self.wanted = adapters_of(params["adapters"])
        self.config, self._env = (os.path.join(params["config_dir"], f"{self.name}.{kind}") for kind in ("yaml", "env"))
        self.directory = os.path.join(params["run_dir"], self.name)
        text = read_text(self.config)
        if text is None:
            raise OptionError(f"{self.config} is not there; run playbooks/site.yml")
        self._text = text
        secrets = secrets_in(params["config_dir"], self.name)
        self.secrets, self._key = worth_masking(secrets), secrets.get(API_KEY, "")

    def check_installed(self) -> None:
        """Raise AdapterError where the installed configuration has other adapters than the requested ones."""
        installed = adapters_in(self._text)
        if installed != self.wanted:
            raise AdapterError(
                f"{self.config} has the adapters {describe_paths(installed)}, expected {describe_paths(self.wanted)}; "
                "it was changed during this run: run it again"
            )

    def engine(self, token: str = "") -> EngineAdapters:
        """Return the engine that listens where the configuration says."""
        url, _models = endpoint_of(self._text)
        headers = {OPERATOR_HEADER: token} if token else {}
        client = TimedClient(url, self._key, headers=headers, expected=processes_of(self.name))
        return EngineAdapters(client, self.directory, self._timeout)

    def apply(self) -> Changes:
        """Make the engine have the requested adapters, and note that it has them. Raises AdapterError."""
        self.check_installed()
        with operator_token(self.directory, os.stat(self._env).st_gid) as token:
            changes = self.engine(token).apply(self.wanted)
        digest = hashlib.sha256(self._text.encode()).hexdigest()
        ForeignDirectory(self.directory).replace(APPLIED, f"{digest}\n")
        return changes

    def describe_loaded(self) -> str:
        """Return the adapters that the engine has now, as a sentence."""
        try:
            return f"The engine has the adapters {describe_paths(self.engine().loaded())}."
        except AdapterError:
            return "Which adapters the engine has is unknown."

    def describe_failure(self) -> str:
        """Return what a failed change has left, and what to do."""
        return (
            f"{self.describe_loaded()} {self.config} has the new ones, and the next start or run of site.yml starts "
            "the engine with them: correct lora-modules of the instance and run site.yml again, which restarts it"
        )


def result_of(changes: Changes, asked: bool) -> dict[str, Any]:
    """Return the values of a run."""
    return {
        "changed": bool(changes),
        "asked": asked,
        "loaded": sorted(changes.load),
        "replaced": sorted(changes.replace),
        "unloaded": sorted(changes.unload),
    }
