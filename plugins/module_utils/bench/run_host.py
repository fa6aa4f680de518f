# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the benchmark on this host, and sample the power of the chips while it runs."""

from __future__ import annotations

import collections
import contextlib
import os
import pwd
import selectors
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import IO, Any, Iterator, Mapping, Sequence, cast

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_trees_host import remove_tree
from ..common.processes_host import become
from ..instance.listener_guard_host import ListenerGuard
from ..vllm.unit import mask
from .answers import STARTED, explain_output, read_result
from .measurement import API_KEY, KILL_AFTER, TIMED_OUT, BenchError, Measurement, bench_argv, limited_argv
from .power import Power, energy, parse_power, power_command
from .target_host import Instance

# Between two samples of the power; the vendors' tools average over about a second.
INTERVAL = 0.5
# A vendor's tool that takes longer hangs, and no sample is worth waiting for.
PATIENCE = 10.0
LINES = 40
RESULT = "result.json"
MAX_RESULT_BYTES = 1 << 28
# Nothing is looked up on the network, and no proxy stands between client and server of one host.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "NO_PROXY": "*",
    "PYTHONUNBUFFERED": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "no_proxy": "*",
}


@dataclass(frozen=True)
class Chips:
    """The chips of an instance: the stack that their tool belongs to, and their numbers on the host."""

    stack: str = ""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """The end of a command. started: when the benchmark proper began, by the monotonic clock; None if it never did."""

    status: int
    lines: tuple[str, ...]
    started: float | None
    samples: tuple[tuple[float, float], ...]


