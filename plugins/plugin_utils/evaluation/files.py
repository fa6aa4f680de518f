# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write the files of an evaluation on the controller: definitions, data, locks of the tools, results."""

import errno
import gzip
import hashlib
import os
import shutil
import zlib
from http.client import HTTPException
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

from ansible.module_utils.urls import open_url

from ...module_utils.common.deadline import finish_within
from ...module_utils.common.files_host import publish, sha256_of
from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.kinds import show_value
from ...module_utils.evaluation.tool import MOST_BYTES, Tool
from ...module_utils.transfer.connections import redact_url
from ..common.places import CATALOG
from ..common.yaml import UnreadableError, dump_yaml, read_yaml
from .results import add_scores, check_answers, check_result
from .tasks import DIGEST, NAME, EvaluationError, TaskDefinition, parse_task

BUNDLED = CATALOG / "evaluation"
LOCKS = BUNDLED / "requirements"
# The estimated bytes of an answer in the file of results: with reasoning it is longer, as a letter far shorter.
_ANSWER_BYTES = 8192
_TIMEOUT, _WHOLE = 60, 1800  # seconds without a byte, and of a whole file
_FETCHED = ".answers"


def find_tasks(directories: Sequence[str]) -> dict[str, Path]:
    """Return the definitions by task, the site's directories before the collection's. Raises EvaluationError."""
    found: dict[str, Path] = {}
    for directory in (*map(Path, directories), BUNDLED):
        if not directory.is_dir():
            raise EvaluationError(f"evaluate_task_path: {directory} is not a directory on the controller")
        for path in sorted(directory.glob("*.yml")):
            if not NAME.match(path.stem):
                raise EvaluationError(f"{path}: expected a name of lower-case letters, digits and underscores")
            found.setdefault(path.stem, path)
    return found


def load_task(path: Path) -> TaskDefinition:
    """Return the definition in a file. Raises EvaluationError."""
    try:
        return parse_task(path.stem, read_yaml(path), str(path))
    except UnreadableError as exc:
        raise EvaluationError(str(exc)) from exc


def locate_data(path: Path, definition: TaskDefinition, given: Mapping[str, Any], downloads: str) -> tuple[str, str]:
    """Return path and expected sha256 of the data of a task: by evaluate_data, else the file beside the definition.

    A file with a url was downloaded into the directory ``downloads``, under its sha256. Raises EvaluationError.
    """
    where = f"evaluate_data: {definition.name}"
    if not given:
        if not definition.file:
            raise EvaluationError(
                f"{where} is missing: the collection brings no data for {definition.title}; set file (or url) and "
                "sha256, see docs/operate/evaluate.md"
            )
        return str(path.parent / definition.file), definition.sha256
    if not isinstance(given, Mapping):
        raise EvaluationError(
            f"{where}: found {show_value(given)}, expected a mapping with sha256 and either file or url"
        )
    if len({"file", "url"} & given.keys()) != 1 or given.keys() - {"file", "url", "sha256"}:
        raise EvaluationError(
            f"{where}: found the keys {', '.join(sorted(map(str, given)))}, expected sha256 and either file or url"
        )
    digest = str(given.get("sha256") or "")
    if digest and not DIGEST.match(digest):
        raise EvaluationError(f"{where}: sha256: found {show_value(digest)}, expected 64 hexadecimal digits")
    return str(given["file"] if "file" in given else os.path.join(downloads, digest)), digest


def download(task: str, url: str, path: str, digest: str) -> None:
    """Download the data of a task unless it is there; a file of another sha256 is never published under this path.

    Raises EvaluationError.
    """
    shown = redact_url(url)
    if not digest:
        raise EvaluationError(f"evaluate_data: {task}: sha256 is missing, expected that of the file at {shown}")
    if os.path.exists(path):
        return
    try:
        data = finish_within(_WHOLE, lambda: open_url(url, timeout=_TIMEOUT).read(MOST_BYTES + 1))
    except (OSError, ValueError, HTTPException) as exc:
        # Some of these errors quote the address, with its password.
        why = str(exc).replace(url, shown)
        raise EvaluationError(f"evaluate_data: {task}: {shown} cannot be downloaded: {why}") from exc
    if len(data) > MOST_BYTES:
        raise EvaluationError(f"evaluate_data: {task}: {shown} has more than {MOST_BYTES >> 20} MiB")
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise EvaluationError(f"evaluate_data: {task}: {shown} has the sha256 {found}, expected {digest}")
    _publish(path, data)


def read_data(task: str, path: str, digest: str) -> tuple[str, str]:
    """Return text and sha256 of a data file; raises EvaluationError if it is not the expected file."""
    where = f"evaluate_data: {task}"
    try:
        found = sha256_of(path)
        if found != digest:
            expected = (
                f"expected {digest}" if digest else "expected it in evaluate_data, so that no other file is taken"
            )
            raise EvaluationError(f"{where}: {path} has the sha256 {found}, {expected}")
        return Path(path).read_text(encoding="utf-8-sig"), found
    except OSError as exc:
        raise EvaluationError(f"{where}: {path}: {exc.strerror}; expected the data of the task there") from exc
    except UnicodeDecodeError as exc:
        raise EvaluationError(f"{where}: {path}: is not UTF-8: {exc}") from exc


