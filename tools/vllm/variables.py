# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the variables of a release, and what each one takes, from its ``vllm/envs.py``.

The file alone runs, with a stand-in for each module that is not Python's own: vLLM reads a variable with a function,
and what that function makes of some texts, or refuses, tells what it takes.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
import sys
import tempfile
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tools.vllm.stand_ins import stand_in

NAME = "vllm.envs"
Getters = Mapping[str, Callable[[], Any]]
# What a function that takes a whole number, any number or JSON reads; the others refuse it.
TEXTS = {"integer": "1", "number": "1.5", "json": "{}"}
# What is on for a function that compares with words, and takes any other text for off.
ON = {"boolean": {"1", "true", "TRUE"}, "one": {"1"}}
WORDS = ("0", "1", "TRUE", "false", "no", "off", "on", "true", "yes")
# Texts that a function only hands on: vLLM gives them to Python's logging.
LOGGING = {"_LOGGING_LEVEL": "level", "_LOG_LEVEL": "level", "_LOGGING_STREAM": "stream"}
WIDTH = 120


def getters_of(path: Path) -> Getters | None:
    """Return the functions of an ``envs.py`` by variable; None where the file has no ``environment_variables``."""
    module = types.ModuleType(NAME)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _imported}
    # Some functions look for their own module.
    sys.modules[NAME] = module
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)  # noqa: S102
    found: Getters | None = getattr(module, "environment_variables", None)
    return found


def _imported(name: str, *args: Any, **kwargs: Any) -> Any:
    own = name.partition(".")[0] in sys.stdlib_module_names
    return builtins.__import__(name, *args, **kwargs) if own else stand_in(name)


def kinds_of(getters: Getters) -> dict[str, dict[str, Any]]:
    """Return what each variable takes: its kind, and the values of a choice."""
    with _quiet(), tempfile.NamedTemporaryFile("w") as file:
        file.write("{}")
        file.flush()
        return {name: _entry(name, getter, file.name) for name, getter in sorted(getters.items())}


def _entry(name: str, getter: Callable[[], Any], file: str) -> dict[str, Any]:
    choices = _choices(getter)
    if callable(choices):
        # vLLM asks another module for them.
        return {"kind": "text"}
    if choices:
        first, last = choices[0], choices[-1]
        marks = {"any_case": first.swapcase(), "many": f"{first},{last}"}
        return {
            "kind": "choice",
            "values": choices,
            **{mark: True for mark in marks if value_of(name, getter, marks[mark])},
        }
    if value_of(name, getter, "x"):
        return _text(name, getter)
    taken = [kind for kind, text in TEXTS.items() if value_of(name, getter, text)]
    if taken == ["integer"]:
        return {"kind": "switch" if isinstance(value_of(name, getter, "1")[0], bool) else "integer"}
    if "json" in taken:
        # Some take the path of a file with JSON as well.
        return {"kind": "text" if value_of(name, getter, file) else "json"}
    return {"kind": "number" if "number" in taken else "text"}


def _text(name: str, getter: Callable[[], Any]) -> dict[str, Any]:
    """Return the entry of a variable whose function takes any text, though what vLLM makes of most is not meant."""
    kind = next((kind for ending, kind in LOGGING.items() if name.endswith(ending)), None)
    if kind:
        return {"kind": kind}
    other = value_of(name, getter, "x")
    found = {word for word in WORDS if value_of(name, getter, word) != other}
    if other not in ((False,), (None,)) or not found:
        return {"kind": "text"}
    kind = next((kind for kind, words in ON.items() if found == words and other == (False,)), None)
    if kind:
        return {"kind": kind}
    values = {word.lower() for word in found} | ({"0", "false"} if other == (False,) else set())
    return {"kind": "choice", "values": sorted(values), **({"any_case": True} if "TRUE" in found else {})}


def _choices(getter: Callable[[], Any]) -> Any:
    """Return the values of vLLM's ``env_with_choices`` and its like, as they stand in the function's closure."""
    code, cells = getattr(getter, "__code__", None), getattr(getter, "__closure__", None) or ()
    closure = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells)} if code else {}
    return closure.get("choices")


def value_of(name: str, getter: Callable[[], Any], text: str) -> tuple[Any, ...]:
    """Return what a function makes of a text, empty where it refuses it."""
    with mock.patch.dict(os.environ, {name: text}, clear=True):
        try:
            return (getter(),)
        except ValueError:
            return ()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what functions say about deprecated variables."""
    logging.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def lines_of(entries: Mapping[str, Mapping[str, Any]], flow: Callable[[Any], str]) -> Iterator[str]:
    """Yield the lines of a table: the names of each kind, and each choice with its values."""
    for kind in sorted({entry["kind"] for entry in entries.values()}):
        names = [name for name, entry in sorted(entries.items()) if entry["kind"] == kind]
        if kind == "choice":
            entry_of = {name: {key: value for key, value in entries[name].items() if key != "kind"} for name in names}
            yield f"  {kind}:"
            yield from (f"    {name}: {flow(entry)}" for name, entry in entry_of.items())
        else:
            yield from list_lines(kind, names)


def list_lines(key: str, names: Sequence[str]) -> list[str]:
    """Return a list below ``key``: on one line where it fits, else with the brackets on lines of their own."""
    text = ", ".join(names)
    line = f"  {key}: [{text}]"
    if len(line) <= WIDTH:
        return [line]
    return [f"  {key}: [", *textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    "), "  ]"]
