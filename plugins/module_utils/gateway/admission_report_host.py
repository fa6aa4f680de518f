# SPDX-License-Identifier: GPL-3.0-or-later
"""Who runs, waits and is refused at this gateway, by service, class and team, from HAProxy's own page of metrics."""

from __future__ import annotations

import contextlib
import http.client
import re
from typing import Any

from ..common.foreign_numbers import read_count
from ..instance.api_host import read_body, within

_PREFIX = "inference_gateway_admission_"
_LINE = re.compile(rf"{_PREFIX}(\w+)\{{([^}}]*)\}} ([0-9.]+)\Z", re.ASCII)
_LABEL = re.compile(r'\b(\w+)="([^"\\]{0,128})"', re.ASCII)
_PAGE = re.compile(r"^frontend gateway:status\n    bind (\S+):([0-9]{1,5})(?: proto h1)?$", re.MULTILINE | re.ASCII)
SECONDS, _MOST_BYTES = 5.0, 4 << 20


def read_admission(config: str) -> list[dict[str, Any]]:
    """Return a row for each service, class and team since HAProxy's last reload; none without admission.

    ``config`` is the path of HAProxy's configuration, which names the address of the page.
    """
    try:
        with open(config, encoding="utf-8") as file:
            text = file.read()
        page = _PAGE.search(text)
        return rows_of(_get(page[1], int(page[2]))) if page and "lua.admission" in text else []
    except (OSError, ValueError, http.client.HTTPException):
        return []


def rows_of(text: str) -> list[dict[str, Any]]:
    """Return the rows of a page of metrics; lines of another form are left out."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    answers: dict[tuple[str, str], dict[str, float]] = {}
    for line in text.splitlines():
        found = _LINE.match(line)
        labels = dict(_LABEL.findall(found[2])) if found else {}
        if not found or not {"service", "class"} <= set(labels):
            continue
        name, number = found[1], read_count(found[3].partition(".")[0]) or 0
        if name.startswith("first_answer_seconds_"):
            sums = answers.setdefault((labels["service"], labels["class"]), {})
            sums[name.rpartition("_")[2]] = number
            continue
        names = labels["service"], labels["class"], labels.get("team", "")
        row = rows.setdefault(names, {"now": 0, "requests": 0, "waited": 0, "refused": 0})
        if name == "requests":
            row["now"] += number
        elif name == "requests_total":
            row["requests"] += number
            row["waited"] += number if labels.get("decision") == "waits" else 0
            row["refused"] += number if labels.get("decision") == "refused" else 0
    return [
        {"service": service, "class": of, "team": team, **row, "first_answer_s": _mean(answers.get((service, of), {}))}
        for (service, of, team), row in sorted(rows.items())
    ]


def _mean(sums: dict[str, float]) -> float:
    """Return the mean seconds until an answer of a class begins, 0 without one."""
    return round(sums.get("sum", 0) / sums["count"], 2) if sums.get("count") else 0.0


def _get(address: str, port: int) -> str:
    """Return the page. Raises OSError, HTTPException and ValueError."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(address, address.strip("[]"))  # noqa: S104
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    with contextlib.closing(connection), within(SECONDS, connection):
        connection.request("GET", "/metrics/admission")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ValueError(f"HTTP {answer.status}")
        return read_body(answer, _MOST_BYTES).decode("utf-8", "replace")
