# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a BMC answers is chips or a RedfishError, nothing else, in a bounded number of requests.

REDFISH_FUZZ_EXAMPLES=15000 looks longer: some four minutes of one processor.
"""

from __future__ import annotations

import copy
import json
import os

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import (
    Chips,
    RedfishError,
    found,
    model_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.reader import MAX_DOCUMENTS
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.survey import survey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.redfish_machines import MACHINES, ROOT, read_documents

CATALOGUE = load_catalogue()
RECORDED = {name: build() for name, (build, _models) in MACHINES.items() if "names" not in name}

looking = settings(
    max_examples=int(os.environ.get("REDFISH_FUZZ_EXAMPLES", "150")),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

WORDS = (
    "@odata.id Members Members@odata.nextLink Systems Chassis Processors PCIeDevices PCIeFunctions Links Status State "
    "Id Name Manufacturer Model PartNumber ProcessorType VendorId DeviceId ClassCode DeviceClass FunctionType "
    "ProtocolFeaturesSupported ExpandQuery NoLinks Levels MaxLevels"
)
KEYS = WORDS.split()
PATHS = [ROOT, f"{ROOT}/Systems", f"{ROOT}/Systems/1", f"{ROOT}/Chassis/1", f"{ROOT}/Systems/1/Processors", f"{ROOT}/x"]

texts = st.one_of(
    st.sampled_from(
        [*PATHS, "GPU", "Accelerator", "Absent", "Virtual", "0x10de", "0x2335", "0x030200", "NVIDIA H200", "N/A", "-1"]
    ),
    st.text(max_size=20),
)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=5)), inner, max_size=6),
        st.builds(lambda path: {"@odata.id": path}, texts),
    ),
    max_leaves=20,
)
links = st.builds(lambda path: {"@odata.id": path}, st.sampled_from(PATHS))
# Documents that lead on: without the right keys in the right places, the survey would end at the first one.
documents = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "Systems": links,
            "Chassis": links,
            "Members": st.lists(st.one_of(links, values), max_size=4),
            "Members@odata.nextLink": st.sampled_from(PATHS),
            "Processors": st.one_of(links, values),
            "PCIeDevices": st.one_of(links, st.lists(links, max_size=4), values),
            "PCIeFunctions": st.one_of(links, st.lists(links, max_size=4), values),
            "Links": st.one_of(st.dictionaries(st.sampled_from(KEYS), st.lists(links, max_size=3)), values),
            "Id": leaves,
            "ProcessorType": st.sampled_from(["GPU", "Accelerator", "CPU", None, 7]),
            "Model": leaves,
            "VendorId": leaves,
            "DeviceId": leaves,
            "ClassCode": leaves,
            "Status": st.one_of(values, st.just({"State": "Enabled"})),
            "ProtocolFeaturesSupported": st.one_of(
                values, st.just({"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 9}})
            ),
        },
    ),
)


def check(chips):
    """Chips are what they say, come back from the cache, and the catalogue makes something of them."""
    assert Chips.from_dict(json.loads(json.dumps(chips.as_dict()))) == chips
    assert all(len(pci_id) == 9 and count > 0 for pci_id, count in chips.ids.items())
    assert all(name.isprintable() and len(name) <= 120 for name in chips.names)
    json.dumps(chips.as_dict(), ensure_ascii=False).encode()
    models, unknown = found(chips, CATALOGUE)
    assert set(models) <= set(CATALOGUE.models)
    assert all(entry["count"] > 0 for entry in unknown)


@looking
@given(st.data())
def test_any_answers_to_what_is_asked(data):
    steps, answers, asked = survey(), None, 0
    try:
        while True:
            wanted = next(steps) if answers is None else steps.send(answers)
            assert wanted
            asked += len(wanted)
            assert asked <= MAX_DOCUMENTS
            assert all(item.path.startswith("/redfish/") and 0 <= item.levels <= 3 for item in wanted)
            answers = {item.path: data.draw(documents) if asked < 25 else None for item in wanted[:10]}
    except RedfishError as exc:
        assert str(exc).isprintable()
    except StopIteration as done:
        check(done.value)


def places(value, before=()):
    """Return the places of all values in a document."""
    found_here = [before] if before else []
    if isinstance(value, dict):
        for key in value:
            found_here += places(value[key], (*before, key))
    elif isinstance(value, list):
        for number in range(len(value)):
            found_here += places(value[number], (*before, number))
    return found_here


@looking
@given(st.sampled_from(sorted(RECORDED)), st.data())
def test_machines_with_something_changed(name, data):
    machine = dict(RECORDED[name])
    for _number in range(data.draw(st.integers(1, 6))):
        path = data.draw(st.sampled_from(sorted(machine)))
        document = machine[path] = copy.deepcopy(machine[path])
        spots = places(document)
        if not spots or data.draw(st.integers(0, 9)) == 0:
            machine[path] = data.draw(documents)
            continue
        *way, last = data.draw(st.sampled_from(spots))
        for step in way:
            document = document[step]
        if data.draw(st.booleans()):
            document[last] = data.draw(values)
        else:
            del document[last]
    try:
        check(read_documents(machine))
    except RedfishError as exc:
        assert str(exc).isprintable()


@looking
@given(values)
def test_anything_in_the_cache(value):
    try:
        chips = Chips.from_dict(value)
    except RedfishError:
        return
    assert Chips.from_dict(chips.as_dict()) == chips
    found(chips, CATALOGUE)


@looking
@given(
    st.one_of(
        st.text(), st.lists(st.sampled_from(["NVIDIA", "H100", "NVL", "910", "B", "Ascend", "_", "93"])).map("".join)
    )
)
def test_any_name(name):
    assert model_of(name, CATALOGUE) in {None, *CATALOGUE.models}
