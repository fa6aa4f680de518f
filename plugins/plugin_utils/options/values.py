# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a value against the entry of a flag, or of a key of a JSON flag, in an option table."""

import json
import math
import operator
import re
from typing import Any, Callable, Collection, Iterator, Mapping

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.spelling import misspelt, nearest

INTEGER = re.compile(r"-?[0-9]+\Z")
NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
# 1k is 1000, 1K is 1024; the binary ones take no decimals.
SUFFIXED = re.compile(r"([0-9]+(\.[0-9]+)?[kmgt]|[0-9]+[KMGT])\Z")
# The largest one of 64 bits has 20 digits; Python refuses to print one of 4,300, and compares no infinite one.
LONGEST_NUMBER = 40
# Of a value in a message.
_SHOWN = 200
# What pydantic takes for true and false, and for a whole number, in JSON.
BOOLEANS = ("true", "false", "0", "1", "yes", "no", "on", "off", "t", "f", "y", "n")
_WHOLE = re.compile(r"[-+]?[0-9]+(_[0-9]+)*(\.0*)?\Z")
_DIGITS = re.compile(r"[0-9]+\Z")

# The limits of a number in an entry, by pydantic's names: how it compares, and in words.
LIMITS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (operator.ge, "of at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "of at most"),
    "lt": (operator.lt, "below"),
}

# How vLLM reads a variable of a kind.
READERS: Mapping[str, Callable[[str], Any]] = {"integer": int, "switch": int, "number": float, "json": load_json}
# The words of a variable that vLLM compares with 1 or true, of `one` with 1 alone: any other one, such as yes, is off.
_OFF = ("-1", "0", "false", "no", "off")
WORDS = {
    "boolean": ("1", "true", *_OFF),
    "level": ("critical", "debug", "error", "fatal", "info", "notset", "warn", "warning"),
    "one": ("1", *_OFF),
    "stream": ("ext://sys.stderr", "ext://sys.stdout"),
}

# The flags of JSON that hold a list; all others hold a mapping.
JSON_LISTS = ("allowed-headers", "allowed-methods", "allowed-origins")

# The entry of one flag or key in a table: its kind, and what the kind needs.
Entry = Mapping[str, Any]


def decoded(value: Any) -> Any:
    """Return the value of a text as vLLM reads it in a dotted form: JSON where it is JSON, else the text."""
    if not isinstance(value, str):
        return value
    if value in ("True", "False"):
        return value == "True"
    try:
        return load_json(value)
    except ValueError:
        return value


def fits(entry: Entry, value: Any) -> bool:
    """Return whether a flag of this entry can have the value."""
    kind = entry["kind"]
    if kind == "list":
        of = {**entry, "kind": entry.get("of", "text")}
        return _all_fit(of, value) if isinstance(value, (list, tuple)) else _item_fits(of, value)
    if kind == "switch":
        return isinstance(value, bool)
    if entry.get("repeat") and isinstance(value, (list, tuple)):
        return _all_fit({"kind": kind}, value)
    if isinstance(value, bool):
        return bool(entry.get("bare")) or any(value is each for each in entry.get("values", ()))
    return not isinstance(value, (Mapping, list, tuple)) and _scalar_fits(entry, str(value))


def _all_fit(entry: Entry, values: Collection[Any]) -> bool:
    """Return whether each item fits; vLLM refuses a flag of several values without any."""
    return bool(values) and all(item is not None and _item_fits(entry, item) for item in values)


def _item_fits(entry: Entry, value: Any) -> bool:
    """Return whether an item fits; a mapping among texts is one word of JSON on the command line (--lora-modules)."""
    return fits(entry, value) or (entry["kind"] == "text" and isinstance(value, Mapping))


def is_port(name: str, entry: Entry) -> bool:
    """Return whether a variable is the number of a port, with which vLLM listens or connects."""
    return entry["kind"] == "integer" and name.endswith("_PORT")


def reads(entry: Entry, text: str) -> bool:
    """Return whether vLLM's code, which is Python's, can read the text of a variable."""
    kind = entry["kind"]
    if kind == "choice":
        fold = _fold(entry)
        words = [word.strip() for word in text.split(",") if word.strip()] if entry.get("many") else [text]
        return {fold(word) for word in words} <= {fold(value) for value in entry["values"]}
    if kind in WORDS:
        return text.lower() in WORDS[kind]
    try:
        READERS.get(kind, str)(text)
    except ValueError:
        return False
    if LIMITS.keys().isdisjoint(entry):
        return True
    number = read_number(text)
    return number is not None and math.isfinite(number) and in_range(entry, text)


def _fold(entry: Entry) -> Callable[[object], str]:
    return (lambda value: str(value).lower()) if entry.get("any_case") else str


def _is_choice(entry: Entry, value: Any) -> bool:
    """Return whether an entry has a value, also with dashes for underscores where vLLM takes those."""
    fold = _fold(entry)
    names = {fold(value), fold(value).replace("-", "_")} if entry.get("dashes") else {fold(value)}
    return bool(names & {*map(fold, entry["values"])})


def _scalar_fits(entry: Entry, text: str) -> bool:
    kind = entry["kind"]
    if kind == "choice":
        return _is_choice(entry, text) or (text == "None" and bool(entry.get("none")))
    if kind in ("integer", "number") and len(text) > LONGEST_NUMBER:
        return False
    if kind == "integer":
        number = INTEGER.match(text) or (entry.get("suffix") and SUFFIXED.match(text))
        return text in entry.get("words", ()) or bool(number and in_range(entry, text))
    # vLLM starts as without the flag, or refuses the empty name.
    return bool(NUMBER.match(text) and in_range(entry, text)) if kind == "number" else text != ""


