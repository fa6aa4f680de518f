# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards as Grafana reads them, from the table of their graphs in playbooks/files/monitoring/dashboards.yml."""

import json
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Mapping

from ..common.yaml import load_yaml

# Grafana puts its own Prometheus in the place of the variable.
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's grid is 24 wide.
WIDTH, HEIGHT = 12, 8


def dashboards(table: Path) -> dict[str, str]:
    """Return the texts of the dashboards by the names of their files."""
    boards = load_yaml(table.read_text(encoding="utf-8"))
    return {f"{uid}.json": json.dumps(_board(uid, board), indent=2) + "\n" for uid, board in boards.items()}


def _board(uid: str, board: Mapping[str, Any]) -> dict[str, Any]:
    choices = [_choice(name, query) for name, query in board["choices"].items()]
    texts = [_text(name, value) for name, value in board.get("texts", {}).items()]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "uid": uid,
        "title": board["title"],
        "tags": ["baremetal.inference"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *choices, *texts]},
        "panels": [_panel(place, graph) for place, graph in enumerate(board["graphs"])],
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    """Return a variable of the dashboard, of which people choose values above its graphs; sorted, all at first."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {},
        "sort": 1,
    }


def _text(name: str, value: str) -> dict[str, Any]:
    """Return a variable of the dashboard that people write, with the value that it has at first."""
    return {"name": name, "type": "textbox", "query": value, "current": {"text": value, "value": value}}


def _panel(place: int, graph: Mapping[str, Any]) -> dict[str, Any]:
    row, column = divmod(place, 2)
    return {
        "id": place + 1,
        "title": graph["title"],
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": WIDTH * column, "y": HEIGHT * row},
        "fieldConfig": {"defaults": {"unit": graph["unit"]}, "overrides": []},
        "options": {},
        "targets": [
            {"refId": letter, "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for letter, (legend, query) in zip(ascii_uppercase, graph["queries"].items())
        ],
    }
