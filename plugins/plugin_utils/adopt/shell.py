# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the words of a shell's text without a shell: nothing runs, and only variables that the text sets are replaced.

What only a shell could replace is marked in the words, so that each reader can refuse it where it matters.
"""

import re
from typing import Iterable, Iterator, Mapping

from ...module_utils.common.kinds import show_value

MOST_BYTES = 64 * 1024
# Of a word whose variables are replaced: A=$A$A, repeated, would fill the memory.
_MOST_EXPANDED = 8 * 1024

# These stand for a $, a ` and a $ outside of quotes that a shell would replace, and for the < of a placeholder;
# characters of no script.
_LIVE, _TICK, _BARE, _OPEN = "\ue000", "\ue001", "\ue002", "\ue003"
_VARIABLE = re.compile(rf"[{_LIVE}{_BARE}](?:(\w+)|\{{(\w+)(?::?-([^{{}}]*))?\}})")
# What guides have in place of a value: <your model>, which no two redirections look like, and {TP}, outside of JSON
# and of Jinja.
_ANGLED = re.compile(r"(?<![\w'\"])<([A-Za-z](?:[\w ./:-]{0,60}[\w.])?>)(?![\w'\"])")
_MARKED = re.compile(f"{_OPEN}[^>]*>")
_BRACED = re.compile(r"(?<![{\w$])\{[A-Za-z_][\w.-]{0,60}\}(?!\})")
# A backslash at the end of a line; blanks and comments behind it come from copying.
_CONTINUED = re.compile(r"\\[ \t]*(?:#[^\n]*)?\r?\n")
# A backslash at the end of a comment continues nothing.
_COMMENT = re.compile(r"^([ \t]*#[^\n]*?)\\[ \t]*(?=\r?\n|\Z)", re.M)
# What a terminal shows before a command; a # alone begins a comment.
_PROMPT = re.compile(r"^[ \t]*(?:\[?[\w.-]+@\S+?(?: \S+\])?[$#%>]|[$%>])[ \t]+(?=[A-Za-z_])", re.M)
_TYPOGRAPHIC = "\u2018\u2019\u201c\u201d\u2013\u2014"
_ENDS = ";&|\n()"
_NUMBERED = re.compile(r"\d[<>]")
_REDIRECTION = re.compile(r"\d?[<>]+&?\s*[^\s;&|]*")
# The beginning of a flag, which no number is.
FLAG = re.compile(r"--?[A-Za-z]")


class CommandError(ValueError):
    """A command cannot be read; the message is the whole sentence, and holds no secret."""


def check_text(text: str) -> None:
    """Raise CommandError for a text that is too long, or holds what no command holds."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise CommandError(f"the command has more than {MOST_BYTES:,} bytes, expected one that starts vLLM")
    odd = re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ue000-\ue003]", text)
    if odd:
        raise CommandError(f"the command holds the control character {odd.group()!r}, expected text")


def statements(text: str) -> list[list[str]]:
    """Return the words of each statement; what a shell would replace in them is marked. Raises CommandError."""
    check_text(text)
    # Where no line ends, each backslash with a comment would be searched to the end.
    begin, end, last = _COMMENT.sub(r"\1", text.replace("\u00a0", " ")).rpartition("\n")
    text = _PROMPT.sub("", _CONTINUED.sub(" ", begin + end) + last.rstrip().removesuffix("\\"))
    found: list[list[str]] = [[]]
    for word in _split(text):
        if word is None:
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def script(text: str) -> list[list[str]]:
    """Return the statements of a script. Raises CommandError where one begins with a flag, which no shell would run."""
    found = statements(text)
    for words in found:
        if FLAG.match(words[0]):
            raise CommandError(lost_line(text, words[0]))
    return found


def lost_line(text: str, flag: str) -> str:
    """Return the sentence that a flag begins a line or a statement, and so belongs to no command."""
    flag = flag.partition("=")[0]
    lines = text.splitlines()
    for number, line in enumerate(lines[1:], 2):
        before = lines[number - 2]
        is_comment = before.lstrip().startswith("#")
        if line.lstrip().startswith(flag) and (is_comment or not _CONTINUED.search(f"{before}\n")):
            end = "is a comment, which ends a command" if is_comment else "has no backslash at its end"
            return f"line {number} begins with {flag}, but the line before it {end}"
    return f"{flag} begins a separate command, expected it behind `vllm serve` or `docker run`"


