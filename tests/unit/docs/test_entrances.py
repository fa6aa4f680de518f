# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file that reads or decodes what others send is in one row of docs/explain/entrances.yml."""

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
# From a socket, a file, or a program.
RECEIVERS = {
    "getresponse", "recv", "recvfrom", "recv_into", "urlopen", "read_text", "read_bytes", "run_command", "communicate",
    "check_output",
}  # fmt: skip
READERS = {"open", "os.read", "text_of", "bytes_of", "subprocess.run"}
PLACES = ("plugins/**/*.py", "roles/*/files/*.py", "playbooks/files/*.py")


def reads(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name == "open":
        modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
        return not any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax") for mode in modes)
    if name in ("text_of", "bytes_of"):
        # Of a file; the room redfish has one of a document and a key.
        return len(call.args) == 1
    return name in DECODERS or name in READERS or name.rpartition(".")[2] in RECEIVERS


def decodes(source: str) -> bool:
    return any(isinstance(node, ast.Call) and reads(node) for node in ast.walk(ast.parse(source)))


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
    for call in ("json.loads(t)", "c.getresponse()", "load_json(x)", "open(y)", 'open(y, "rb")',
                 "module.run_command(w)", "subprocess.run(w)", "text_of(p)", "Path(p).read_text()",
                 "os.read(d, 5)"):  # fmt: skip
        assert decodes(call), call
    for call in ("json.dumps(x)", 'open(y, "w")', 'open(y, mode="xb")', 'text_of(document, "Id")', "run(w)"):
        assert not decodes(call), call
