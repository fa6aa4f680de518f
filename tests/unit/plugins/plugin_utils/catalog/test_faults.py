# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from collections import Counter

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.cann.counters import HEALTHS
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.counters import (
    ECC_OFF,
    ERROR_VALUES,
    FAULTS,
    STATES,
)
from ansible_collections.baremetal.inference.plugins.module_utils.health.signs import MISSING
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.counters import SILENT
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog import faults as loader
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import (
    BUNDLED,
    FaultsError,
    faults_of_host,
    load_faults,
)

SCHEMA = json.loads((BUNDLED / "schema.json").read_text())
FILES = sorted(BUNDLED.glob("*.yml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_bundled_files_hold_to_the_schema(path):
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(path.read_text()))


def test_schema_and_loader_know_the_same_keys():
    assert set(SCHEMA["properties"]) == set(loader.FILE_KEYS)
    assert set(SCHEMA["$defs"]["kind"]["properties"]) == set(loader.KIND_KEYS)
    assert set(SCHEMA["$defs"]["fault"]["properties"]) == set(loader.FAULT_KEYS)
    assert tuple(SCHEMA["$defs"]["fault"]["properties"]["action"]["enum"]) == loader.ACTIONS


def test_every_published_code_is_there():
    """172 XIDs, 93 SXids, AMD's 34 AFIDs, and the 802 different codes among the 804 of Huawei's eight lists."""
    kinds = {
        name: kind for vendor in ("nvidia", "amd", "ascend") for name, kind in load_faults()[vendor]["kinds"].items()
    }
    assert set(kinds["afid"]["faults"]) == {*(str(number) for number in range(1, 35)), "none"}
    assert {code for code in kinds["xid"]["faults"] if "." not in code} == {str(number) for number in range(1, 173)}
    assert len(kinds["sxid"]["faults"]) == 93
    assert len(kinds["event"]["faults"]) == 802


def test_the_actions_of_huaweis_codes_follow_its_classes():
    actions = Counter(fault["action"] for fault in load_faults()["ascend"]["kinds"]["event"]["faults"].values())
    # 33 + 26, 23 + 162, 215 + 200, 13 and 132 codes in Huawei's lists, two of them in two lists.
    assert actions["restart_instance"] in (57, 58, 59)
    assert actions["reset_chip"] in (183, 184, 185)
    assert actions["isolate_host"] in (413, 414, 415)
    assert actions["report"] in (12, 13)
    assert sum(actions.values()) == 802


@pytest.mark.parametrize(
    ("code", "action", "back"),
    [
        ("13", "report", ""), ("31", "report", ""), ("43", "report", ""), ("45", "report", ""), ("48", "report", ""),
        ("63", "ignore", ""), ("64", "isolate_host", "hand"), ("74", "reset_chip", "boot"),
        ("79", "isolate_host", "boot"), ("94", "report", ""), ("95", "reset_chip", "boot"),
        ("119", "reset_chip", "boot"), ("145.fatal", "reset_chip", "boot"),
    ],
)  # fmt: skip
def test_what_the_host_does_about_an_xid(code, action, back):
    fault = faults_of_host("cuda")["kinds"]["xid"]["faults"][code]
    assert (fault["action"], fault["back"]) == (action, back)


def test_every_state_that_the_tools_report_is_listed():
    """The counters of chips name states in words, and these words are the codes."""
    of_nvidia_smi = {what for _path, _bad, what in FAULTS} | {what for _pattern, what in ERROR_VALUES}
    of_nvidia_smi |= {what for _path, known, unlisted in STATES for what in (*known.values(), unlisted) if what}
    assert set(load_faults()["nvidia"]["kinds"]["state"]["faults"]) == of_nvidia_smi | {ECC_OFF, MISSING}
    assert set(load_faults()["amd"]["kinds"]["state"]["faults"]) == {MISSING, SILENT}
    of_npu_smi = {f"npu-smi reports the health {word}" for word in HEALTHS}
    assert set(load_faults()["ascend"]["kinds"]["state"]["faults"]) == of_npu_smi | {
        MISSING,
        "npu-smi reports an unknown health",
    }


def test_a_host_gets_the_faults_of_its_stack_and_those_of_hosts():
    assert set(faults_of_host("rocm")["kinds"]) == {"log", "afid", "state", "pcie", "disk", "vllm"}
    assert set(faults_of_host("cpu")["kinds"]) == {"pcie", "disk", "vllm"}
    assert json.loads(json.dumps(faults_of_host("cann"))) == faults_of_host("cann")


def site(tmp_path, text, name="nvidia"):
    (tmp_path / f"{name}.yml").write_text(text)
    return [str(tmp_path)]


def test_a_site_lays_its_own_actions_over_the_bundled_ones(tmp_path):
    text = "vendor: nvidia\nkinds: {xid: {faults: {'79': {action: report, back: null}}}}\n"
    with pytest.raises(FaultsError, match="back: found nothing"):
        load_faults(site(tmp_path, text))
    own = tmp_path / "own"
    own.mkdir()
    text = "vendor: nvidia\nkinds: {xid: {faults: {'95': {action: isolate_host}}}}\n"
    faults = faults_of_host("cuda", site(own, text))
    assert faults["kinds"]["xid"]["faults"]["95"]["action"] == "isolate_host"
    assert faults["kinds"]["xid"]["faults"]["95"]["meaning"]
    assert faults["kinds"]["xid"]["faults"]["79"]["action"] == "isolate_host"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vendor: amd\nkinds: {}\n", "vendor: found 'amd', expected the name of the file, 'nvidia'"),
        ("kind: {}\n", "unknown key 'kind'; nearest: 'kinds'"),
        ("kinds: {xid: {fault: {}}}\n", "unknown key 'kinds.xid.fault'; nearest: 'faults'"),
        ("kinds: {xid: {faults: {79: {action: report}}}}\n", "found the key 79, expected a text in quotes"),
        ("kinds: {xid: {faults: {'79': {action: reset}}}}\n", "faults.79.action: found 'reset'"),
        ("kinds: {xid: {faults: {'13': {action: isolate_host}}}}\n", "a program caused this fault"),
        ("kinds: {xid: {faults: {'13': {back: boot}}}}\n", "report takes nothing out of service"),
        ("kinds: {xid: {faults: {'13': {source: catalog}}}}\n", "found 'catalog'; nearest: 'catalogue'"),
        ("kinds: {xid: {pattern: '(('}}\n", "pattern: found '((', expected a regular expression"),
        ("kinds: {xid: {pattern: 'Xid'}}\n", "pattern: has no group"),
        ("kinds: {xid: {faults: {'79.fatale': {meaning: x, action: report}}}}\n", "nearest: 'fatal'"),
        ("kinds: {xid: {faults: {'173': {action: report}}}}\n", "faults.173.meaning: is missing"),
        ("kinds: [xid]\n", "kinds: found ['xid'], expected a mapping"),
        ("- vendor\n", "expected a mapping"),
        ("vendor: {\n", "nvidia.yml"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path, text, message):
    text = text if text.startswith(("vendor", "-")) else f"vendor: nvidia\n{text}"
    with pytest.raises(FaultsError) as error:
        load_faults(site(tmp_path, text))
    assert message in str(error.value)
    assert str(tmp_path / "nvidia.yml") in str(error.value)


@pytest.mark.parametrize(("name", "message"), [("missing", "is not a directory"), ("empty", "has no *.yml file")])
def test_a_directory_without_files_is_refused(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FaultsError) as error:
        load_faults([str(tmp_path / name)])
    assert f"health_fault_path: {tmp_path / name} {message}" in str(error.value)
