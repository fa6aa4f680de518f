# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every fleet and every input of the inventory plugin.

`HYPOTHESIS_EXAMPLES=20000 pytest tests/unit/plugins/inventory/test_properties.py` looks further than CI does.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from ansible.errors import AnsibleParserError
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory import source as inventory_source
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import Answer
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import Chips
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.fleets import (
    KINDS,
    MANY,
    bmc_ids,
    discovery_document,
    file_text,
    fleets,
    layouts,
)
from tests.fakes.inventory_plugin import inventory_of, parse, write_source

ALWAYS = {f"accel_{stack}" for stack, _generation in KINDS.values()} | {"accel_unknown", "accelerator_conflict"}


@contextmanager
def written(fleet, layout, **options):
    """Write a fleet as it is laid out, and let the BMCs of its hosts answer."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "discovery.json").write_text(json.dumps(discovery_document(fleet)))
        files = {file: file_text(file, machines) for file, machines in layout.files.items()}
        shown = {machine.name: machine.redfish for machine in fleet if machine.redfish}
        if shown:
            options.update(redfish=True, redfish_username="reader", redfish_password="secret")

        def answer(bmcs, _limits):
            return [Answer(bmc.host, Chips(bmc_ids(shown[bmc.host]), {}), None) for bmc in bmcs]

        with mock.patch.object(inventory_source, "ask_bmcs", answer):
            yield write_source(directory, files, **options)


def sort(fleet, layout):
    """Return what the plugin makes of a fleet."""
    with written(fleet, layout) as source:
        return parse(source, inventory_of({machine.name: machine.variables() for machine in layout.earlier}))


def filled(found):
    """Return the groups that have hosts, but for Ansible's own."""
    return {name: hosts for name, hosts in found.groups.items() if hosts and name not in ("all", "ungrouped")}


@st.composite
def laid_out(draw, ways=1):
    """Return a fleet, and one or more ways to lay it out."""
    fleet = draw(fleets())
    return (fleet, *(draw(layouts(fleet)) for _way in range(ways)))


@given(laid_out())
def test_hosts_are_in_the_groups_that_their_chips_imply_and_in_no_other(case):
    fleet, layout = case
    found = sort(fleet, layout)
    assert {machine.name: found.groups_of(machine.name) for machine in fleet} == {
        machine.name: machine.groups() for machine in fleet
    }
    assert set(found.groups) >= ALWAYS
    assert found.groups["all"] == {machine.name for machine in fleet}


@given(laid_out())
def test_variables_say_what_was_given_and_what_was_found(case):
    fleet, layout = case
    found = sort(fleet, layout)
    for machine in fleet:
        variables = dict(found.variables[machine.name])
        assert variables.get("accelerator_mixed", False) == (len(machine.kinds()) > 1)
        assert ("accelerator_conflict" in variables) == machine.heard()[1]
        assert ("accelerator_discovered_at" in variables) == bool(machine.discovered)
        if machine.declared and len(machine.declared.models) > 1:
            assert variables["accelerator"] == machine.declared.first()
            assert variables["accelerator_count"] == machine.declared.models[machine.declared.first()]
        given_variables = {key: value for key, value in machine.variables().items() if key != "accelerators"}
        assert {key: variables.get(key) for key in given_variables} == given_variables


@given(laid_out())
def test_every_disagreement_is_told_once(case):
    fleet, layout = case
    found = sort(fleet, layout)
    told = {machine.name for machine in fleet if machine.heard()[1]}
    assert bool(told) == any("accelerator_conflict" in text for text in found.warnings)


@given(laid_out(ways=2))
def test_the_order_of_hosts_files_and_formats_makes_no_difference(case):
    fleet, one, other = case
    first, second = sort(fleet, one), sort(fleet, other)
    assert first.groups == second.groups
    for machine in fleet:
        both = [dict(found.variables[machine.name]) for found in (first, second)]
        for variables in both:
            # A table has it as a text.
            variables.pop("accelerators", None)
        assert both[0] == both[1]


@given(laid_out())
def test_parsing_twice_gives_the_same(case):
    fleet, layout = case
    with written(fleet, layout) as source:
        earlier = {machine.name: machine.variables() for machine in layout.earlier}
        first = parse(source, inventory_of(earlier))
        again = parse(source, inventory_of(earlier))
        onto = parse(source, first.inventory)
    assert (first.groups, first.variables, first.warnings) == (again.groups, again.variables, again.warnings)
    assert first.groups == onto.groups
    assert _without_sentences(first.variables) == _without_sentences(onto.variables)


def _without_sentences(hosts):
    """Return variables without the sentence of a conflict: the second time there is a group that says so as well."""
    return {
        name: {key: key if key == "accelerator_conflict" else value for key, value in variables.items()}
        for name, variables in hosts.items()
    }


