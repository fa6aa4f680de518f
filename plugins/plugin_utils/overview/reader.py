# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a fleet's overview needs from the variables of its hosts, and write its page."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Iterable, Mapping

from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import Model
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import (
    FleetError,
    HostReader,
    constants,
    defaults,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.overview.lines import VARIABLES, Host

PARTS = Path(__file__).resolve().parent / "fleet_page"
CATALOG_PATH = "accelerator_catalog_path"
# There is no secret on the page (names, hardware, recipes), and others are to look at it; a web server may serve it.
MODE = 0o644


class PageError(ValueError):
    """The page cannot be written as asked; the message is the whole sentence for the user."""


class OverviewReader(HostReader):
    """Reads the variables of an overview; what cannot be read is told of the host and stops nobody."""

    def host(self, name: str) -> tuple[Host, tuple[str, ...]]:
        """Return a host and the directories of its own catalogue."""
        own = self._hostvars.raw_get(name)
        facts = own.get("ansible_facts")
        problems: list[str] = []
        found = {key: self._value(key, own, problems) for key in VARIABLES if own.get(key) is not None}
        # A cached fact is a variable of its own only where Ansible is told to make it one.
        if "accelerator_detected" not in found and isinstance(facts, Mapping):
            found["accelerator_detected"] = facts.get("accelerator_detected")
        directories = self._value(CATALOG_PATH, own, problems) or []
        listed = [directories] if isinstance(directories, str) else directories
        groups = [str(group) for group in own.get("group_names") or []]
        return Host(name, groups, found, "; ".join(problems)), tuple(str(directory) for directory in listed)

    def _value(self, name: str, own: Mapping[str, Any], problems: list[str]) -> Any:
        """Return a variable as plain data, None with a problem told where it cannot be."""
        value = own.get(name)
        if value is None or isinstance(value, int) or (isinstance(value, str) and "{" not in value):
            return value
        # Of instances only names and recipes are of interest, and these are seldom templates.
        if name == "vllm_instances" and isinstance(value, Mapping):
            return {str(key): {"recipe": _recipe(entry)} for key, entry in value.items()}
        text = self._plain(value)
        try:
            return json.loads(self._json(name, value, self._templar(own)) if text is None else text)
        except FleetError as exc:
            problems.append(str(exc))
            return None

    def _templar(self, own: Mapping[str, Any]) -> Templar:
        # As the role sees them: its defaults lie below the host's variables.
        variables = {**defaults(), **own, **constants(), "hostvars": self._hostvars}
        return Templar(loader=self._loader, variables=variables)


def read_fleet(names: Iterable[str], reader: OverviewReader) -> tuple[list[Host], dict[str, Model]]:
    """Return the hosts and the models of all their catalogues. Raises AcceleratorError for a catalogue with faults."""
    hosts: list[Host] = []
    catalogues: dict[tuple[str, ...], None] = {(): None}
    for name in names:
        host, directories = reader.host(name)
        hosts.append(host)
        catalogues[directories] = None
    models: dict[str, Model] = {}
    for directories in catalogues:
        models.update(load_catalogue(directories).models)
    return hosts, models


def page_parts() -> dict[str, str]:
    """Return the texts that the page is put together from: html, css and js."""
    return {name: (PARTS / f"page.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}


class PageFile:
    """The page on the disk. A link is followed, so that it stays one."""

    def __init__(self, path: str) -> None:
        """Raise PageError where no page can be written to ``path``."""
        self.path = os.path.realpath(os.path.expanduser(path))
        try:
            self._mode = os.stat(self.path).st_mode
            if not stat.S_ISREG(self._mode):
                raise PageError(f"fleet_page: {path} is in the way: expected a file, or nothing yet")
            with open(self.path, encoding="utf-8", errors="replace", newline="") as file:
                self.before: str | None = file.read()
        except FileNotFoundError:
            self.before, self._mode = None, MODE
        except OSError as exc:
            raise PageError(f"fleet_page: {path} cannot be read: {exc.strerror}") from exc
        if not os.path.isdir(os.path.dirname(self.path)):
            raise PageError(f"fleet_page: {os.path.dirname(self.path)} is no directory; make it first")

    def write(self, text: str) -> None:
        """Put a page in place at once, whole or not at all; a mode that was given to the file is kept."""
        beside = ""
        try:
            number, beside = tempfile.mkstemp(
                prefix=f".{os.path.basename(self.path)[:80]}.", dir=os.path.dirname(self.path)
            )
            with open(number, "w", encoding="utf-8", newline="") as file:
                os.fchmod(number, stat.S_IMODE(self._mode))
                file.write(text)
                file.flush()
                os.fsync(number)
            os.replace(beside, self.path)
        except OSError as exc:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise PageError(f"fleet_page: {self.path} cannot be written: {exc.strerror}") from exc


def _recipe(entry: Any) -> str:
    recipe = entry.get("recipe") if isinstance(entry, Mapping) else None
    return str(recipe) if isinstance(recipe, str) and "{{" not in recipe and "{%" not in recipe else ""
