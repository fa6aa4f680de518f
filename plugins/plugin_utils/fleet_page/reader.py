# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the variables of hosts for the fleet page, and write it."""

import json
from pathlib import Path
from typing import Any, Iterable, Mapping

from ansible.template import Templar

from ...module_utils.accelerator.recognition import Model
from ..catalog.accelerators import load_catalogue
from ..fleet.host_reader import FleetError, HostReader, constants, defaults
from ..fleet.members import HOST_KEYS
from ..pages.file import PageFile, read_parts
from ..planning.groups import bracketed
from .chips import Host
from .lines import VARIABLES

PARTS = Path(__file__).resolve().parent / "parts"
GATEWAY = ("gateway_address", "ansible_host", "gateway_port", "gateway_tls")
CATALOG_PATH = "accelerator_catalog_path"
# The page holds no secrets (names, hardware, recipes) and is for everybody; a web server may serve it.
MODE = 0o644


class FleetReader(HostReader):
    """Read the variables of the fleet page; an unreadable one becomes a problem of its host and stops nothing."""

    def host(self, name: str) -> tuple[Host, tuple[str, ...]]:
        """Return a host and the directories of its own catalogue."""
        own = self._hostvars.raw_get(name)
        facts = own.get("ansible_facts")
        problems: list[str] = []
        found = {key: self._value(key, own, problems) for key in VARIABLES if own.get(key) is not None}
        # A cached fact becomes its own variable only if Ansible is configured to inject facts.
        if "accelerator_detected" not in found and isinstance(facts, Mapping):
            found["accelerator_detected"] = facts.get("accelerator_detected")
        directories = self._value(CATALOG_PATH, own, problems) or []
        listed = [directories] if isinstance(directories, str) else directories
        groups = [str(group) for group in own.get("group_names") or []]
        return Host(name, groups, found, "; ".join(problems)), tuple(str(directory) for directory in listed)

    def gateway_address(self, name: str) -> str:
        """Return where a gateway serves without gateway_services, which name other ports; its name where unreadable."""
        own = self._hostvars.raw_get(name)
        found = {key: self._value(key, own, []) for key in GATEWAY}
        address = str(found["gateway_address"] or found["ansible_host"] or name).partition("/")[0]
        scheme, usual = ("http", "80") if found["gateway_tls"] in ("off", False) else ("https", "443")
        port = str(found["gateway_port"] or 443)
        return f"{scheme}://{bracketed(address)}{'' if port == usual else f':{port}'}"

    def _value(self, name: str, own: Mapping[str, Any], problems: list[str]) -> Any:
        """Return a variable as plain data, or None and add a problem."""
        value = own.get(name)
        if value is None or isinstance(value, int) or (isinstance(value, str) and "{" not in value):
            return value
        # Only the names and recipes of instances are needed, and these are seldom templates.
        if name == "vllm_instances" and isinstance(value, Mapping):
            groups = own.get("groups") or {}
            return {
                str(key): {"recipe": _recipe(entry), "nodes": _nodes(entry, groups), "release": _release(entry)}
                for key, entry in value.items()
            }
        text = self._plain(value)
        try:
            return json.loads(self._json(name, value, self._templar(own)) if text is None else text)
        except FleetError as exc:
            problems.append(str(exc))
            return None

    def _templar(self, own: Mapping[str, Any]) -> Templar:
        # As in the role: its defaults are below the host's variables.
        variables = {**defaults(), **own, **constants(), "hostvars": self._hostvars}
        return Templar(loader=self._loader, variables=variables)


def read_fleet(names: Iterable[str], reader: FleetReader) -> tuple[list[Host], dict[str, Model]]:
    """Return the hosts and the models of all their catalogues. Raises AcceleratorError for an invalid catalogue."""
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
    """Return the texts of the page's parts: html, css and js."""
    return read_parts(PARTS)


def open_page(path: str) -> PageFile:
    """Return the file of the page. Raises PageError where it cannot be written."""
    return PageFile("fleet_page", path, MODE)


def _recipe(entry: Any) -> str:
    recipe = entry.get("recipe") if isinstance(entry, Mapping) else None
    return str(recipe) if isinstance(recipe, str) and "{{" not in recipe and "{%" not in recipe else ""


def _release(entry: Any) -> Any:
    return entry.get("release") if isinstance(entry, Mapping) else None


def _nodes(entry: Any, groups: Mapping[str, Any]) -> list[str]:
    """Return the hosts that serve an instance together; empty for one host, and where they are a template."""
    found: list[str] = []
    for key in HOST_KEYS if isinstance(entry, Mapping) else ():
        named = groups.get(entry[key]) if isinstance(entry.get(key), str) else entry.get(key)
        found += [str(host) for host in named] if isinstance(named, (list, tuple)) else []
    return found
