# SPDX-License-Identifier: GPL-3.0-or-later
"""What a flag, a key of a JSON flag or a variable that a release no longer has becomes in that release."""

import json
import re
from typing import Any, Callable, Iterator, Mapping, Sequence

from ..common.versions import sort_key
from ..options.arguments import Setting, lay, read_words, to_mapping
from ..options.table import Foreign, OptionTable, Replaced

_LIMITS = re.compile(r"[a-z]+=\d{1,9}(?:,[a-z]+=\d{1,9})*")


def settings_instead(name: str, values: Sequence[str], table: OptionTable, replaced: Replaced) -> list[Setting]:
    """Return the settings that mean the same, empty where none does in this release, or where a person has to choose.

    ``becomes`` of an entry of catalog/options/replaced.yml has words by patterns of the value, the first one counts.
    """
    entry: Mapping[str, Any] = replaced.get(name) or {}
    if sort_key(table.version) < sort_key(str(entry.get("since") or "0")):
        return []
    value = " ".join(values)
    for pattern, words in (entry.get("becomes") or {}).items():
        if re.fullmatch(str(pattern), value, re.IGNORECASE):
            given = [part for word in str(words).split() for part in (values if word == "{value}" else [word])]
            return read_words(given, table)
    return []


def without_replaced(
    setting: Setting, table: OptionTable, replaced: Replaced, accepts: Callable[[Sequence[Setting]], bool]
) -> tuple[Setting, list[tuple[str, Setting]]]:
    """Return a setting of a JSON flag without the keys that have a replacement, and these with their paths."""
    found: list[tuple[str, Setting]] = []
    value = setting.value
    for path, leaf in leaves((setting.name, *setting.keys), value):
        instead = settings_instead(".".join(path), [_written(leaf)], table, replaced)
        if len(path) > 1 and accepts(instead):
            found += [(".".join(path), each) for each in instead]
            value = _dropped(value, path[1 + len(setting.keys) :])
    return setting._replace(value=value), found


def newer_form(name: str, value: Any) -> list[Setting]:
    """Return the settings for a value in a form that only older releases read, empty for any other value."""
    if name == "compilation-config" and re.fullmatch("[0-3]", str(value)):
        return [Setting(name, ("mode",), int(value))]
    if name == "limit-mm-per-prompt" and _LIMITS.fullmatch(str(value)):
        limits = (limit.partition("=") for limit in str(value).split(","))
        return [Setting(name, (), {kind: int(most) for kind, _equals, most in limits})]
    return []


def is_accepted(
    settings: Sequence[Setting], table: OptionTable, others: Sequence[OptionTable], foreign: Foreign
) -> bool:
    """Return whether the release accepts settings as they are."""
    alone: dict[str, Any] = {}
    for setting in settings:
        alone = lay(alone, setting)
    return bool(settings) and not table.check_args(to_mapping(alone, table), others, {}, foreign.values)


def describe(settings: Sequence[Setting]) -> str:
    """Return settings as a user writes them."""
    return " ".join(f"--{'.'.join((each.name, *each.keys))} {_written(each.value)}" for each in settings)


def leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of a JSON flag with their paths."""
    if isinstance(value, Mapping) and len(path) < 8:
        for key, inner in value.items():
            yield from leaves((*path, str(key)), inner)
    else:
        yield path, value


def _dropped(value: Any, keys: Sequence[str]) -> Any:
    if not keys:
        return None
    inner = {key: _dropped(each, keys[1:]) if key == keys[0] else each for key, each in value.items()}
    return {key: each for key, each in inner.items() if each is not None} or None


def _written(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return json.dumps(value) if isinstance(value, (bool, Mapping)) else str(value)
