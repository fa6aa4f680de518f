# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what a recipe may not set alone: what loads code, opens the server or sends data away, and any unreviewed name.

catalog/options/permissions.yml lists the former, catalog/options/recipe_settings.yml what recipes may set.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, NamedTuple, Pattern, Sequence

from .table import OptionTableError
from .values import decoded

# The lists of names of an entry: variables, flags, and keys of a flag's JSON.
KINDS = ("variables", "arguments", "keys")
_ENTRY = (*KINDS, "because", "feature", "root", "values")
# Values of a setting that a recipe may make: they name no path, address or repository, and are no flag.
_PLAIN = r"(?!-\D)(?!.*\.\.)[^/\\~\x00-\x1f\x7f]*"
# More levels than any setting of vLLM has.
DEEPEST = 20
_LISTED = "(catalog/options/recipe_settings.yml lists what they may)"


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
    """All restricted settings; with ``allowed`` also every setting that is not among those."""

    variables: Sequence[Restriction] = ()
    arguments: Sequence[Restriction] = ()
    keys: Sequence[Restriction] = ()
    allowed: Restrictions | None = None

    @classmethod
    def from_data(cls, data: Any, where: str = "permissions", allowed: Restrictions | None = None) -> Restrictions:
        """Return the restrictions of plain data. Raises OptionTableError, which begins with ``where``."""
        return cls(*_read_entries(data, where, ".*"), allowed)

    @classmethod
    def allowing(cls, data: Any, where: str) -> Restrictions:
        """Return what plain data allows, for ``allowed`` of others. Raises OptionTableError."""
        return cls(*_read_entries(data, where, _PLAIN))

    def of_env(self, env: Mapping[str, Any]) -> Iterator[Restricted]:
        """Yield the restricted ones of variables."""
        for name, value in env.items():
            yield from self._judged("variables", (name,), value)

    def of_args(self, args: Mapping[str, Any]) -> Iterator[Restricted]:
        """Yield the restricted ones of arguments, and of the keys of their JSON."""
        for name, value in args.items():
            if is_deep(value):
                yield Restricted((name,), value, f"has more than {DEEPEST} levels")
            else:
                yield from self._judged("arguments", (name,), value)

    def _judged(self, kind: str, path: tuple[str, ...], value: Any) -> Iterator[Restricted]:
        found = list(_restricted(getattr(self, kind), path, value))
        if not found and self.allowed is not None and value is not None:
            found = list(self.allowed.without(kind, path, value))
        yield from found or (self._of_json(path, value) if kind != "variables" else ())

    def without(self, kind: str, path: tuple[str, ...], value: Any) -> Iterator[Restricted]:
        """Yield the setting at the end of a path where its name is not here, or not with such a value."""
        name = path[-1]
        entry = self._exact.get((kind, name)) or next(
            (each for each in getattr(self, kind) if each.name.fullmatch(name)), None
        )
        if entry is None:
            yield Restricted(path, value, f"recipes may not set {_LISTED}")
        elif not _is_within(entry.values, decoded(value) if kind != "variables" else str(value)):
            yield Restricted(path, value, f"recipes may not set to such a value {_LISTED}")

    @functools.cached_property
    def _exact(self) -> dict[tuple[str, str], Restriction]:
        return {(kind, each.name.pattern): each for kind in KINDS for each in getattr(self, kind)}

    def _of_json(self, path: tuple[str, ...], value: Any) -> Iterator[Restricted]:
        value = decoded(value)
        for item in value if isinstance(value, list) else ():
            for found in self._of_json(path, item):
                # An instance cannot set one item of a list, so it repeats the list.
                yield found._replace(path=path, value=value)
                return
        for key, inner in value.items() if isinstance(value, Mapping) else ():
            yield from self._judged("keys", (*path, str(key)), inner)


def is_deep(value: Any) -> bool:
    """Return whether a value has more levels of lists and mappings than a setting may have, with JSON in its texts."""
    level = [value]
    for _each in range(DEEPEST + 1):
        found = [decoded(each) for each in level]
        lists = [each.values() if isinstance(each, Mapping) else each for each in found if _has_items(each)]
        level = [inner for each in lists for inner in each]
        if not level:
            return False
    return True


def _has_items(value: Any) -> bool:
    return isinstance(value, (list, tuple, Mapping))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a value; those in lists one by one."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)


def _read_entries(data: Any, where: str, values: str) -> tuple[list[Restriction], list[Restriction], list[Restriction]]:
    """Return the entries of each kind, in the order of KINDS; ``values`` is the expression of those that have none."""
    if not isinstance(data, list):
        raise OptionTableError(f"{where}: expected a list of entries")
    found: dict[str, list[Restriction]] = {kind: [] for kind in KINDS}
    for number, entry in enumerate(data):
        if not isinstance(entry, Mapping) or not entry.get("because") or not set(entry) <= set(_ENTRY):
            raise OptionTableError(f"{where}[{number}]: expected because, and one of {', '.join(KINDS)}")
        try:
            matching = re.compile(str(entry.get("values", values)), re.DOTALL)
            for kind in KINDS:
                names = [re.compile(str(name)) for name in entry.get(kind) or ()]
                more = (matching, str(entry["because"]), str(entry.get("feature") or ""), entry.get("root") is True)
                found[kind] += [Restriction(name, *more) for name in names]
        except re.error as exc:
            raise OptionTableError(f"{where}[{number}]: not a regular expression: {exc}") from exc
    return found["variables"], found["arguments"], found["keys"]


def _is_within(values: Pattern[str], value: Any) -> bool:
    """Return whether all texts of a value match; the keys of a mapping are judged by themselves."""
    if isinstance(value, (list, tuple)):
        return all(_is_within(values, item) for item in value)
    return value is None or isinstance(value, (bool, Mapping)) or values.fullmatch(str(value)) is not None


def _restricted(restrictions: Sequence[Restriction], path: tuple[str, ...], value: Any) -> Iterator[Restricted]:
    """Yield the setting at the end of a path where it is restricted; a switch that is off never is."""
    if value is None or value is False:
        return
    texts = list(_texts(value))
    # A key such as cpp.cxx or lmcache.remote_url is judged by its parts too.
    names = (path[-1], *path[-1].split("."))
    for each in restrictions:
        if any(map(each.name.fullmatch, names)) and any(each.values.fullmatch(text) for text in texts):
            yield Restricted(path, value, *each[2:])
            return
