# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.unit import (
    Unit,
    UnitError,
    advice,
    explain_failure,
    explain_lost,
    is_up,
    mask,
    parse_show,
    reasons,
    redact_lines,
    without_access_log,
)

JOURNALS = Path(__file__).resolve().parents[4] / "fixtures" / "journal"

# Recorded on Debian 12 (systemd 252); systemctl prints the properties in its own order.
RECORDED = """MainPID={pid}
Result={result}
NRestarts={restarts}
ExecMainCode={code}
ExecMainStatus={status}
LoadState={load}
ActiveState={active}
SubState={sub}
Job={job}
InvocationID={invocation}
"""
RUNNING = {"pid": 132, "result": "success", "restarts": 0, "code": 0, "status": 0, "load": "loaded", "active": "active",
           "sub": "running", "job": "", "invocation": "3bbb469b93c04d0893b4e1b47ae72f93"}  # fmt: skip
STARTING = {**RUNNING, "active": "activating", "sub": "start-post"}
DIED = {
    **RUNNING,
    "pid": 0,
    "result": "exit-code",
    "code": 1,
    "status": 1,
    "active": "activating",
    "sub": "auto-restart",
}
IDLE = {**RUNNING, "pid": 0, "active": "inactive", "sub": "dead", "invocation": ""}
FAILED = {**DIED, "active": "failed", "sub": "failed"}


def state(values):
    return parse_show(RECORDED.format(**values))


def test_what_systemctl_shows():
    now = state(DIED)
    assert (now.active, now.sub, now.result, now.restarts, now.code, now.status) == (
        "activating", "auto-restart", "exit-code", 0, 1, 1)  # fmt: skip
    assert now.invocation == "3bbb469b93c04d0893b4e1b47ae72f93" and not now.job
    assert str(now) == "activating (auto-restart), result exit-code, exit status 1, 0 restarts"
    assert str(state({**RUNNING, "restarts": 1})) == "active (running), result success, 1 restart"


def test_no_systemd_here():
    with pytest.raises(UnitError, match="expected a line ActiveState=, found 'System has not been booted'"):
        parse_show("System has not been booted")

    def refused(_words):
        return 1, "", "System has not been booted with systemd as init system (PID 1)."

    with pytest.raises(UnitError, match=r"systemctl show vllm@chat\.service: System has not been booted with systemd"):
        Unit("vllm@chat.service", refused).state()


RESTARTED = {**STARTING, "active": "deactivating", "sub": "stop-sigterm", "result": "signal", "job": 831}


@pytest.mark.parametrize("values", [RUNNING, STARTING, {**IDLE, "job": 831}, RESTARTED])
def test_what_may_still_come_up(values):
    assert explain_failure(state(values), state(values)) == ""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({**IDLE, "load": "not-found"}, "does not exist on this host"),
        ({**IDLE, "load": "masked"}, "is masked"),
        ({**IDLE, "load": "bad-setting"}, "cannot be loaded by systemd (LoadState=bad-setting)"),
        (IDLE, "is not started"),
        (DIED, "has failed: exit status 1 (exit-code)"),
        ({**DIED, "result": "success", "status": 0}, "ended by itself: exit status 0 (success)"),
        ({**FAILED, "result": "signal", "code": 2, "status": 9}, "has failed: killed by signal 9 (signal)"),
        (
            {**FAILED, "result": "core-dump", "code": 3, "status": 11},
            "has failed: dumped core on signal 11 (core-dump)",
        ),
        (
            {**FAILED, "result": "oom-kill", "code": 2, "status": 9},
            "has failed: the kernel killed one of its processes",
        ),
        ({**FAILED, "result": "start-limit-hit"}, "has failed: it died too often in a short time (start-limit-hit)"),
        ({**FAILED, "result": "timeout"}, "it exceeded systemd's time limit for starting or stopping (timeout)"),
        ({**FAILED, "result": "resources", "code": 0, "status": 0}, "has failed: resources"),
        ({**RUNNING, "restarts": 1}, "died and was restarted by systemd while this run waited for it"),
    ],
)
def test_why_a_unit_will_not_answer(values, said):
    assert said in explain_failure(state(RUNNING), state(values))


