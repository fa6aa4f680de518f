# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the settings that load code, open the server or send data away: catalog/options/permissions.yml lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, NamedTuple, Pattern, Sequence

from .table import OptionTableError
from .values import decoded

# The lists of names of an entry: variables, flags, and keys of a flag's JSON.
KINDS = ("variables", "arguments", "keys")
_ENTRY = (*KINDS, "because", "feature", "root", "values")


class Restriction(NamedTuple):
    """Names, the values that count, the reason, and the feature whose request allows it (empty for none).

    ``root``: programs that root runs obey it too.
    """

    name: Pattern[str]
    values: Pattern[str]
    because: str
    feature: str = ""
    root: bool = False


class Restricted(NamedTuple):
    """One setting of a recipe or an instance: ``path`` leads to its value, from the name of the variable or flag."""

    path: tuple[str, ...]
    value: Any
    because: str
    feature: str = ""
    root: bool = False

    @property
    def name(self) -> str:
        """The name as an instance writes it, with the keys of JSON behind dots."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Restrictions:
    """All restricted settings."""

    variables: Sequence[Restriction] = ()
    arguments: Sequence[Restriction] = ()
    keys: Sequence[Restriction] = ()

    @classmethod
    def from_data(cls, data: Any, where: str = "permissions") -> Restrictions:
        """Return the restrictions of plain data. Raises OptionTableError, which begins with ``where``."""
        if not isinstance(data, list):
            raise OptionTableError(f"{where}: expected a list of entries")
        found: dict[str, list[Restriction]] = {kind: [] for kind in KINDS}
        for number, entry in enumerate(data):
            if not isinstance(entry, Mapping) or not entry.get("because") or not set(entry) <= set(_ENTRY):
                raise OptionTableError(f"{where}[{number}]: expected because, and one of {', '.join(KINDS)}")
            try:
                values = re.compile(str(entry.get("values", ".*")), re.DOTALL)
                for kind in KINDS:
                    names = [re.compile(str(name)) for name in entry.get(kind) or ()]
                    more = (values, str(entry["because"]), str(entry.get("feature") or ""), entry.get("root") is True)
                    found[kind] += [Restriction(name, *more) for name in names]
            except re.error as exc:
                raise OptionTableError(f"{where}[{number}]: not a regular expression: {exc}") from exc
        return cls(**found)

    def of_env(self, env: Mapping[str, Any]) -> Iterator[Restricted]:
        """Yield the restricted ones of variables."""
        for name, value in env.items():
            yield from _restricted(self.variables, (name,), value)

    def of_args(self, args: Mapping[str, Any]) -> Iterator[Restricted]:
        """Yield the restricted ones of arguments, and of the keys of their JSON."""
        for name, value in args.items():
            found = list(_restricted(self.arguments, (name,), value))
            yield from found or self._of_json((name,), value)

    def _of_json(self, path: tuple[str, ...], value: Any) -> Iterator[Restricted]:
        value = decoded(value)
        for item in value if isinstance(value, list) else ():
            for found in self._of_json(path, item):
                # An instance cannot set one item of a list, so it repeats the list.
                yield found._replace(path=path, value=value)
                return
        for key, inner in value.items() if isinstance(value, Mapping) else ():
            inside = (*path, str(key))
            found_here = list(_restricted(self.keys, inside, inner))
            yield from found_here or self._of_json(inside, inner)


def _restricted(restrictions: Sequence[Restriction], path: tuple[str, ...], value: Any) -> Iterator[Restricted]:
    """Yield the setting at the end of a path where it is restricted; a switch that is off never is."""
    if value is None or value is False:
        return
    texts = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
    # A key such as cpp.cxx or lmcache.remote_url is judged by its parts too.
    names = (path[-1], *path[-1].split("."))
    for each in restrictions:
        if any(map(each.name.fullmatch, names)) and any(each.values.fullmatch(text) for text in texts):
            yield Restricted(path, value, *each[2:])
            return
