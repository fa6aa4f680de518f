# SPDX-License-Identifier: GPL-3.0-or-later
"""A dashboard from its table; tests/unit/monitoring has the tests of those of this collection."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.dashboards import dashboards

TABLE = """
chips:
  title: Chips
  choices: {host: "label_values(up, host)"}
  graphs:
    - {title: Power, unit: watt, queries: {"{{host}}": watts}}
    - {title: Heat, unit: celsius, queries: {"{{chip}}": 'heat{host=~"$host"}', most: max(heat)}}
    - {title: Clocks, unit: hertz, queries: {"{{host}}": clocks}}
"""


def test_graphs_stand_two_in_a_row_in_their_order(tmp_path):
    (tmp_path / "table.yml").write_text(TABLE)
    found = dashboards(tmp_path / "table.yml")
    assert list(found) == ["chips.json"] and found["chips.json"].endswith("}\n")
    board = json.loads(found["chips.json"])
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "host"]
    places = {panel["title"]: (panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert places == {"Power": (0, 0), "Heat": (12, 0), "Clocks": (0, 8)}
    heat = [(each["refId"], each["legendFormat"], each["expr"]) for each in board["panels"][1]["targets"]]
    assert heat == [("A", "{{chip}}", 'heat{host=~"$host"}'), ("B", "most", "max(heat)")]