def measure(
    instance: Instance, measurement: Measurement, chips: Chips, seconds: float, user: str
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the benchmark's result and its power: ``joules`` and mean ``watts``, empty if unknown.

    The benchmark runs as ``user`` where this process is root, and at most ``seconds``. Raises BenchError.
    """
    target = instance.target
    guard = instance.guard()
    with working_directory("" if target.inside else user) as (directory, account):
        place = f"/tmp/bench-{measurement.seed}" if target.inside else directory  # noqa: S108 (the container's own)
        variables = {**QUIET, **({API_KEY: instance.api_key} if instance.api_key else {})}
        argv = limited_argv(target, bench_argv(target, measurement, place, RESULT), seconds, variables)
        own = environment(directory, target.command[0], variables)
        run = run_command(argv, own, account, chips, seconds + 2 * KILL_AFTER, guard)
        if guard and guard.problem:
            raise BenchError(f"instance {instance.name} does not listen any longer: {guard.problem}")
        if run.status:
            raise BenchError(mask(_why(run, argv[0], seconds), instance.secrets))
        result = read_result(_read(instance, place, directory), measurement)
    return result, power_of(run, float(result["duration"]))


def power_of(run: Run, seconds: float) -> dict[str, float]:
    """Return joules and mean watts of the benchmark proper, empty where too few samples were taken in its time."""
    joules = energy(run.samples, run.started, seconds) if run.started is not None else None
    return {} if joules is None else {"joules": round(joules, 3), "watts": round(joules / seconds, 2)}


def read_power(chips: Chips) -> Power | None:
    """Return the present power of the chips, None where no tool reports it."""
    argv = power_command(chips.stack, chips.numbers)
    if not argv:
        return None
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_power(chips.stack, done.stdout, chips.numbers) if done.returncode == 0 else None


def run_command(
    argv: Sequence[str],
    env: Mapping[str, str],
    account: pwd.struct_passwd | None,
    chips: Chips,
    seconds: float,
    guard: ListenerGuard | None = None,
) -> Run:
    """Run a command in its own session, kill it after ``seconds``, and sample the power until it ends.

    The guard kills it as soon as the instance does not listen any longer.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd="/",
            start_new_session=True,
            preexec_fn=become(account, [account.pw_gid]) if account else None,
        )
    except OSError as exc:
        raise BenchError(f"{argv[0]} cannot be run: {exc.strerror}") from exc
    try:
        with process, guard.ending(process) if guard else contextlib.nullcontext():
            return _follow(process, chips, time.monotonic() + seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _follow(process: subprocess.Popen[bytes], chips: Chips, deadline: float) -> Run:
    """Read the output until its end."""
    lines: collections.deque[str] = collections.deque(maxlen=LINES)
    samples: list[tuple[float, float]] = []
    started: float | None = None
    output = cast("IO[bytes]", process.stdout)
    measured = bool(power_command(chips.stack, chips.numbers))
    for line in _lines(output):
        if line is not None:
            lines.append(line)
            started = time.monotonic() if started is None and line.startswith(STARTED) else started
        elif time.monotonic() > deadline:
            break
        elif started is not None and measured:
            power = read_power(chips)
            # A tool that fails once would fail, or hang, each time.
            measured = power is not None
            samples += [(time.monotonic(), power.watts)] if power else []
    # It may have closed its output, or left it to a process of another session.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
    return Run(process.wait(), tuple(lines), started, tuple(samples))


def _lines(stream: IO[bytes]) -> Iterator[str | None]:
    """Yield each line as it comes, and None after each INTERVAL, until the end of the stream."""
    rest, next_pause = b"", time.monotonic() + INTERVAL
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if selector.select(max(0.0, next_pause - time.monotonic())):
                data = os.read(stream.fileno(), 65536)
                *complete, rest = (rest[-65536:] + data).split(b"\n")
                yield from (line.decode(errors="replace") for line in complete)
                if not data:
                    yield rest.decode(errors="replace")
                    return
            if time.monotonic() >= next_pause:
                yield None
                next_pause = time.monotonic() + INTERVAL


@contextlib.contextmanager
def working_directory(user: str) -> Iterator[tuple[str, pwd.struct_passwd | None]]:
    """Yield a temporary directory, and the account that owns it where this process is root. Raises BenchError."""
    account = None
    if user and os.geteuid() == 0:
        try:
            account = pwd.getpwnam(user)
        except KeyError as exc:
            raise BenchError(f"user: {user!r} is not a user of this host, expected the user that vLLM runs as") from exc
    directory = ""
    try:
        directory = tempfile.mkdtemp(prefix="vllm-bench-")
        if account:
            os.chown(directory, account.pw_uid, account.pw_gid)
    except OSError as exc:
        raise BenchError(f"cannot create a temporary directory for the benchmark: {exc}") from exc
    try:
        yield directory, account
    finally:
        remove_tree(directory, ignore_errors=True)


def environment(directory: str, program: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the benchmark, or of the engine's command: nothing of this process is in it."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    beside = os.path.dirname(program)
    return {
        "HOME": directory,
        "LC_ALL": "C.UTF-8",
        "PATH": f"{beside}:{path}" if beside else path,
        "TMPDIR": directory,
        "VLLM_CACHE_ROOT": directory,
        "XDG_CACHE_HOME": directory,
        "XDG_CONFIG_HOME": directory,
        **variables,
    }


def _read(instance: Instance, place: str, directory: str) -> str:
    """Return the text of the result, from the container where it was made there."""
    target = instance.target
    try:
        if not target.inside:
            # It belongs to the user that ran the benchmark.
            return ForeignDirectory(directory).read(RESULT, MAX_RESULT_BYTES).decode()
        text = _of_container([*target.inside, "cat", f"{place}/{RESULT}"])
        nowhere = subprocess.DEVNULL
        subprocess.run([*target.inside, "rm", "-rf", place], stdout=nowhere, stderr=nowhere, timeout=60, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        raise BenchError(f"vllm bench serve wrote no result: {exc}") from exc
    if not text or len(text) > MAX_RESULT_BYTES:
        raise BenchError(f"vllm bench serve wrote no result of 1 to {MAX_RESULT_BYTES:,} bytes in its container")
    return text.decode("utf-8", "replace")


def _of_container(words: list[str]) -> bytes:
    """Return what a command in a container writes, bounded here: its programs, and the file, may be others by now."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            head = ["head", "-c", str(MAX_RESULT_BYTES + 1)]
            return subprocess.run(head, stdin=process.stdout, stdout=subprocess.PIPE, timeout=60, check=False).stdout
        finally:
            process.kill()


def _why(run: Run, command: str, seconds: float) -> str:
    if run.status in TIMED_OUT or run.status < 0:
        return f"vllm bench serve did not finish within {seconds:g} s, the time limit of a measurement"
    if run.status == 127:
        return f"{command} does not find the command vllm ({explain_output(run.lines, 1)})"
    return f"vllm bench serve failed with exit status {run.status}: {explain_output(run.lines)}"
