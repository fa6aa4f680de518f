# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a download: the report that the host writes and the lines that the controller prints."""

from __future__ import annotations

from dataclasses import dataclass

from ..common.foreign_json import load_json


@dataclass(frozen=True)
class Progress:
    """Bytes and files of all models of a run, of those that were missing; ``rate`` in bytes per second.

    ``beat`` grows with each report, so an unchanged one is from a process that has ended. ``waits_for`` names the
    process that this one waits for, empty for none.
    """

    model: str = ""
    source: str = ""
    done: int = 0
    total: int = 0
    files_done: int = 0
    files: int = 0
    rate: float = 0.0
    waits_for: str = ""
    pid: int = 0
    beat: int = 0


def format_progress(progress: Progress) -> str:
    """Return one line for people: the model, the share that is done, the rate, and the time left."""
    if progress.waits_for:
        return f"{progress.model}: waits for {progress.waits_for}, which fetches it"
    if not progress.files:
        return f"{progress.model or 'weights'}: checking the files on the host and the sources"
    share = 100 * progress.done // progress.total if progress.total else 0
    words = [
        f"{progress.model}: {format_bytes(progress.done)} of {format_bytes(progress.total)} ({share} %)",
        f"{progress.files_done} of {progress.files} files",
    ]
    if progress.rate >= 1:
        words.append(f"{format_bytes(progress.rate)}/s")
        words.append(f"{format_duration((progress.total - progress.done) / progress.rate)} left")
    return ", ".join(words) + (f", from {progress.source}" if progress.source else "")


def format_summary(transferred: int, seconds: float, files: int, sources: list[str]) -> str:
    """Return the line for the end of a fetch."""
    rate = f" at {format_bytes(transferred / seconds)}/s" if seconds >= 0.1 and transferred else ""
    origin = f" from {', '.join(sources)}" if sources else ""
    return f"{files} files, {format_bytes(transferred)} in {format_duration(seconds)}{rate}{origin}"


def format_bytes(count: float) -> str:
    """Return bytes for people, in powers of 1000 as links and vendors count."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def format_duration(seconds: float) -> str:
    """Return seconds for people."""
    whole = int(seconds + 0.5)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def parse_progress(text: str) -> Progress | None:
    """Return the report in a file's text; None if it is invalid."""
    try:
        return Progress(**load_json(text))
    except (ValueError, TypeError):
        return None