def in_range(entry: Entry, text: str) -> bool:
    """Return whether a number is within the limits of an entry; 1 is a block size beside the multiples of a step."""
    number = read_number(text) or 0
    if "step" in entry and number != 1 and number % entry["step"]:
        return False
    return all(compare(number, entry[name]) for name, (compare, _words) in LIMITS.items() if name in entry)


def read_number(text: str) -> float | None:
    """Return a number as vLLM reads it, with a suffix (1k is 1000, 1K is 1024); None for any other text."""
    if len(text) > LONGEST_NUMBER:
        return None
    if NUMBER.match(text):
        return float(text)
    if not SUFFIXED.match(text):
        return None
    power = "kmgt".index(text[-1].lower()) + 1
    return float(text[:-1]) * float((1024 if text[-1].isupper() else 1000) ** power)


def is_unlisted(entry: Entry, value: Any, added: Collection[str] = ()) -> bool:
    """Return whether vLLM refuses a value because neither the release nor a plugin (``added``) has its name."""
    if not entry.get("closed") or value in (None, "") or isinstance(value, bool):
        return False
    fold: Callable[[str], str] = str if entry.get("exact") else str.lower
    names = (*entry["known"], *entry.get("words", ()), *added)
    return fold(str(value)) not in {fold(str(name)) for name in names}


def is_added(entry: Entry, value: Any, added: Collection[str]) -> bool:
    """Return whether a plugin adds this value to the choices of the release."""
    return entry["kind"] == "choice" and str(value) in added


def key_problems(
    entry: Any, value: Mapping[str, Any], path: tuple[str, ...], added: Collection[str] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the problem of each key that vLLM would refuse; ``added`` are values that plugins register."""
    keys = entry.get("keys") if isinstance(entry, Mapping) else None
    if keys is None:
        return
    for key, item in value.items():
        here = (*path, str(key))
        if key not in keys:
            yield here, "no such key in {version}{history}; " + _braced(nearest(str(key), keys))
            continue
        known = keys[key] if isinstance(keys[key], Mapping) else {"kind": keys[key]}
        if isinstance(item, Mapping):
            yield from key_problems(known, item, here, added)
        elif is_unlisted(known, item, added):
            yield here, "no such value in {version}: " + _braced(f"{item!r}; {nearest(str(item), known['known'])}")
        if not _key_fits(known, item) and not is_added(known, item, added):
            found = described(item) + (_unquoted(known, item) or near_value(known, item))
            yield here, _braced(f"expected {expected(known)}, found {found}")


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _key_fits(entry: Entry, value: Any) -> bool:
    """Return whether a JSON value can be what the key holds.

    As lenient as pydantic, with which vLLM reads it: a text may hold a number or a boolean, a number is no text. vLLM's
    validators accept short forms instead of a config (activation: mxfp8).
    """
    kind, is_text = entry["kind"], isinstance(value, str)
    if value is None or kind == "any" or (is_text and (kind == "text" or "keys" in entry or entry.get("text"))):
        return True
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) and kind != "boolean":
        value = int(value)
    if kind == "list":
        of = {**entry, "kind": entry.get("of", "any")}
        return isinstance(value, (list, tuple)) and all(of["kind"] == "any" or _item(of, item) for item in value)
    if kind == "json" or isinstance(value, (Mapping, list, tuple)):
        return kind == "json" and isinstance(value, Mapping)
    if kind == "boolean":
        return str(value).lower() in BOOLEANS
    if kind == "choice":
        return _is_choice(entry, value) and not (is_text and _DIGITS.match(value))
    text = str(value).strip()
    if kind == "text" or len(text) > LONGEST_NUMBER or (kind == "integer" and not _WHOLE.match(text)):
        return False
    text = text.lstrip("+").replace("_", "")
    return _scalar_fits(entry, text.partition(".")[0] if kind == "integer" else text)


def _unquoted(entry: Entry, value: Any) -> str:
    """Return what to do with the text of a number where vLLM takes the number alone, empty for anything else."""
    number = isinstance(value, str) and _DIGITS.match(value) and value in map(str, entry.get("values", ()))
    return "; write it as a number, without quotes" if number else ""


def _item(entry: Entry, value: Any) -> bool:
    return value is not None and _key_fits(entry, value)


def expected(entry: Entry) -> str:
    kind = entry["kind"]
    if kind == "choice":
        return "one of " + ", ".join(str(value) for value in entry["values"])
    if kind == "list" and "of" in entry:
        return "a list, each " + expected({**entry, "kind": entry["of"]})
    limits = " and".join(f" {words} {entry[name]:g}" for name, (_compare, words) in LIMITS.items() if name in entry)
    limits += f" (1, or a multiple of {entry['step']})" if "step" in entry else ""
    if kind == "integer" and entry.get("suffix"):
        return " or ".join([f"an integer{limits} (16k and 16K too)", *entry.get("words", ())])
    return {
        "switch": "true or false (a switch, it takes no value)",
        "boolean": "true or false",
        "integer": f"an integer{limits}",
        "number": f"a number{limits}",
        "text": "a text",
        "list": "a list",
        "json": "a mapping (JSON)",
    }[kind]


def described(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def near_value(entry: Entry, value: Any) -> str:
    names = {str(choice).lower(): str(choice) for choice in entry.get("values", ())}
    near = names.get(misspelt(str(value).lower(), names) or "")
    return f"; nearest: {near!r}" if near and near != str(value) else ""