@given(fleets(), st.data())
def test_two_sources_sort_as_one_does(fleet, data):
    # Where a cluster lies has to be said once and for all, for a group's parents stay.
    fleet = [replace(machine, redfish=None, site=machine.cluster and "s 1") for machine in fleet]
    halves = [], []
    for machine in fleet:
        data.draw(st.sampled_from(halves)).append(machine)
    with tempfile.TemporaryDirectory() as name:
        inventory = None
        for number, half in enumerate(halves):
            directory = Path(name) / str(number)
            directory.mkdir()
            (directory / "discovery.json").write_text(json.dumps(discovery_document(fleet)))
            found = parse(write_source(directory, {"fleet.json": file_text("fleet.json", half)}), inventory)
            inventory = found.inventory
    assert {machine.name: found.groups_of(machine.name) for machine in fleet} == {
        machine.name: machine.groups() for machine in fleet
    }


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["h200", "cpu", "unknown", "h200:4 l40s:2", "{{ 1 }}", "\ud800", "a b", 10**4000]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.just("h200"), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["accelerator", "accelerator_count", "accelerators", "cluster", "site", "name", "vars", "ansible_port", "class"]
)
DOCUMENTS = st.one_of(
    VALUES,
    st.builds(lambda hosts: {"hosts": hosts}, VALUES),
    st.builds(
        lambda hosts: {"hosts": hosts},
        st.dictionaries(
            st.text(max_size=6) | st.sampled_from(["a", "b", "accel_cuda", "all", "accel_h200"]),
            VALUES | st.dictionaries(KEYS | st.text(max_size=6), VALUES, max_size=4),
            max_size=4,
        ),
    ),
)
WORDS = st.sampled_from(
    ["hosts", ":", ": ", "\n", "\n  ", "\n    ", "- ", "&a ", "*a", "<<", "<<: *a", "{", "}", "[", "]", ",", '"', "'",
     "|", "!!int ", "!vault ", "? ", "---\n", "...\n", "#", "%YAML 1.1\n", "\t", "name", "accelerator", "h200", "site",
     "a", "b", "0x10", "1e9", ".inf", "~", "null", "-1", "\r\n", ";", "\x00", "\x85", "\ufeff", "\u2028", "=", "!",
     "1:30", "0b1", "2026-11-21"]
)  # fmt: skip


@st.composite
def damaged(draw):
    """Return the bytes of a good file with some of them cut out, changed or put in."""
    suffix = draw(st.sampled_from(["csv", "json", "yml"]))
    content = bytearray(file_text(f"x.{suffix}", draw(fleets(3))).encode())
    for _change in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        put = draw(WORDS.map(str.encode) | st.binary(max_size=3))
        content[start : start + draw(st.integers(0, 5))] = put
    return suffix, bytes(content)


SUFFIXES = st.sampled_from(["csv", "json", "yml"])
RUBBISH = st.lists(WORDS, max_size=30).map("".join)
INPUTS = st.one_of(
    damaged(),
    st.tuples(SUFFIXES, st.binary(max_size=60)),
    st.tuples(SUFFIXES, RUBBISH.map(str.encode)),
    st.tuples(st.just("yml"), RUBBISH.map(lambda text: f"hosts:\n  a:\n    x: {text}".encode())),
)


def check_input(name, content):
    """Let the plugin read a file: it takes it, or says in which line of which file it does not."""
    with tempfile.TemporaryDirectory() as directory:
        source = write_source(Path(directory), {name: content})
        try:
            found = parse(source)
        except AnsibleParserError as exc:
            text = str(exc)
            assert re.search(rf"{re.escape(directory)}/{re.escape(name)}:[1-9]\d*: ", text), text
            assert "\n" not in text
            assert text.isprintable() or text.replace("\ufeff", "").encode()
        else:
            # What is in the inventory can be printed, cached and handed to a play.
            json.dumps(found.variables, allow_nan=False, ensure_ascii=False).encode()
            assert all(isinstance(host, str) and host for host in found.groups["all"])


@MANY
@given(INPUTS)
@example(("csv", b""))
@example(("json", b'{"hosts": {"a": {"x": 1e999}}}'))
@example(("yml", b"hosts: {a: {x: <<}}"))
@example(("yml", b"hosts: {a: {x: 0x" + b"f" * 6000 + b"}}"))
def test_no_file_raises_anything_but_an_error_with_its_line(case):
    suffix, content = case
    check_input(f"fleet.{suffix}", content)


def _plain(value):
    return json.dumps(value, ensure_ascii=True)


@MANY
@given(DOCUMENTS, st.sampled_from(["json", "yml"]))
def test_no_document_raises_anything_but_an_error_with_its_line(document, suffix):
    try:
        text = _plain(document)
    except ValueError:
        # More digits than Python writes down.
        return
    check_input(f"fleet.{suffix}", text.encode())


@MANY
@given(DOCUMENTS)
def test_no_answer_of_a_discovery_stops_the_inventory(document):
    with tempfile.TemporaryDirectory() as name:
        source = write_source(Path(name), {"fleet.csv": "name,accelerator\na,h200\nb,\n"})
        text = json.dumps({"schema": 1, "hosts": {"a": document, "b": document}}, default=str)
        (Path(name) / "discovery.json").write_text(text)
        found = parse(source)
        assert "a" in found.groups["accel_h200"]


@MANY
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_no_variable_of_an_earlier_source_raises_anything_but_a_parser_error(variables):
    with tempfile.TemporaryDirectory() as name:
        inventory = inventory_of({"gpu-1": {}})
        inventory.hosts["gpu-1"].vars.update(variables)
        try:
            parse(write_source(Path(name), {}), inventory)
        except AnsibleParserError as exc:
            assert "gpu-1" in str(exc)
