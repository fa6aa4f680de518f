# SPDX-License-Identifier: GPL-3.0-or-later
"""A record: what an instance writes is what a gateway reads."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import (
    DAY,
    DIGEST,
    INSTANCE,
    LARGEST,
    MOST_TOKENS,
    SERVICE,
    Asked,
    Part,
    Tokens,
    digest_of,
    file_name,
    head_of,
    header_of_reader,
    key_of,
    line_of,
    proven_by,
    read_parts,
    record_of,
    row_of,
)


def test_what_is_written_is_what_is_read():
    asked = Asked.from_header(b"gw1 alice research r-1 1764077502")
    line = line_of(3, record_of(asked, asked.at, "m", "aborted", Tokens(7, 3, 5)))
    (part,) = read_parts((head_of("100.7-1.jsonl", 90) + line).decode())
    assert (part.file, part.end, part.process) == ("100.7-1.jsonl", 90, "7-1") and part.records[0]["number"] == 3
    assert row_of(part.records[0], asked.at, 0) == {
        "gateway": "gw1", "client": "alice", "team": "research", "model": "m", "prompt": 7, "cached": 3,
        "completion": 5, "at": 1764077502, "hour": 1764075600, "aborted": 1, "uncounted": 0, "id": "r-1",
    }  # fmt: skip


@pytest.mark.parametrize("header", [b"", b"gw1", b"gw1 alice - id -5", b"gw1 alice - id " + b"9" * 12, b"\xff" * 300])
def test_a_header_that_lacks_something_is_no_error(header):
    asked = Asked.from_header(header)
    assert asked.at == -1 and len(asked.gateway) <= 128


def test_a_key_proves_for_its_kind_and_name_only():
    header = header_of_reader(key_of("s" * 32, INSTANCE, "a--chat"), "n").encode()
    for kind, name, known in ((INSTANCE, "a--chat", True), (INSTANCE, "b--chat", False), (SERVICE, "a--chat", False)):
        words = [f"{kind}:{key_of('s' * 32, kind, name)}"]
        assert bool(proven_by(header, words, INSTANCE)) is known
        # HAProxy's hex is in upper case.
        told, _space, proof = header.rpartition(b" ")
        assert bool(proven_by(told + b" " + proof.upper(), words, INSTANCE)) is known


def test_the_key_of_a_service_reads_no_records_and_that_of_an_instance_asks_for_none():
    """An instance knows the keys of both kinds; a service's key is that of all its instances."""
    keys = {kind: key_of("s" * 32, kind, "chat") for kind in (SERVICE, INSTANCE)}
    words = [f"{kind}:{key}" for kind, key in keys.items()]
    for kind, other in ((SERVICE, INSTANCE), (INSTANCE, SERVICE)):
        header = header_of_reader(keys[kind], "n").encode()
        assert proven_by(header, words, kind) and not proven_by(header, words, other)


@pytest.mark.parametrize("header", [b"", b" ", b"-", b"gw a - i 1", b"gw a - i 1 \xff", b"gw a - i 1 -", b"x" * 9999])
@pytest.mark.parametrize("words", [["service:"], ["service:A"], ["service:!"], ["sha256:"], ["x:y"], ["service"]])
def test_what_is_damaged_or_odd_proves_nothing(header, words):
    assert not proven_by(header, words, SERVICE)


def test_only_the_secret_itself_proves_to_who_has_its_digest():
    words = [f"{DIGEST}:{digest_of('s' * 32)}"]
    assert proven_by(b"gw a - i 1 " + b"s" * 32, words, SERVICE)
    assert not proven_by(b"gw a - i 1 " + b"t" * 32, words, SERVICE)


def test_a_key_that_is_empty_proves_nothing():
    assert not proven_by(header_of_reader("", "n").encode(), ["instance:"], INSTANCE)


def test_a_client_without_team_and_an_open_gateway_have_no_names():
    row = row_of({"number": 1, **record_of(Asked.from_header(b"gw1 - - r"), 5, "m", "complete", Tokens())}, 5, 0)
    assert (row["client"], row["team"], row["id"]) == ("", "", "r")


