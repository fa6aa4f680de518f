# SPDX-License-Identifier: GPL-3.0-or-later
"""The document that a verification of a fleet ends with, made from the results of its tasks."""

from typing import Any, Dict, Iterable, List, Mapping

from ..common.answers import ANSWERS, CHECK, find_odd
from ..common.tables import by_name, table

Rows = List[Dict[str, Any]]

_OF_AN_INSTANCE = ("url", "model", "answer", "ready_after_s", "time_to_first_token_s", "tokens_per_second")
_HEADERS = ("host", "instance", "model", "passed", "seconds", "first token, s", "tokens/s", "answer")
_RATES = {"time_to_first_token_s": ".2f", "tokens_per_second": ",.0f"}
# The most characters of an answer, and of why there is none.
_SHOWN, _SHOWN_PROBLEM = 60, 300
_UNASKED = "not asked: the host was not reached, or a task before failed there"


def checks_of(host: str, result: Mapping[str, Any]) -> Rows:
    """Return a row {host, instance, name, ok, seconds, detail} for each check in the result of a task on host.

    A result without checks (the module refused its options, the host was not reached, another task failed) is one row.
    """
    rows: Rows = []
    odd = find_odd(result, ANSWERS)
    if odd:
        return [_row(host, None, "endpoint", False, {"msg": odd})]
    for item in _items(result):
        instance = item.get("item")
        checks = item.get("checks")
        if item.get("unreachable"):
            rows.append(_row(host, instance, "reach", False, item))
        elif checks:
            rows += [{"host": host, "instance": instance, **{key: check.get(key) for key in CHECK}} for check in checks]
        elif item.get("skipped"):
            rows.append(_row(host, instance, "endpoint", None, item))
        # In a loop ansible-core 2.21 leaves out failed, and gives each item that failed an exception.
        elif item.get("failed") or "exception" in item:
            rows.append(_row(host, instance, "endpoint", False, item))
    return rows


def instances_of(host: str, result: Mapping[str, Any]) -> Rows:
    """Return the measurements of each instance in the result of a task on host; msg has the problem of a failed one."""
    return [
        {
            "host": host,
            "instance": item["item"],
            "ok": item.get("ok"),
            **{key: item[key] for key in _OF_AN_INSTANCE if key in item},
            **({} if item.get("ok") else {"msg": item.get("msg", "")}),
        }
        for item in ([] if find_odd(result, ANSWERS) else _items(result))
        if "item" in item and "ok" in item
    ]


def answers_table(
    results: Mapping[str, Mapping[str, Any]], declared: Mapping[str, Iterable[str]] | None = None, width: int = 120
) -> str:
    """Return the answer of each instance as a table, with the seconds of its checks and its rates.

    ``declared`` has the instances of each host: those of a host without a result were not asked.
    """
    rows = []
    for host in by_name(results):
        checks = checks_of(host, results[host])
        if odd := find_odd(results[host], ANSWERS):
            rows.append([host, *[""] * (len(_HEADERS) - 2), odd])
        elif not results[host] or results[host].get("unreachable"):
            unasked = sorted((declared or {}).get(host, ()))
            rows += [[host, name, "", "0 of 1", *[""] * (len(_HEADERS) - 5), _UNASKED] for name in unasked]
        measured = {one["instance"]: one for one in instances_of(host, results[host])}
        for instance in dict.fromkeys(row["instance"] for row in checks if row["instance"]):
            own = [row for row in checks if row["instance"] == instance]
            # Without a measurement it was not asked, for example because it is not installed.
            one = measured.get(instance, {"msg": own[0]["detail"]})
            passed = f"{sum(row['ok'] is True for row in own)} of {len(own)}"
            seconds = sum(row["seconds"] or 0 for row in own)
            text = " ".join(str(one.get("answer") or one.get("msg") or "").split())
            rates = [f"{one[key]:{form}}" if one.get(key) else "" for key, form in _RATES.items()]
            row = [host, instance, str(one.get("model") or ""), passed, f"{seconds:.1f}", *rates]
            most = _SHOWN if one.get("ok") else _SHOWN_PROBLEM
            rows.append([*row, text if len(text) <= most else f"{text[:most]} ..."])
    return table(_HEADERS, rows, width)


def document(checks: Rows, instances: Rows) -> dict[str, Any]:
    """Return the whole document; it is ok when something was verified and nothing failed or was skipped."""
    return {
        "ok": bool(checks) and all(row["ok"] is True for row in checks),
        "checks": checks,
        "instances": instances,
        **(
            {}
            if checks
            else {"problem": "no instance was verified: no host that the pattern matches has vllm_instances"}
        ),
    }


def _items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results of a loop's items, or the one result of a task without a loop."""
    # An empty loop is skipped as a whole and has no results.
    if result.get("skipped_reason") == "No items in the list":
        return []
    items = result.get("results")
    return list(items) if isinstance(items, list) else [result]


def _row(host: str, instance: Any, name: str, ok: bool | None, result: Mapping[str, Any]) -> dict[str, Any]:
    detail = str(result.get("msg") or "").strip()
    return {"host": host, "instance": instance, "name": name, "ok": ok, "seconds": None, "detail": detail}
