# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tools of evaluations have in common: what they are asked, how they are called, what is read of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence

from ..common.foreign_text import quote_foreign

UNREADABLE = "[no answer]"
# Where a tool writes its results, below the directory of the run.
OUT = "out"
# Of the answers of a task: a host writes no more, and the controller reads no more.
MOST_BYTES = 256 << 20
_LONGEST = 400
_NOISE = re.compile(r"^(Traceback|\s|$|During handling|The above exception)")


class OutputError(Exception):
    """The output of a tool is not that of a complete run; the message is the whole sentence without the host."""


@dataclass(frozen=True)
class Run:
    """The questions of one task, asked of one model.

    data: the file with a question in each line; work: the directory of the run; url: the address without a path;
    request: the parameters of each request; concurrency: requests at the same time; timeout: seconds for one answer.
    """

    task: str
    kind: str
    data: str
    work: str
    url: str
    model: str
    request: Mapping[str, Any]
    concurrency: int
    timeout: int


@dataclass(frozen=True)
class Tool:
    """A tool that asks questions and judges the answers.

    program: its path in its environment; tasks: those that it knows, empty where it takes any; files: the files of a
    run by their paths below its directory, from the run and its questions; arguments: from the directory of the run;
    output: pattern of the one file of judged answers, below the directory of results; read: the answers in that file,
    in the order of the questions; reason: why a run failed, from its log; failures: pattern of a file with a line of
    JSON for each request that failed, below the directory of results, empty where such a run fails itself.
    """

    name: str
    title: str
    version: str
    program: str
    tasks: tuple[str, ...]
    files: Callable[[Run, Sequence[Mapping[str, Any]]], dict[str, str]]
    arguments: Callable[[str], list[str]]
    output: Callable[[str], str]
    read: Callable[[Iterable[str], Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
    reason: Callable[[str], str]
    failures: str = ""

    @property
    def label(self) -> str:
        """Name and version, as results hold them."""
        return f"{self.title} {self.version}"


def environment(work: str, key: str) -> dict[str, str]:
    """Return the whole environment of a tool: it writes below ``work`` only and asks no hub."""
    return {
        "PATH": "/usr/bin:/bin",
        # The user has a number and no name, for which Python's getpass would ask.
        "USER": "evaluation",
        "HOME": work,
        "TMPDIR": work,
        "PYTHONPATH": f"{work}/python",
        "HF_HOME": f"{work}/hf",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # The tools send the header in any case; vLLM without a key ignores it.
        "OPENAI_API_KEY": key or "none",
    }


def last_reason(log: str) -> str:
    """Return the last line of a log that is a reason."""
    lines = [line for line in log.splitlines() if not _NOISE.match(line)]
    return shorten(lines[-1]) if lines else "it wrote nothing"


def shorten(text: str) -> str:
    """Return a text of a tool for a message: some lines of a terminal at most, no control characters."""
    return quote_foreign(text, _LONGEST)
