# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module in the background of a host and report its progress."""

import contextlib
import os
import secrets
import shlex
import time
from typing import Any, Callable, Mapping

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ...module_utils.weights.manifest import WeightsError
from ...module_utils.weights.progress import Progress, parse_progress

# A fetch is stopped after a week; the next run continues it.
LIMIT = 7 * 24 * 3600
# Seconds between two queries of a host: short at first, because most fetches are short.
FIRST, LAST, GROWTH = 0.2, 5.0, 1.5
# Seconds without a report after which the fetch counts as dead, and for which a lost connection is retried.
SILENCE = 60.0
# A secrets file that no module has read after this many minutes is removed: the module reads it within seconds.
ACCESS_MINUTES = 15
ACCESS_PREFIX = "access-"
# Writes its standard input to a private file, and removes those that earlier runs left. The loop in the
# background outlives a controller that is killed before the module begins, and ends as soon as the module has begun. In
# parentheses, because Ansible adds words to the end of a command.
WRITE_ACCESS = """(
umask 077 && mkdir -p -m 700 {directory} || exit
find {directory} -maxdepth 1 -name '{prefix}*.json' -mmin +{minutes} -delete
cat > {path} || exit
setsid sh -c '
  for _time in $(seq {times}); do test -e "$0" || exit 0; sleep {pause}; done; rm -f -- "$0"
' {path} < /dev/null > /dev/null 2>&1 &
)"""


def run_in_background(
    action: ActionBase,
    name: str,
    args: Mapping[str, Any],
    task_vars: dict[str, Any],
    tell: Callable[[Progress], None],
    interval: float,
) -> dict[str, Any]:
    """Run a module that takes ``progress_file``; return its result.

    ``tell`` gets a report every ``interval`` seconds. A connection that breaks does not end the fetch on the host.
    """
    path = f"{_directory(action)}/{name.rpartition('.')[2]}-{secrets.token_hex(8)}.json"
    started = _start(action, name, {**args, "progress_file": path}, task_vars)
    if "results_file" not in started:
        return started
    return _follow(action, started, path, task_vars, tell, interval)


def write_access_file(action: ActionBase, secret: str) -> str:
    """Write secrets into a private file on the host; return its path. The module removes it when it begins.

    Arguments would stay in the module's file on the host for as long as it runs.
    """
    path = f"{_directory(action)}/{ACCESS_PREFIX}{secrets.token_hex(8)}.json"
    answer = action._low_level_execute_command(access_command(path), in_data=secret.encode())
    if answer["rc"]:
        raise WeightsError(f"{path}: cannot be written on the host: {answer['stderr'].strip()}")
    return path


def access_command(path: str, minutes: int = ACCESS_MINUTES, pause: float = 5) -> str:
    """Return the command that writes a secret to ``path`` and removes it later, even if the controller dies."""
    times = max(1, round(minutes * 60 / pause))
    return WRITE_ACCESS.format(
        directory=shlex.quote(os.path.dirname(path)),
        path=shlex.quote(path),
        prefix=ACCESS_PREFIX,
        minutes=minutes,
        times=times,
        pause=pause,
    )


def remove_access_file(action: ActionBase, path: str) -> None:
    """Remove the secrets file, in case the module has not begun."""
    with contextlib.suppress(AnsibleConnectionFailure):
        action._low_level_execute_command(f"rm -f -- {shlex.quote(path)}")


def _directory(action: ActionBase) -> str:
    """Return Ansible's directory for results of background jobs, which the module's user can write."""
    option = action.get_shell_option("async_dir", default="~/.ansible_async")
    return str(action._remote_expand_user(option))


def _start(action: ActionBase, name: str, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
    task = action._task
    before, task.async_val = task.async_val, LIMIT
    try:
        result: dict[str, Any] = action._execute_module(
            module_name=name, module_args=args, task_vars=task_vars, wrap_async=True
        )
    finally:
        task.async_val = before
    return result


def _follow(
    action: ActionBase,
    job: Mapping[str, Any],
    path: str,
    task_vars: dict[str, Any],
    tell: Callable[[Progress], None],
    interval: float,
) -> dict[str, Any]:
    pause, now = FIRST, time.monotonic()
    reported_at, moved, reached, beat = now, now, now, -1
    report: Progress | None = None
    while True:
        time.sleep(pause)
        pause, now = min(pause * GROWTH, LAST), time.monotonic()
        try:
            found = _read_progress(action, path)
            report = found or report
            result = {} if found and found.beat != beat else _job_result(action, job, task_vars)
        except AnsibleConnectionFailure:
            if now - reached > SILENCE:
                raise
            continue
        reached = now
        if result.get("finished"):
            return _finish_job(action, job, result, _lost_message(report, path), task_vars)
        if found and found.beat != beat:
            moved, beat = now, found.beat
        elif now - moved > SILENCE:
            return {"failed": True, "msg": _lost_message(report, path)}
        if found and interval and now - reported_at >= interval:
            reported_at = now
            tell(found)


def _read_progress(action: ActionBase, path: str) -> Progress | None:
    answer = action._low_level_execute_command(f"cat {shlex.quote(path)}")
    return parse_progress(answer["stdout"]) if answer["rc"] == 0 else None


def _job_result(
    action: ActionBase, job: Mapping[str, Any], task_vars: dict[str, Any], mode: str = "status"
) -> dict[str, Any]:
    """Ask for the result of a job, in which ``finished`` is set once it has one; ``cleanup`` removes it.

    It lies where the job says: that is below its HOME, which may differ from the home of the account.
    """
    place, name = os.path.split(str(job["results_file"]))
    found: dict[str, Any] = action._execute_module(
        module_name="ansible.legacy.async_status",
        module_args={"jid": name, "mode": mode, "_async_dir": place},
        task_vars=task_vars,
    )
    return found


def _finish_job(
    action: ActionBase, job: Mapping[str, Any], result: dict[str, Any], gone: str, task_vars: dict[str, Any]
) -> dict[str, Any]:
    """Return a module's result without the keys of the job; ``gone`` is the message where the job left no result."""
    _job_result(action, job, task_vars, "cleanup")
    # Ansible's wrapper reports that the command printed nothing, or that there is no such job.
    if result.get("failed") and ("cmd" in result or result.get("msg") == "could not find job"):
        trouble = str(result.get("stderr") or "").strip()
        return {"failed": True, "msg": f"{gone}{': ' if trouble else ''}{trouble}"}
    for key in ("ansible_job_id", "finished", "started", "results_file"):
        result.pop(key, None)
    return result


def _lost_message(report: Progress | None, path: str) -> str:
    process = f"process {report.pid}" if report and report.pid else "its process"
    return (
        f"the fetch on the host ended without a result or hangs ({process}, {path}); on the host, check journalctl and "
        "dmesg (killed, out of memory?), then run again: what has arrived is kept"
    )
