# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify an endpoint: wait, run every check, and describe what failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..vllm.unit import advice, is_up, mask, reasons, redact_lines, without_access_log
from .questions import CHECKS, Finding, Question, judge, request_of
from .ready import Wait, Watch, wait_until_ready
from .target_host import Endpoint

LINES_IN_MESSAGE = 5
LOCAL_PREFILL = "this host computed the prompt itself, and no prefill host did; see the journals of both sides"
NO_PREFILL = "no prefill host computed the prompt; see the journals of both sides and of vllm-router"
SERVER_ERROR = 500
# What the router has a prefill host compute, and routed_host.py removes: the router changes requests that it knows.
ROUTED = ("/v1/chat/completions", "/v1/completions")
ROUTED_PREFIX = "/routed"
# The checks that send the prompt.
TALKS = ("chat", "chat_stream", "responses")


def ask(endpoint: Endpoint, name: str, question: Question) -> Finding:
    """Run a check; where prompts are computed elsewhere, at the router."""
    request, timeout = request_of(name, question), endpoint.params["request_timeout"]
    path = request[1]
    if endpoint.router is None or path not in ROUTED:
        return judge(name, question, endpoint.client.request(*request, timeout))
    reply = endpoint.router.request(request[0], f"{ROUTED_PREFIX}{path}", *request[2:], timeout)
    finding = judge(name, question, reply)
    if not finding.ok:
        why = f": {NO_PREFILL}" if reply.status >= SERVER_ERROR else ""
        return replace(finding, detail=f"{finding.detail}{why}")
    return finding if reply.prefill == "remote" else replace(finding, ok=False, detail=f"{path}: {LOCAL_PREFILL}")


def verify(endpoint: Endpoint, watch: Watch | None) -> tuple[Wait, list[Finding]]:
    """Wait, then run every check, even after a failed one; the unit is checked again at the end."""
    client = None if endpoint.worker and watch else endpoint.client
    wait = wait_until_ready(client, watch, endpoint.params["ready_timeout"])
    if wait.problem or client is None:
        return wait, []
    question = endpoint.question()
    findings = [ask(endpoint, name, question) for name in CHECKS if name in endpoint.checks]
    return Wait(watch.check() if watch else "", wait.seconds), findings


def result_of(endpoint: Endpoint, wait: Wait, findings: list[Finding]) -> dict[str, Any]:
    """Return the values of a run; ok is False when the wait or a check failed."""
    fine = "joined its head" if endpoint.worker else f"{endpoint.url}/health answered 200"
    ready = Finding("ready", not wait.problem, wait.seconds, wait.problem or fine)
    rows = [finding.row() for finding in (ready, *findings)]
    result = {"ok": all(row["ok"] for row in rows), "checks": rows, **endpoint.facts()}
    if findings or not wait.problem:
        result["ready_after_s"] = round(wait.seconds, 3)
    if findings:
        result["doubts"] = [f"{finding.name}: {finding.doubt}" for finding in findings if finding.doubt]
    answers = [finding.answer for finding in findings if finding.ok and finding.name in TALKS and finding.answer]
    if answers:
        result["answer"] = answers[0]
    for finding in findings:
        if finding.speed:
            result["time_to_first_token_s"] = finding.speed.time_to_first_token_s
            result["tokens_per_second"] = finding.speed.tokens_per_second
    return {key: masked(value, endpoint.secrets) for key, value in result.items()}


def masked(value: Any, secrets: list[str]) -> Any:
    """Return value with the secrets masked in its texts, because a server may echo its request."""
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, list):
        return [masked(item, secrets) for item in value]
    if isinstance(value, dict):
        return {key: masked(item, secrets) for key, item in value.items()}
    return value


def failure_of(endpoint: Endpoint, watch: Watch | None, result: dict[str, Any]) -> dict[str, Any]:
    """Return the additional values of a failed run: the message, and the reasons from the unit's journal."""
    bad = [row for row in result["checks"] if not row["ok"]]
    at = "on this worker" if endpoint.worker else f"at {result['url']}"
    head = f"{result['model']} {at} does not pass {len(bad)} of {len(result['checks'])} checks:"
    if len(result["checks"]) == 1:
        head = f"{result['model']} {at} is not ready:"
    message = [head, *_grouped(bad)]
    if any(row["name"] in TALKS for row in bad):
        message.append(f"The prompt was {mask(endpoint.params['prompt'], endpoint.secrets)!r}.")
    if endpoint.params["instance"] and endpoint.params["checks"] is None and result["checks"][0]["ok"]:
        message.append("The files of the model decided what to ask; vllm_instances.NAME.checks replaces it.")
    if watch is None:
        return {"msg": "\n".join(message)}
    # A busy person reads no further; the details follow.
    if endpoint.params["instance"] and not result["checks"][0]["ok"]:
        message.insert(0, watch.in_short(endpoint.params["instance"]))
    lines = watch.unit.journal(watch.invocation)
    why = redact_lines(reasons(lines), endpoint.secrets)
    last = redact_lines(without_access_log(lines), endpoint.secrets, endpoint.params["journal_lines"])
    message.append(f"Unit {watch.unit.name}: {watch.now}.")
    # A running server with bad answers may also have logged errors about other clients' requests.
    if why and not result["checks"][0]["ok"]:
        message += ["The reason, from its journal:", *(f"  {line}" for line in why)]
        known = advice(lines, endpoint.params["known_issues"])
        message += ["This is a known problem:", *(f"  {line}" for line in known)] if known else []
    # The lines are in the result anyway; the message repeats them only if nothing else gives a reason.
    elif last:
        shown = last[-LINES_IN_MESSAGE:]
        message += [f"Its last {len(shown)} journal lines:", *(f"  {line}" for line in shown)]
    return {"msg": "\n".join(message), "reasons": why, "journal": last}


def _grouped(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line for each problem; several requests often have the same one."""
    problems: dict[str, list[str]] = {}
    for row in rows:
        request, colon, problem = row["detail"].partition(": ")
        # The problem of the wait is a whole sentence, the others begin with their request.
        key, where = (
            (problem, f"{row['name']} ({request})") if colon and row["name"] != "ready" else (row["detail"], "ready")
        )
        problems.setdefault(key, []).append(where)
    return [f"- {', '.join(places)}: {problem}" for problem, places in problems.items()]


def nothing_to_ask(endpoint: Endpoint) -> str:
    """Return why there is nothing to verify in check mode, empty when there is."""
    if endpoint.unit is None:
        return "" if endpoint.client.request("GET", "/health", None, 5).status else f"nothing answers at {endpoint.url}"
    state = endpoint.unit.state()
    return "" if is_up(state) else f"unit {endpoint.unit.name} does not run: {state}"
