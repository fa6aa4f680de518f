# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the keys of ``accelerators.yml``: Ansible ignores unknown options, and reads a strange boolean as false."""

from typing import Any, Mapping

from ...module_utils.common.foreign_numbers import read_finite
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..common.booleans import BooleanError, read_boolean

# What Ansible itself casts without an error that names the option.
_EXPECTED = {"list": (list, "a list"), "dict": (dict, "a mapping"), "dictionary": (dict, "a mapping")}

_NUMBERS = ("int", "integer", "float")


class SourceOptionError(ValueError):
    """An option of the source is invalid; the message names the option."""


def check_options(config: Any, definitions: Mapping[str, Mapping[str, Any]], plugin: str) -> None:
    """Raise SourceOptionError for an unknown option and for a value of another type.

    ``definitions`` are the options as the plugin documents them. The source of another plugin is not judged.
    """
    if not isinstance(config, Mapping):
        raise SourceOptionError(f"found {_kind(config)}, expected a mapping that begins with 'plugin'")
    if config.get("plugin") != plugin:
        return
    for name in config:
        if name not in definitions:
            raise SourceOptionError(f"unknown option {str(name)!r}; {nearest(str(name), definitions)}")
    for name, value in config.items():
        _check_value(name, value, definitions[name])


def _check_value(name: str, value: Any, definition: Mapping[str, Any]) -> None:
    kind = definition.get("type") or "str"
    if value is None:
        if kind not in ("str", "path", "pathspec", "raw"):
            raise SourceOptionError(f"{name}: found nothing, expected {_describe_type(kind)}; leave the option out")
        return
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if any("\0" in text for text in texts):
        raise SourceOptionError(f"{name}: found a text with the character NUL, which is invalid in a name")
    if isinstance(value, str):
        if kind in ("bool", "boolean") and "{{" not in value:
            _check_boolean(name, value)
        if kind in _NUMBERS and "{{" not in value and not _is_number(value, kind):
            raise SourceOptionError(f"{name}: found {value[:80]!r}, expected {_describe_type(kind)}")
        return  # Ansible splits and casts texts
    if kind in ("bool", "boolean"):
        _check_boolean(name, value)
    if kind in ("str", "path", "pathspec") and isinstance(value, (Mapping, list)):
        raise SourceOptionError(f"{name}: found {_kind(value)}, expected a text")
    if kind in _EXPECTED and not isinstance(value, _EXPECTED[kind][0]):
        raise SourceOptionError(f"{name}: found {_kind(value)}, expected {_describe_type(kind)}")
    if kind in _NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise SourceOptionError(f"{name}: found {_kind(value)}, expected {_describe_type(kind)}")
    if isinstance(value, list) and definition.get("elements") == "str":
        strange = [entry for entry in value if not isinstance(entry, str)]
        if strange:
            raise SourceOptionError(f"{name}: found {_kind(strange[0])} in the list, expected texts")


def _is_number(text: str, kind: str) -> bool:
    number = read_finite(text)
    return number is not None and (kind == "float" or number.is_integer())


def _check_boolean(name: str, value: Any) -> None:
    try:
        read_boolean(name, value)
    except BooleanError as exc:
        raise SourceOptionError(str(exc)) from None


def _kind(value: Any) -> str:
    if isinstance(value, (Mapping, list)):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    return show_value(value)[:80]


def _describe_type(kind: str) -> str:
    if kind in _EXPECTED:
        return _EXPECTED[kind][1]
    return {"bool": "true or false", "boolean": "true or false", "float": "a number"}.get(kind, "a whole number")
