# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML files of others: plain values within bounds, with the lines where the entries of a mapping begin.

PyYAML's own loaders report no lines, drop a duplicate key, recurse as deep as the file nests (in C, which ends the
process), expand aliases without end, and need 0.7 s for 10,000 hosts. This module reads the events of its C parser
instead, and lets PyYAML decide the meaning of each scalar.
"""

from typing import Any, Hashable

import yaml

from ...module_utils.common.kinds import show_value

# The deepest nesting that is accepted.
DEEPEST = 20
# With aliases, a short text can expand to any amount of data.
MOST_NODES = 5_000_000
# Python itself refuses to print very large numbers, and needs long to read one of many digits.
LARGEST_NUMBER = 2**64
MOST_DIGITS = 100
# A text counts as one more value for each of this many characters.
LONG_TEXT = 64

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
# A date stays text as written: JSON, and therefore an inventory, has no dates.
_TAGS = frozenset(_PREFIX + name for name in ("null", "bool", "int", "float", "str"))
_NUMBERS = (_PREFIX + "int", _PREFIX + "float")
_MERGE = object()
_ABSENT = object()


class EventYamlError(ValueError):
    """A text that is not plain YAML; ``line`` and ``column`` count from 1."""

    def __init__(self, problem: str, line: int, column: int = 1) -> None:
        super().__init__(problem)
        self.line, self.column = line, column

    def with_place(self) -> str:
        """Return the message with line and column."""
        return f"{self} (line {self.line}, column {self.column})"


class _Frame:
    """A mapping or sequence while it is being read."""

    __slots__ = ("anchor", "key", "merged", "nodes", "place", "value")

    def __init__(self, value: Any, place: tuple[int, int], anchor: str | None, nodes: int) -> None:
        self.value, self.place, self.anchor, self.nodes = value, place, anchor, nodes
        self.key: Any = _ABSENT
        self.merged: list[Any] = []


class EventReader:
    """Read one document. ``lines`` holds the lines of the keys of mappings at the depth ``lines_depth``.

    The root mapping's keys are at depth 1, those of the mappings inside it at depth 2. For a duplicate key at that
    depth the last line is kept.
    """

    def __init__(self, lines_depth: int = 2) -> None:
        self.lines: dict[Any, int] = {}
        self._lines_depth = lines_depth
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._scalars: dict[str, Any] = {}
        self._meaning: Any = yaml.SafeLoader("")
        self._nodes = 0

    def read(self, text: str) -> Any:
        """Return the value of a document, None for an empty one. Raises EventYamlError."""
        root: Any = None
        documents = 0
        try:
            for event in yaml.parse(text, Loader=_Loader):
                if isinstance(event, yaml.ScalarEvent):
                    root = self._add(self._scalar(event), event, event.anchor, 1 + len(event.value) // LONG_TEXT)
                elif isinstance(event, yaml.CollectionStartEvent):
                    self._start(event)
                elif isinstance(event, yaml.CollectionEndEvent):
                    root = self._end(event)
                elif isinstance(event, yaml.AliasEvent):
                    self._alias(event)
                elif isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise EventYamlError("a second document begins here, expected one", *_place(event))
        except yaml.MarkedYAMLError as exc:
            raise _marked(exc, text) from exc
        except yaml.reader.ReaderError as exc:
            raise EventYamlError(_unreadable(exc), text.count("\n", 0, exc.position) + 1) from exc
        except yaml.YAMLError as exc:
            raise EventYamlError(" ".join(str(exc).split()), 1) from exc
        return root

    def _start(self, event: Any) -> None:
        if len(self._frames) >= DEEPEST:
            raise EventYamlError(f"nested deeper than {DEEPEST} levels", *_place(event))
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _PREFIX + ("map" if mapping else "seq")):
            raise EventYamlError(f"found the tag {event.tag}, expected plain values", *_place(event))
        self._frames.append(_Frame({} if mapping else [], _place(event), event.anchor, self._nodes))
        self._count(1, event)

    def _end(self, event: Any) -> Any:
        frame = self._frames.pop()
        for source in frame.merged:
            for key, value in source.items():
                frame.value.setdefault(key, value)
        return self._add(frame.value, event, frame.anchor, self._nodes - frame.nodes, place=frame.place)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise EventYamlError(f"the alias *{event.anchor} has no anchor before it", *_place(event))
        value, nodes = self._anchors[event.anchor]
        self._add(value, event, None, nodes)

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise EventYamlError(f"more than {MOST_NODES:,} values, with aliases expanded", *_place(event))

    def _add(self, value: Any, event: Any, anchor: str | None, nodes: int, place: tuple[int, int] | None = None) -> Any:
        """Add a value to the current mapping or sequence and return it; ``nodes`` is how many values it counts as."""
        if not isinstance(event, yaml.CollectionEndEvent):
            self._count(nodes, event)
        if anchor is not None:
            self._anchors[anchor] = (value, nodes)
        if not self._frames:
            return None if value is _MERGE else value
        frame = self._frames[-1]
        if value is _MERGE and (isinstance(frame.value, list) or frame.key is not _ABSENT):
            raise EventYamlError("found << as a value, expected it as a key; put it in quotes", *_place(event))
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is _ABSENT:
            self._set_key(frame, value, place or _place(event))
        else:
            self._set_value(frame, value, place or _place(event))
        return value

    def _set_key(self, frame: _Frame, key: Any, place: tuple[int, int]) -> None:
        if not isinstance(key, Hashable):
            found = f"found {show_value(key)} as a key, expected a text; put a value with braces in quotes"
            raise EventYamlError(found, *place)
        if key in frame.value and key is not _MERGE:
            first = self.lines.get(key) if len(self._frames) == self._lines_depth else None
            before = f", first in line {first}" if first else ""
            raise EventYamlError(f"the key {show_value(key)} is there twice{before}", *place)
        frame.key = key
        if len(self._frames) == self._lines_depth:
            self.lines[key] = place[0]

    def _set_value(self, frame: _Frame, value: Any, place: tuple[int, int]) -> None:
        if frame.key is _MERGE:
            sources = value if isinstance(value, list) else [value]
            if not all(isinstance(source, dict) for source in sources):
                raise EventYamlError("<<: found something else than a mapping to merge", *place)
            frame.merged += sources
        else:
            frame.value[frame.key] = value
        frame.key = _ABSENT

    def _scalar(self, event: Any) -> Any:
        """Return the value of a scalar; equal plain scalars are resolved once."""
        plain = event.implicit[0] and event.tag is None
        if plain and event.value in self._scalars:
            return self._scalars[event.value]
        tag = event.tag
        if tag in (None, "!"):
            tag = self._meaning.resolve(yaml.ScalarNode, event.value, event.implicit if tag is None else (False, True))
        if tag == _PREFIX + "merge":
            value: Any = _MERGE
        elif tag in _TAGS:
            value = self._construct(tag, event)
        elif event.tag is None:
            value = event.value
        else:
            raise EventYamlError(f"found the tag {event.tag}, expected plain values", *_place(event))
        if plain:
            self._scalars[event.value] = value
        return value

    def _construct(self, tag: str, event: Any) -> Any:
        try:
            if tag in _NUMBERS and len(event.value) > MOST_DIGITS:
                raise ValueError
            value = self._meaning.construct_object(yaml.ScalarNode(tag, event.value))
            if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
                raise ValueError
            return value
        except (ValueError, KeyError, IndexError, yaml.YAMLError) as exc:
            problem = f"found {event.value[:40]!r}, which is no {tag[len(_PREFIX) :]}"
            raise EventYamlError(problem, *_place(event)) from exc


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _place(event: Any) -> tuple[int, int]:
    return _line(event), int(event.start_mark.column) + 1


def _marked(exc: yaml.MarkedYAMLError, text: str) -> EventYamlError:
    """Return the error for a text that the parser refuses."""
    mark = exc.problem_mark or exc.context_mark
    if mark is None:
        return EventYamlError(exc.problem or "no YAML", 1)
    line = text.splitlines()[mark.line : mark.line + 1]
    tab = bool(line) and "\t" in line[0][: mark.column + 1]
    problem = "found a tab, YAML is indented with spaces" if tab else exc.problem or "no YAML"
    return EventYamlError(problem, mark.line + 1, mark.column + 1)


def _unreadable(exc: Any) -> str:
    code = exc.character if isinstance(exc.character, int) else ord(exc.character)
    return f"the character #x{code:04x} is not allowed in YAML"
