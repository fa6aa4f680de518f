# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file that decodes what others send is in one row of docs/explain/entrances.yml."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tools import entrances

TOP = Path(__file__).resolve().parents[3]
DECODERS = {
    "csv.reader", "csv.DictReader", "find_document", "json.load", "json.loads", "load_json", "pickle.load",
    "pickle.loads", "tomllib.load", "yaml.compose", "yaml.load", "yaml.parse", "yaml.safe_load",
}  # fmt: skip
RECEIVERS = {"getresponse", "recv", "recvfrom", "recv_into", "urlopen"}
PLACES = ("plugins/**/*.py", "roles/*/files/*.py", "playbooks/files/*.py")


def decodes(source: str) -> bool:
    if not any(name.rpartition(".")[2] in source for name in (*DECODERS, *RECEIVERS)):
        return False
    names = [ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(name in DECODERS or name.rpartition(".")[2] in RECEIVERS for name in names)


def test_every_reader_is_in_one_row():
    files = sorted(path for place in PLACES for path in TOP.glob(place))
    found = [path.relative_to(TOP).as_posix() for path in files if decodes(path.read_text(encoding="utf-8"))]
    named = Counter(reader for row in entrances.entries() for reader in row["readers"])
    assert sorted(set(found) - set(named)) == [], "name who sends these bytes, and their bounds, in entrances.yml"
    assert sorted(set(named) - set(found)) == [], "these decode nothing any more"
    assert [name for name, count in named.items() if count > 1] == []


def test_every_row_is_complete():
    for row in entrances.entries():
        assert set(row) == {"readers", *entrances.HEADERS}, row["sender"]
        assert all(str(row[key]).strip() for key in row), row["sender"]


def test_the_page_is_the_data():
    assert entrances.PAGE.read_text(encoding="utf-8") == entrances.page(), "run tools/entrances.py"


def test_what_counts_as_decoding():
    assert decodes("json.loads(text)") and decodes("connection.getresponse()") and decodes("load_json(x)")
    assert not decodes("json.dumps(x)\nopen(y)")
