# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file that reads or decodes what others send is in one row of docs/explain/entrances.yml."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.fakes.sources import called, nodes_of, text_of
from tools import entrances

TOP = Path(__file__).resolve().parents[3]
DECODERS = {
    "ast.literal_eval", "csv.reader", "csv.DictReader", "find_document", "json.load", "json.loads", "load_json",
    "marshal.loads", "pickle.load", "pickle.loads", "sqlite3.connect", "tarfile.open", "tomllib.load", "yaml.compose",
    "yaml.load", "yaml.load_all", "yaml.parse", "yaml.safe_load", "yaml.safe_load_all", "zipfile.ZipFile",
}  # fmt: skip
# From a socket, a file, a program, or a request to a server (ASGI), or out of a format.
RECEIVERS = {
    "accept", "check_output", "communicate", "fromstring", "getresponse", "iterparse", "makefile", "Popen", "popen",
    "raw_decode", "read_bytes", "read_text", "readline", "readlines", "receive", "_receive", "recv", "recv_into",
    "recvfrom", "recvmsg", "run_command", "unpack_from", "urlopen",
}  # fmt: skip
READERS = {"os.read", "bytes_of", "sys.stdin.read", "self.rfile.read", "subprocess.run"}
PLACES = ("plugins/**/*.py", "roles/*/files/*.py", "bin/inference", "tools/command/*.py")
# In HAProxy and nginx: each of these reads requests or answers.
PROGRAMS = ("roles/*/files/*.lua",)


def reads(call: ast.Call) -> bool:
    name = called(call)
    if name == "os.open":
        return "O_WRONLY" not in ast.unparse(call)
    if name == "open" or name.endswith(".open"):
        # Of a path the mode is the first word.
        modes = [*call.args[name == "open" :][:1], *(word.value for word in call.keywords if word.arg == "mode")]
        return not any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax") for mode in modes)
    if name == "text_of":
        # Of a file; the room redfish has one of a document and a key.
        return len(call.args) == 1
    return name in DECODERS or name in READERS or name.rpartition(".")[2] in RECEIVERS


def decodes(source: str) -> bool:
    # The callbacks have one of a message.
    others = {"text_of"} if re.search(r"def text_of|\.output import .*text_of", source) else set()
    calls = (node for node in nodes_of(source) if isinstance(node, ast.Call))
    return any(reads(call) and called(call) not in others for call in calls)


def test_every_reader_is_in_one_row():
    files = sorted(path for place in PLACES for path in TOP.glob(place))
    found = [path.relative_to(TOP).as_posix() for path in files if decodes(text_of(path))]
    found += [path.relative_to(TOP).as_posix() for place in PROGRAMS for path in TOP.glob(place)]
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
                 "os.read(d, 5)", "bytes_of(p, 9)", "path.open()", 'path.open("rb")', "os.open(p, os.O_RDONLY)",
                 "ElementTree.fromstring(t)", "sys.stdin.read(9)", "subprocess.Popen(w)", "await self._receive()",
                 "zipfile.ZipFile(p)", "sqlite3.connect(p)", "connection.recvmsg(9)", "decoder.raw_decode(t)",
                 "self.rfile.read(5)", "tarfile.open(p)", "server.accept()"):  # fmt: skip
        assert decodes(call), call
    for call in ("json.dumps(x)", 'open(y, "w")', 'open(y, mode="xb")', 'text_of(document, "Id")', "run(w)",
                 'path.open("w")', 'path.open(mode="xb")', "os.open(p, os.O_WRONLY | os.O_CREAT)"):  # fmt: skip
        assert not decodes(call), call