@pytest.mark.parametrize(
    ("load", "said"),
    [("masked", "runs but is masked, so"), ("not-found", "runs but does not exist on"), ("loaded", "")],
)
def test_a_unit_that_runs_answers_whatever_systemd_would_do_next(load, said):
    found = state({**RUNNING, "load": load})
    assert explain_failure(found, found) == ""
    assert explain_lost(found).startswith(said) and bool(explain_lost(found)) == bool(said)
    assert explain_lost(state({**IDLE, "load": load})) == ""


def test_restarts_from_before_are_history():
    assert explain_failure(state({**RUNNING, "restarts": 3}), state({**RUNNING, "restarts": 3})) == ""


def test_a_unit_that_waits_for_its_restart_is_not_up():
    assert [is_up(state(values)) for values in (RUNNING, STARTING, DIED, IDLE, FAILED)] == [
        True,
        True,
        False,
        False,
        False,
    ]


# Logs of vLLM 0.32.0, recorded; inner frames of long tracebacks were cut out.
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (
            "short-weights",
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete",
        ),
        ("unknown-flag", "api_server.py: error: unrecognized arguments: --max-modellen"),
        (
            "context-too-long",
            "ValidationError: 1 validation error for ModelConfig Value error, User-specified max_model_len",
        ),
        ("engine-killed", "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"),
    ],
)
def test_the_cause_comes_first(name, cause):
    found = reasons((JOURNALS / f"{name}.txt").read_text(encoding="utf-8").splitlines())
    assert cause in found[0]
    assert not any("See root cause above" in line or "The model `other`" in line for line in found)


def test_what_only_reports_a_death_is_better_than_nothing():
    line = (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
    )
    assert reasons(["INFO:     Started server process [1]", line]) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "vllm@chat.service: Failed at step EXEC spawning /var/lib/vllm/chat/serve: No such file or directory",
        "vllm@chat.service: Failed to load environment files: No such file or directory",
        "A process of this unit has been killed by the OOM killer.",
        "vllm@chat.service: Starting requested but asserts failed.",
    ],
)
def test_systemds_own_reasons(line):
    assert reasons(["Starting vllm@chat.service...", line, "vllm@chat.service: Failed with result 'resources'."]) == [
        line
    ]


def test_lines_are_masked_before_they_are_cut():
    line = "\x1b[31mx\x1b[0m" * 3 + "a" * 490 + "sk-planted-0123456789"
    assert redact_lines([line, "sk-planted"], ["sk-planted", "sk-planted-0123456789"]) == [
        "xxx" + "a" * 490 + "*******...",
        "********",
    ]
    assert redact_lines(["a", "b", "c"], [], 2) == ["b", "c"] and redact_lines(["a"], [], 0) == []
    assert mask("no secret", ["", "x"]) == "no secret"


def test_the_journal_is_that_of_one_invocation_and_of_all_where_that_is_empty():
    asked = []

    def run(words):
        asked.append(words)
        return 0, "" if "INVOCATION_ID=abc" in words else "Starting requested but asserts failed.\n\n", ""

    assert Unit("vllm@chat.service", run).journal("abc") == ["Starting requested but asserts failed."]
    assert asked[0] == ["journalctl", "--sync"]
    assert "_SYSTEMD_INVOCATION_ID=abc" in asked[1] and "--unit=vllm@chat.service" in asked[1]
    assert "--lines=20" in asked[2] and not any("INVOCATION" in word for word in asked[2])


def test_the_advice_of_a_known_issue_follows_from_its_symptom():
    lines = ["(EngineCore pid=9) ERROR 11-21 08:00:00 [core.py:1] AssertionError: \x1b[31mSinks\x1b[0m must be of type"]
    known = [
        {"symptom": "sinks must be", "advice": "Keep the variables of the recipe."},
        {"symptom": "tl.language", "advice": "Remove the second Triton."},
        {"symptom": "AssertionError", "advice": "Keep the variables of the recipe."},
    ]
    assert advice(lines, known) == ["Keep the variables of the recipe."]
    assert advice([], known) == []


def test_answered_requests_are_no_reason():
    access = ['INFO:     10.0.0.5:4000 - "GET /health HTTP/1.1" 200 OK', '"POST /v1/chat/completions HTTP/1.1" 500 x']
    told = ["(APIServer pid=7) ERROR 11-21 08:00:00 [core.py:900] CUDA out of memory", "GET is a word"]
    assert without_access_log([access[0], told[0], access[1], told[1]]) == told