def _split(text: str) -> Iterator[str | None]:
    """Yield the words, and None where a statement ends."""
    place = 0
    while place < len(text):
        char = text[place]
        if char in _ENDS:
            yield None
            place += 1
        elif char.isspace():
            place += 1
        elif char == "#":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif (char in "<>" or _NUMBERED.match(text, place)) and not _ANGLED.match(text, place):
            # A redirection, with the name of its file.
            place = _REDIRECTION.match(text, place).end()  # type: ignore[union-attr]
        else:
            word, place = _read_word(text, place)
            yield word


def _read_word(text: str, place: int) -> tuple[str, int]:
    """Return the word that begins at a place, and where it ends."""
    begin, parts = place, []
    while place < len(text) and not text[place].isspace() and text[place] not in _ENDS:
        char, angled = text[place], _ANGLED.match(text, place)
        if angled:
            part, place = _OPEN + angled.group(1), angled.end()
        elif char in "<>":
            break
        elif char in "'\"":
            part, place = _quoted(text, place)
        elif char == "\\":
            part, place = text[place + 1 : place + 2], place + 2
        elif text.startswith("$(", place) or char == "`":
            end = text.find(")" if char == "$" else "`", place + 1)
            end = len(text) if end < 0 else end + 1
            part, place = _live(text[place:end]), end
        elif char in _TYPOGRAPHIC:
            raise CommandError(
                f"found {show_value(char)} in line {_line(text, begin)}, which some program has put in place of a "
                "quote or of --; expected ' or \" or --"
            )
        else:
            part, place = char.replace("$", _BARE), place + 1
        parts.append(part)
    return "".join(parts), place


def _quoted(text: str, place: int) -> tuple[str, int]:
    """Return what is between quotes, and the place behind them."""
    quote = text[place]
    end = place + 1
    while end < len(text) and text[end] != quote:
        end += 2 if quote == '"' and text[end] == "\\" else 1
    if end >= len(text):
        raise CommandError(f"the quote {quote} in line {_line(text, place)} is never closed; close it")
    inner = text[place + 1 : end]
    if quote == '"':
        inner = re.sub(r'\\(["\\$`])|[$`]', lambda found: found.group(1) or _live(found.group()), inner)
    return inner, end + 1


def _live(text: str) -> str:
    """Mark what a shell would replace."""
    return text.replace("$", _LIVE).replace("`", _TICK)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def interpolated(text: str) -> str:
    """Return a text of a compose file in the same form: there $$ is a $, and any other $ is replaced."""
    if '"' not in text:
        text = _ANGLED.sub(rf"{_OPEN}\1", text)
    return text.replace("$$", "\x00").replace("$", _LIVE).replace("\x00", "$")


def expand(word: str, known: Mapping[str, str]) -> str:
    """Return a word with the variables that are known, and the defaults of those that are not. Raises CommandError."""
    length = 0

    def value(found: re.Match[str]) -> str:
        nonlocal length
        name = found.group(1) or found.group(2)
        default = found.group(3)
        text = known.get(name, found.group() if default is None else default)
        length += len(text)
        if length > _MOST_EXPANDED:
            raise CommandError(f"{name} and other variables in one word are longer than {_MOST_EXPANDED:,} characters")
        return text

    return _VARIABLE.sub(value, word)


def expand_words(words: Iterable[str], known: Mapping[str, str]) -> Iterator[str]:
    """Yield words with the variables that are known; a variable alone, without quotes, may be several words or none."""
    length = 0
    for word in words:
        text = expand(word, known)
        length += len(text)
        if length > MOST_BYTES:
            raise CommandError(f"the command with its variables is longer than {MOST_BYTES:,} characters")
        alone = word.startswith(_BARE) and _VARIABLE.fullmatch(word) and text != word
        yield from text.split() if alone else [text]


def parts_of(word: str) -> Iterator[str]:
    """Yield the parts of a word that a shell or a person must replace, as they were written."""
    for pattern in (_VARIABLE, _MARKED, *(() if '"' in word else (_BRACED,))):
        yield from (as_written(found.group()) for found in pattern.finditer(word))
    if _TICK in word:
        yield "`...`"
    if f"{_LIVE}(" in word:
        yield "$(...)"
    elif not _VARIABLE.search(word) and (_LIVE in word or _BARE in word):
        yield "$"


def unreadable(word: str) -> str:
    """Return the first part of a word that a shell or a person must replace; empty where there is none."""
    return next(parts_of(word), "")


def only_there(word: str) -> str:
    """Return why a word cannot be taken, as the beginning of a sentence; empty where it can."""
    part = unreadable(word)
    if part.startswith(("<", "{")):
        return f"found {part}, which stands for a value"
    return f"found {part}, which only a shell of that machine can replace" if part else ""


def as_written(word: str) -> str:
    """Return a word without marks."""
    return word.replace(_LIVE, "$").replace(_BARE, "$").replace(_TICK, "`").replace(_OPEN, "<")
