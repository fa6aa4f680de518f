# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the tool of an evaluation on the host, as a user without rights, and read what it wrote. Runs on the host."""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

from ..common.files_host import LockedError, locked, make_directories, make_directory
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_trees_host import remove_tree
from ..common.processes_host import become, ending_descendants
from ..instance.listener_guard_host import ListenerGuard
from ..instance.marks import RUN_DIR
from .tool import MOST_BYTES, OUT, OutputError, Tool, shorten

# It reads questions and answers of models, and holds the key of one instance. So each run has its own user: the
# number of this process above all numbers that systemd and container engines give (systemd's UIDS-GIDS), and that SSSD
# gives users of Active Directory and FreeIPA (ldap_idmap_range_max in sssd-ldap(5)). The largest is below 2**31.
_FIRST_USER = 2_000_200_000
# What the tool and its libraries write besides the samples.
_BASE_BYTES = 64 << 20
# Seconds after which a run has its questions, and with them the lock of its instance.
_COPIED = 3600
# A tool writes the prompt up to three times beside the response, and this module writes the response again.
_PROMPTS, _RESPONSE_BYTES = 4, 8192
_LOG_BYTES = 1 << 18
_MAX_OUTPUT_BYTES = 1 << 30
# A failed request ends with its reason.
_ERROR = 200


@dataclass(frozen=True)
class Ended:
    """How the tool ended: its exit status (None where the time was over), the end of its log, its seconds.

    problem: why it was killed before, because the instance did not listen any longer; a clause.
    """

    status: int | None
    log: str
    seconds: float
    problem: str = ""


class BusyError(Exception):
    """Another evaluation of the instance is running; the message is the whole sentence without the instance."""


@contextlib.contextmanager
def lock_instance(name: str, root: str = "/") -> Iterator[None]:
    """Hold the lock of an instance's evaluations below ``root``. Raises BusyError, OSError."""
    directory = os.path.join(root, RUN_DIR.lstrip("/"))
    make_directories(directory)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(os.path.join(directory, f".{name}.evaluation.lock"), wait=0))
        except LockedError as exc:
            raise BusyError(
                f"another evaluation of this instance is running: {exc.holder}; perhaps it is that of an interrupted "
                f"playbook: wait for its end, or end it on the host: pkill -f 'evaluate-.*[.]{name}/'"
            ) from exc
        yield


def remove_abandoned(work: str, instance: str) -> None:
    """Remove the directories of interrupted runs beside that of this run. The lock of the instance must be held.

    Another playbook may just copy its questions: it asks for the lock afterwards. What another user has made under
    such a name stays.
    """
    parent, own = os.path.split(work.rstrip("/"))
    abandoned = re.compile(rf"evaluate-[a-z0-9_]+\.{re.escape(instance)}\Z")
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):
            if name == own or not abandoned.match(name):
                continue
            found = os.lstat(path)
            if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _COPIED:
                remove_tree(path, ignore_errors=True)


def account() -> pwd.struct_passwd:
    """Return the user of the tool of this process, who has no other process and no file."""
    number = _FIRST_USER + os.getpid()
    return pwd.struct_passwd(("evaluation", "x", number, number, "", "/", "/usr/sbin/nologin"))


def read_data(path: str) -> tuple[list[dict[str, Any]], int]:
    """Return the questions in a file, and the file's bytes. Raises OSError, ValueError."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file], os.path.getsize(path)


def missing_bytes(work: str, samples: int, data_bytes: int) -> tuple[int, int]:
    """Return how many bytes the run needs in the directory, and how many are free there."""
    return _BASE_BYTES + _PROMPTS * data_bytes + samples * _RESPONSE_BYTES, shutil.disk_usage(work).free


def prepare(work: str, files: Mapping[str, str]) -> str:
    """Write files by their relative paths below a new directory of ``work``, and give it to the user of the tool.

    Returns its path. ``work`` itself stays that of this user, who alone writes the questions and the result there.
    Nobody else enters either, such as the tool of another evaluation or a user of the host: answers are below them.
    """
    own = f"{work}/tool"
    make_directory(own, 0o700)
    make_directory(f"{own}/{OUT}")
    for path, text in files.items():
        make_directories(os.path.dirname(f"{own}/{path}"))
        with open(f"{own}/{path}", "w", encoding="utf-8") as file:
            file.write(text)
    if os.geteuid() == 0:
        user = account()
        for directory, _directories, names in os.walk(own):
            for path in (directory, *(os.path.join(directory, name) for name in names)):
                os.lchown(path, user.pw_uid, user.pw_gid)
        # Not before: a process of this user could put links in place of directories meanwhile.
        os.chown(work, -1, user.pw_gid)
        os.chmod(work, 0o710)  # noqa: S103 (its user may go through it, and see and write nothing there)
    return own


def run(
    command: Sequence[str], environment: Mapping[str, str], work: str, timeout: float, guard: ListenerGuard
) -> Ended:
    """Run a command with its output in a log without a name, and end all of its processes.

    It is killed as soon as the guard finds that the instance does not listen any longer.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile(dir=os.path.dirname(work)) as output, ending_descendants():
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=become(account()) if os.geteuid() == 0 else None,
        )
        status: int | None = None
        try:
            with guard.ending(process), contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _LOG_BYTES))
        text = output.read().decode(errors="replace")
    return Ended(status, text, time.monotonic() - began, guard.problem)


def read_items(
    work: str, tool: Tool, task: str, questions: Sequence[Mapping[str, Any]], log: str
) -> list[dict[str, Any]]:
    """Return the answers that the tool judged; ``log`` is that of the run. Raises OutputError.

    Tools end with status 0 where they could not save their results, for example on a full disk, and AISBench also where
    its requests failed; the log of each of its parts is a separate file.
    """
    base = f"{glob.escape(work)}/{OUT}"
    for path in glob.glob(f"{base}/{tool.failures}") if tool.failures else []:
        lines = _written(work, path).splitlines()
        if lines:
            raise OutputError(f"{tool.title}: {len(lines)} requests failed; the first: {shorten(lines[0][-_ERROR:])}")
    found = glob.glob(f"{base}/{tool.output(task)}")
    if len(found) != 1:
        for path in sorted(glob.glob(f"{base}/*/logs/*/*/*.out")):
            log += _written(work, path)[-_LOG_BYTES:]
        raise OutputError(
            f"{tool.title} left {len(found)} files of judged answers, expected 1; is the disk full? Its last message: "
            f"{tool.reason(log)}"
        )
    return tool.read(io.StringIO(_written(work, found[0])), questions)


def _written(work: str, path: str) -> str:
    """Return the text of a file of the tool, whose user owns the directory ``work`` and all below it."""
    *directories, name = os.path.relpath(path, work).split(os.sep)
    try:
        return ForeignDirectory(work, *directories).read(name, _MAX_OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError as exc:
        raise OutputError(f"{path}: cannot be read: {exc.strerror}") from exc


def write_result(path: str, document: Mapping[str, Any]) -> None:
    """Write a document as compressed JSON that only root can read. Raises OSError, and OutputError for a larger one."""
    text = json.dumps(document, ensure_ascii=False).encode()
    if len(text) > MOST_BYTES:
        raise OutputError(
            f"the answers have {len(text) >> 20} MiB, expected at most {MOST_BYTES >> 20} MiB; ask fewer questions "
            "with evaluate_samples"
        )
    data = gzip.compress(text, mtime=0)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
