# SPDX-License-Identifier: GPL-3.0-or-later
"""No regular expression takes long for a text of somebody else: each gets texts made from its own parts.

Python's `re` holds the interpreter, so one that takes the square of a text stops all threads of its process. For each
part that repeats without end, texts have very many of it and then what does not fit.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import time
from pathlib import Path

import pytest

try:
    from re import _parser as sre
except ImportError:
    import sre_parse as sre

TOP = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.baremetal.inference.plugins"
METHODS = ("fullmatch", "match", "search", "findall", "finditer", "split", "sub")
# Characters of a part that repeats; the square of them takes seconds, and what grows with them takes a millisecond.
LONG, SECONDS = 20_000, 0.5
FILLERS = (*b" \ta0A./_-:,=", 0x22)
TAILS = ("", "\0", "\n\0", " \0", "!")
ASCII = frozenset(range(128))


class SlowError(Exception):
    """A pattern works longer than it may."""


def members(op, value):
    """Return the codes below 128 that an item of one character matches; None for other items."""
    if op is sre.LITERAL:
        return {value}
    if op is sre.NOT_LITERAL:
        return ASCII - {value}
    if op is sre.ANY:
        return ASCII - {10}
    if op is not sre.IN:
        return None
    found = set()
    for kind, each in value:
        if kind is sre.LITERAL:
            found.add(each)
        elif kind is sre.RANGE:
            found |= set(range(each[0], min(each[1], 127) + 1))
        elif kind is sre.CATEGORY:
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(each).rsplit("_", maxsplit=1)[-1]]
            letter = letter.upper() if "NOT" in str(each) else letter
            found |= {code for code in ASCII if re.match(rf"\{letter}", chr(code))}
    return ASCII - found if value[0][0] is sre.NEGATE else found


class Texts:
    """Texts that match a pattern: its ``target``th repeated part is long, of ``filler`` where that fits."""

    def __init__(self, filler, target):
        self.filler, self.target = filler, target
        self.repeats, self.cut = 0, None

    def write(self, items, before=""):
        for op, value in items:
            codes = members(op, value)
            if codes is not None:
                choices = sorted(codes, key=lambda code: (not chr(code).isalnum(), code))
                before += chr(self.filler if self.filler in codes else choices[0]) if choices else ""
            elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
                before = self._repeat(value, before)
            elif op is sre.SUBPATTERN:
                before = self.write(value[-1], before)
            elif op is sre.BRANCH:
                before = max((self.write(branch, before) for branch in value[1]), key=len)
        return before

    def _repeat(self, value, before):
        least, most, items = value
        number, self.repeats = self.repeats, self.repeats + 1
        once = self.write(items, "")
        if number != self.target or most <= LONG // 100:
            return before + once * least
        before += once * (LONG // max(1, len(once)))
        self.cut = before
        return before


def texts(pattern):
    """Return the texts for a pattern."""
    items = sre.parse(pattern.pattern, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else 0)
    found = {}
    for filler in FILLERS:
        target = repeats = 0
        while target <= repeats:
            made = Texts(filler, target)
            whole = made.write(items)
            repeats, target = made.repeats, target + 1
            if made.cut is not None:
                found.update((text + tail, None) for text in (whole, made.cut) for tail in TAILS)
    return list(found)


def patterns():
    """Return each pattern of the collection with its place and the methods by which it is used."""
    found = {}
    for path in sorted(TOP.glob("plugins/*_utils/**/*.py")):
        place, source = path.relative_to(TOP / "plugins"), path.read_text(encoding="utf-8")
        module = importlib.import_module(f"{PACKAGE}.{'.'.join(place.with_suffix('').parts)}")
        for name, pattern in vars(module).items():
            if isinstance(pattern, re.Pattern):
                used = [method for method in METHODS if f"{name}.{method}" in source]
                found[(pattern.pattern, *used)] = (f"{place} {name}", pattern, used)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first, name = node.args[0], node.func.attr
                if name in METHODS and ast.unparse(node.func.value) == "re" and isinstance(first, ast.Constant):
                    found[first.value, name] = (f"{place}:{node.lineno}", re.compile(first.value), [name])
    return [pytest.param(pattern, used, id=place) for place, pattern, used in found.values() if used]


def interrupt(_signal, _frame):
    raise SlowError


@pytest.fixture(autouse=True)
def _clock():
    before = signal.signal(signal.SIGVTALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def slow(pattern, method, text):
    """Return whether a pattern works longer than it may, by this process's own time."""
    text = text.encode("latin-1") if isinstance(pattern.pattern, bytes) else text
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        # What finds all matches works as findall does.
        getattr(pattern, method if method in METHODS[:3] else "findall")(text)
    except SlowError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "used"), patterns())
def test_a_long_text_of_somebody_else_takes_no_time(pattern, used):
    for text in texts(pattern):
        for method in used:
            assert not slow(pattern, method, text), f"{method}: {text[:20]!r} ... {text[-20:]!r}"


@pytest.mark.parametrize("pattern", [r"[0-9]+\.?[0-9]*", r"( *)x:[ ]*(y)?[ ]*$", r"\S*?([^/\s]+\.whl)", r"(a+)+b"])
def test_what_grows_with_the_square_is_found(pattern):
    compiled = re.compile(pattern)
    assert any(slow(compiled, method, text) for text in texts(compiled) for method in METHODS)


def test_its_clock_is_the_time_of_this_process():
    began = time.process_time()
    assert slow(re.compile("(a+)+b"), "match", "a" * 40)
    assert time.process_time() - began < SECONDS * 3
