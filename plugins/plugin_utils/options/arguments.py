# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert vLLM's arguments between three forms: the words of a command, a mapping, and the ``--config`` file.

Internally, arguments map the release's own flag names to values, False for a switch that is off. A later setting
moves its flag to the end, so the order is that of the words that take effect.
"""

import json
import re
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .table import OptionTable
from .values import decoded

# The characters that systemd and a shell take literally without quotes in an assignment.
_PLAIN = re.compile(r"[\w./:,=@%+{}\[\]-]*")
# The name of a variable that systemd, a shell and an engine take.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_FLAG = re.compile(r"--?[A-Za-z]")
_WHOLE_FLAG = re.compile(r"--[A-Za-z][\w.-]*\Z")


class Setting(NamedTuple):
    """One flag with its value; ``keys`` is the path of the one key to set in a JSON flag. None removes the flag."""

    name: str
    keys: tuple[str, ...]
    value: Any


def read_words(words: Sequence[Any], table: OptionTable) -> list[Setting]:
    """Return the settings in the words of a command, in their order.

    Accepts what vLLM's parser accepts: aliases, underscores, ``--a=1``, dotted keys of JSON flags, several values. A
    flag that the release does not have keeps its name. Raises ValueError for a word that belongs to no flag.
    """
    return [_setting(flag, values, table) for flag, values in _grouped([str(word) for word in words])]


def _grouped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    flag, values = "", []
    for word in _split(words):
        if not _FLAG.match(word):
            if not flag:
                raise ValueError(f"{word!r} does not follow a flag; expected words like '--max-model-len', '4096'")
            values.append(word)
            continue
        if flag:
            yield flag, values
        flag, found, value = word.partition("=")
        values = [value] if found else []
    if flag:
        yield flag, values


def _split(words: Sequence[str]) -> Iterator[str]:
    """Yield the words; a word that holds a flag and its value, as in some of upstream's recipes, becomes two."""
    for word in words:
        flag, space, value = word.partition(" ")
        yield from (flag, value.strip()) if space and _WHOLE_FLAG.match(flag) else (word,)


def _setting(flag: str, words: Sequence[str], table: OptionTable) -> Setting:
    known = table.canonical(flag)
    short = re.match(r"-O(\w+)\Z", flag)
    if short and known:
        words = [short.group(1)]
    if known is None:
        return Setting(_plain_name(flag), (), _guessed(words))
    if known.keys:
        return Setting(known.name, known.keys, decoded(words[-1]) if words else True)
    if not words:
        return Setting(known.name, (), not known.off)
    return Setting(known.name, (), _typed(table.flags[known.name]["kind"], words))


def read_mapping(args: Mapping[str, Any], table: OptionTable) -> list[Setting]:
    """Return the settings of a mapping in the form of a ``--config`` file; ``a.b`` sets one key of a JSON flag."""
    settings = []
    for name, value in args.items():
        known = table.canonical("--" + name)
        if known is None:
            settings.append(Setting(_plain_name(name), (), value))
            continue
        if known.off and isinstance(value, bool):
            value = not value
        elif table.flags[known.name]["kind"] == "json":
            value = decoded(value)
        settings.append(Setting(known.name, known.keys, value))
    return settings


def _plain_name(flag: str) -> str:
    head, dot, keys = flag.lstrip("-").partition(".")
    return head.replace("_", "-") + dot + keys


def _typed(kind: str, words: Sequence[str]) -> Any:
    if kind == "json":
        return decoded(words[-1])
    if kind == "number" and len(words) == 1:
        return _number(words[0])
    if kind in ("integer", "switch"):
        return _guessed(words)
    return words[0] if len(words) == 1 else list(words)


def _number(word: str) -> Any:
    """Return the number in a word; any other word is returned unchanged, and the later check refuses it."""
    try:
        number = float(word)
    except ValueError:
        return word
    return int(number) if number.is_integer() and "." not in word else number


def _guessed(words: Sequence[str]) -> Any:
    if not words:
        return True
    values = [_scalar(word) for word in words]
    return values[0] if len(values) == 1 else values


def _scalar(word: str) -> Any:
    """Return a number where Python would write it exactly like this, else the word itself."""
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if str(number) == word:
            return number
    return word