@pytest.mark.parametrize(("at", "stored"), [(5, 100), (50, 50), (100 + DAY, 100 + DAY), (101 + DAY, 100)])
def test_a_time_of_a_clock_that_is_quite_wrong_is_not_stored(at, stored):
    record = {"number": 1, **record_of(Asked.from_header(b"gw1 a t r"), at, "m", "complete", Tokens())}
    assert row_of(record, 100, 10)["at"] == stored


def test_a_record_is_in_the_hour_of_its_request_for_a_week():
    record = {"number": 1, **record_of(Asked.from_header(b"gw1 a t r"), 30 * DAY, "m", "complete", Tokens())}
    assert row_of(record, 37 * DAY, 0)["at"] == 30 * DAY and row_of(record, 38 * DAY, 0)["at"] == 38 * DAY


def test_half_a_surrogate_pair_in_a_name_is_replaced():
    record = {"number": 1, **record_of(Asked.from_header(b"gw1 a t r"), 5, "m\ud800", "complete", Tokens())}
    assert row_of({**record, "id": "\udfff"}, 5, 0).items() >= {"model": "m?", "id": "?"}.items()


@pytest.mark.parametrize("change", [{"number": LARGEST + 1}, {"prompt": MOST_TOKENS + 1}, {"cached": -1}])
def test_a_number_that_no_database_takes_is_damage(change):
    record = {"number": 1, **record_of(Asked.from_header(b"gw1 a t r"), 5, "m", "complete", Tokens()), **change}
    with pytest.raises(ValueError, match="no count"):
        row_of(record, 5, 0)


def test_the_newest_file_has_the_largest_number_whatever_the_clock_says():
    assert file_name([], 50, "7-1") == "50.7-1.jsonl"
    assert file_name(["10.7-1.jsonl", "90.7-1.jsonl"], 50, "8-1") == "91.8-1.jsonl"
    assert file_name(["x.jsonl"], 50, "8-1") == "50.8-1.jsonl"


@pytest.mark.parametrize("line", ["x", "[1]", "{", "[" * 100_000, '{"a":' * 100_000, "\x00"])
def test_a_line_that_is_no_record_is_left_out(line):
    (part,) = read_parts("\n".join(['{"file": "f", "end": 3}', line, '{"number": 1}']))
    assert part == Part("f", 3, [{"number": 1}])


@pytest.mark.parametrize(
    "text",
    ["x" * 3_000_000, "{}\n" * 30_000, '{"file": "%s", "end": 1}' % ("x" * 5000), '{"file": "\\ud800", "end": 1}'],
)
def test_an_answer_that_no_instance_sends_is_refused(text):
    """The names of files stay in the database of the gateway, and in the next request."""
    with pytest.raises(ValueError, match=r"larger than|no name"):
        read_parts(text)


def test_of_a_record_the_known_fields_are_kept():
    line = json.dumps({"number": 1, "at": [[]] * 50, "more": [{}] * 50, "id": "r"})
    assert read_parts('{"file": "f", "end": 3}\n' + line) == [Part("f", 3, [{"number": 1, "id": "r"}])]
    assert read_parts('{"file": "f", "end": 3}\n{"number": 1, "x": "' + "x" * 20_000 + '"}') == [Part("f", 3, [])]


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("client", "alice", True), ("client", "-", True), ("client", "", True), ("team", "", True),
        # The key of a team among budgets, and what becomes a text only later.
        ("client", "@research", False), ("client", 42, False), ("team", 42, False), ("team", True, False),
        ("client", "a" * 65, False), ("client", "a b", False), ("client", "\ud800", False), ("team", "\u0660", False),
        ("gateway", "gw-1.example.org", True), ("gateway", "", False), ("gateway", "g" * 129, False),
        ("model", "org/model:tag", True), ("model", "", True), ("model", "m" * 129, False), ("model", "a\nb", False),
        ("model", 5, False),
    ],
)  # fmt: skip
def test_a_record_has_names_that_a_gateway_writes(field, value, kept):
    found = {"client": "c", "team": "t", "gateway": "g", "model": "m", field: value}
    text = head_of("1.p.jsonl", 9).decode() + line_of(1, found).decode()
    ((record,),) = [part.records for part in read_parts(text)]
    assert record[field] == (value if kept else "unknown")
    # Neither of both is believed where one is odd.
    if field in ("client", "team") and not kept:
        assert record["client"] == record["team"] == "unknown"