def choose_lock(tool: Tool, version: str, machine: str) -> Path:
    """Return the lock of a tool for a host's Python, such as 3.12, and its machine. Raises EvaluationError."""
    stem = f"{tool.name}-{tool.version}-"
    known = sorted(path.stem.removeprefix(stem) for path in LOCKS.glob(f"{stem}*.txt"))
    if not known:
        raise EvaluationError(
            f"evaluate_environment is missing: the collection has no lock of {tool.label}, because one of its "
            "requirements is published as a source only; set it to an environment on the host that has it, see "
            "docs/operate/evaluate.md"
        )
    target = f"cp{version.replace('.', '')}-{machine}"
    if target not in known:
        raise EvaluationError(
            f"evaluate_python: found {target}, but {tool.label} has locks of wheels for {', '.join(known)}; set "
            "evaluate_python to another Python of the host, such as /usr/bin/python3.12"
        )
    return LOCKS / f"{stem}{target}.txt"


def result_path(directory: str, host: str, instance: str, task: str) -> str:
    """Return the path of a task's result."""
    return os.path.join(directory, host, instance, f"{task}.json")


def answers_path(directory: str, host: str, instance: str, task: str) -> str:
    """Return where the answers of a task are fetched to."""
    return os.path.join(directory, _FETCHED, f"{host}.{instance}.{task}.gz")


def make_answers_directory(directory: str) -> None:
    """Make the directory of fetched answers, which only this user can enter: a host chose their content.

    Raises EvaluationError.
    """
    path = os.path.join(directory, _FETCHED)
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as exc:
        raise EvaluationError(f"evaluate_dir: {path}: {exc.strerror}; expected a directory of this user") from exc


def read_result(path: str) -> dict[str, Any] | None:
    """Return a result, None where there is none. Raises EvaluationError for an invalid file."""
    try:
        data = load_json(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise EvaluationError(f"{path}: cannot be read as a result: {exc}; remove it to evaluate again") from exc
    return check_result(data, path)


def find_result(directory: str, host: str, instance: str, task: str) -> dict[str, Any]:
    """Return the result to compare with: that of the host, else the only one of the instance's name.

    Raises EvaluationError.
    """
    own = read_result(result_path(directory, host, instance, task))
    if own is not None:
        return own
    others = sorted(Path(directory).glob(f"*/{instance}/{task}.json")) if os.path.isdir(directory) else []
    if len(others) != 1:
        found = ", ".join(path.parts[-3] for path in others) or "none"
        raise EvaluationError(
            f"evaluate_compare: {result_path(directory, host, instance, task)} is not there, and the hosts with such a "
            f"result are: {found}; expected exactly one to compare with"
        )
    result = read_result(str(others[0]))
    if result is None:
        raise EvaluationError(f"evaluate_compare: {others[0]} has been removed meanwhile")
    return result


def update_evidence(path: str, results: Iterable[Mapping[str, Any]]) -> bool:
    """Add the scores of results to an evidence file; return whether it changed. Raises EvaluationError."""
    where = f"evaluate_evidence: {path}"
    try:
        evidence = read_yaml(Path(path))
    except UnreadableError as exc:
        raise EvaluationError(f"evaluate_evidence: {exc}") from exc
    if not isinstance(evidence, Mapping):
        raise EvaluationError(f"{where}: found {type(evidence).__name__}, expected the evidence of a benchmark")
    scored = add_scores(evidence, results)
    if scored == dict(evidence):
        return False
    write(path, dump_yaml(scored))
    return True


def read_answers(path: str) -> dict[str, Any]:
    """Return the answers of a task that a host sent, of the kinds that are expected. Raises EvaluationError."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            # A small file can become a large text.
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise EvaluationError(f"{path}: the answers have more than {MOST_BYTES >> 20} MiB")
        data = load_json(text)
    except (OSError, EOFError, ValueError, zlib.error) as exc:
        raise EvaluationError(f"{path}: the answers cannot be read: {exc}") from exc
    return check_answers(data, path)


def check_room(directory: str, samples: int) -> None:
    """Raise EvaluationError if the directory of the results has too little space for the answers."""
    needed, free = (16 << 20) + samples * _ANSWER_BYTES, 0
    try:
        os.makedirs(directory, exist_ok=True)
        free = shutil.disk_usage(directory).free
    except OSError as exc:
        raise EvaluationError(
            f"evaluate_dir: {directory}: {exc.strerror}; expected a directory for the results"
        ) from exc
    if free < needed:
        raise EvaluationError(
            f"evaluate_dir: {directory}: found {free >> 20} MiB free, expected {needed >> 20} MiB for {samples} answers"
            "; make room there, or name another directory"
        )


def write(path: str, text: str) -> None:
    """Publish a file, with its directory. Raises EvaluationError."""
    _publish(path, text.encode())


def _publish(path: str, data: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        publish(path, data)
    except OSError as exc:
        full = "; make room there and run the playbook again" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise EvaluationError(f"evaluate_dir: {path}: {exc.strerror}{full}") from exc