def lay(args: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Return args with one setting added at the end; a setting with the value None removes its flag."""
    result = dict(args)
    before = result.pop(setting.name, None)
    if not setting.keys:
        if setting.value is not None:
            result[setting.name] = setting.value
        return result
    changed = _with_key(before if isinstance(before, Mapping) else {}, setting.keys, setting.value)
    if changed:
        result[setting.name] = changed
    return result


def _with_key(mapping: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    # Without recursion: a recipe can name any number of keys.
    levels = [dict(mapping)]
    for key in keys[:-1]:
        inner = levels[-1].get(key)
        levels.append(dict(inner) if isinstance(inner, Mapping) else {})
    for level, key in zip(reversed(levels), reversed(keys)):
        level.pop(key, None)
        if value is not None:
            level[key] = value
        value = level or None
    return levels[0]


def to_mapping(args: Mapping[str, Any], table: OptionTable) -> dict[str, Any]:
    """Return args in the form of a ``--config`` file: a switch that is off becomes the flag that turns it off."""
    return dict(_spelled(name, value, table) for name, value in args.items())


def _spelled(name: str, value: Any, table: OptionTable) -> tuple[str, Any]:
    if value is not False:
        return name, value
    entry = table.flags.get(name, {})
    if not entry.get("negatable"):
        if entry.get("inverse"):
            return entry["inverse"][0].lstrip("-"), True
        if entry:
            # The flag has no off form; the check of options reports it.
            return name, value
    # Every release silently ignores `x: false` in the file.
    return f"no-{name}", True


def to_config(args: Mapping[str, Any], table: OptionTable) -> dict[str, Any]:
    """Return args in the form that vLLM's ``--config`` file accepts in every release: nested values as JSON text."""
    return {name: _file_value(name, value, table) for name, value in to_mapping(args, table).items()}


def _file_value(name: str, value: Any, table: OptionTable) -> Any:
    if isinstance(value, Mapping) or (isinstance(value, list) and _kind(name, table) == "json"):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return [_word(item) for item in value]
    return value


def to_argv(args: Mapping[str, Any], table: OptionTable) -> list[str]:
    """Return ``vllm serve MODEL --flag value ...`` for args that hold ``model``."""
    words = ["vllm", "serve", str(args["model"])]
    for name, value in to_mapping(args, table).items():
        if name == "model":
            continue
        words.append(f"--{name}")
        if value is True:
            continue
        if isinstance(value, (list, tuple)) and _kind(name, table) != "json":
            words.extend(_word(item) for item in value)
        else:
            words.append(_word(value))
    return words


def _kind(name: str, table: OptionTable) -> str:
    return str(table.flags.get(name, {}).get("kind", ""))


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (Mapping, list, tuple)) else str(value)


def name_problem(name: str) -> str:
    """Return what is wrong with the name of a variable, empty where nothing is; of ``NAME=value`` never the value."""
    begin = _NAME.match(name)
    rest = name[begin.end() :] if begin else name
    if begin and not rest:
        return ""
    found = (
        f"a name with {rest[0]!a} after {begin.group()[:80]!r}" if begin else f"a name that begins with {rest[:1]!a}"
    )
    return f"found {found if name else 'an empty name'}, expected letters, digits and '_', and no digit first"


def line_problem(text: str) -> str:
    """Return what a text has that no line of a file of variables can hold, empty for nothing; never the text."""
    if "\n" in text or "\r" in text:
        return "a text of several lines"
    return "a text with a control character" if _CONTROL.search(text) else ""


def env_line(name: str, value: str, literal: bool = False) -> str:
    """Return ``NAME=value`` for a file that systemd reads, or a shell, quoted only where needed.

    docker and podman take the value of a ``--env-file`` as it is, so a ``literal`` one has no quotes.

    Raises ValueError for an invalid variable name or a value of several lines; the error never holds the value.
    """
    if name_problem(name):
        raise ValueError(f"environment variable: {name_problem(name)}")
    if line_problem(value):
        raise ValueError(f"environment variable {name}: found {line_problem(value)}, which systemd cannot take")
    if literal or _PLAIN.fullmatch(value):
        return f"{name}={value}"
    escaped = re.sub(r'([\\"$`])', r"\\\1", value)
    return f'{name}="{escaped}"'
