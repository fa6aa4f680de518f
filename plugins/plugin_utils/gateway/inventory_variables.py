# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the variables of hosts that decide which gateways send requests to them, and where."""

from typing import Any, Iterable, Iterator, Mapping

from ansible.errors import AnsibleError
from ansible.template import Templar

from .services import GatewayError

VARIABLES = (
    "cluster", "gateway_cluster", "gateway_backends", "gateway_address", "group_names", "gateway_host_address",
    "ansible_host",
)  # fmt: skip


class KeptHostVariables(Mapping[str, Any]):
    """Ansible's hostvars, which puts the variables of each host together once in place of at every question."""

    def __init__(self, hostvars: Any) -> None:
        self._hostvars = hostvars
        self._raw: dict[str, Any] = {}

    def raw_get(self, host: str) -> Any:
        """Return the variables of a host with their templates."""
        if host not in self._raw:
            self._raw[host] = self._hostvars.raw_get(host)
        return self._raw[host]

    def __getitem__(self, host: str) -> Any:
        return self._hostvars[host]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hostvars)

    def __len__(self) -> int:
        return len(self._hostvars)


class InventoryVariables:
    """Some variables of each host, by default VARIABLES.

    Values without a template are returned as they are, because templating is slow.
    """

    def __init__(self, hostvars: Any, loader: Any, names: Iterable[str] = VARIABLES) -> None:
        self._hostvars = hostvars
        self._loader = loader
        self._names = tuple(names)

    def __getitem__(self, host: str) -> Mapping[str, Any]:
        own = self._hostvars.raw_get(host)
        found = {name: own[name] for name in self._names if name in own}
        if any("{{" in text or "{%" in text for text in _texts(found.values())):
            templar = Templar(loader=self._loader, variables={**own, "hostvars": self._hostvars})
            try:
                return {name: templar.template(value) for name, value in found.items()}
            except AnsibleError as exc:
                names = [name for name in found if name != "group_names"]
                raise GatewayError(f"{host}: {', '.join(names)}: {exc}") from exc
        return found


def _texts(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        yield from _texts(value) if isinstance(value, (list, tuple)) else (str(value),)
