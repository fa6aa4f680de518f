# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    BUNDLED,
    declared_accelerator,
    load_catalogue,
)

from tests.fakes.sysfs import FIXTURES

TABLES = yaml.safe_load((FIXTURES / "accelerator_ids.yml").read_text())
FILES = sorted(BUNDLED.glob("*.yml"))
SCHEMA = json.loads((BUNDLED / "schema.json").read_text())

# A vendor of one's own, complete.
ACME = {
    "vendor": "acme",
    "name": "Acme",
    "stack": "acme_sdk",
    "pci_vendors": {"abcd": {"classes": ["1200"], "unknown_is_error": True}},
    "stacks": {"acme_sdk": {"devices": ["/dev/acme{index}"]}},
    "models": {"rocket": {"title": "Acme Rocket", "generation": "r1", "memory_gib": 8, "pci_ids": {"abcd:0001": {}}}},
}


@pytest.fixture
def site(tmp_path):
    """Write files into the site's own directory; return the directory."""

    def write(name="acme.yml", text=None, **changes):
        (tmp_path / name).write_text(text or json.dumps({**ACME, **changes}))
        return tmp_path

    return write


def refusal(directory):
    with pytest.raises(AcceleratorError) as caught:
        load_catalogue([directory])
    return str(caught.value)


def model(**changes):
    return {"models": {"rocket": {**ACME["models"]["rocket"], **changes}}}


FIGURE = {"value": 100, "acceptable": 0.5, "status": "datasheet", "source": "Acme"}


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        ({"bf16_tflop": FIGURE}, "unknown key 'models.rocket.expected.bf16_tflop'; nearest: 'bf16_tflops'"),
        ({"bf16_tflops": 790}, "models.rocket.expected.bf16_tflops: found 790, expected a mapping"),
        ({"bf16_tflops": {**FIGURE, "value": 0}}, "expected.bf16_tflops.value: found 0, expected a number above 0"),
        ({"bf16_tflops": {**FIGURE, "acceptable": 90}}, "acceptable: found 90, expected a fraction above 0, up to 1"),
        ({"bf16_tflops": {**FIGURE, "status": "guess"}}, "status: found 'guess', expected measured or datasheet"),
        ({"bf16_tflops": {"value": 1}}, "'models.rocket.expected.bf16_tflops.acceptable' is missing"),
    ],
)
def test_figures_that_nothing_can_be_compared_with(site, expected, told):
    assert told in refusal(site(**model(expected=expected)))


def test_figures_of_a_pci_id_replace_those_of_its_model(site):
    ids = {"abcd:0001": {}, "abcd:0002": {"expected": {"copy_tb_per_s": {**FIGURE, "value": 2}}}}
    both = {"bf16_tflops": FIGURE, "copy_tb_per_s": FIGURE}
    chips = load_catalogue([site(**model(expected=both, pci_ids=ids))]).chips
    assert chips["abcd:0001"].expected["copy_tb_per_s"].value == 100
    assert chips["abcd:0002"].expected["copy_tb_per_s"].value == 2
    assert chips["abcd:0002"].expected["bf16_tflops"].status == "datasheet"


def test_bundled_figures_are_plausible_and_peaks_are_not_expected_of_a_chip():
    figures = {
        (pci_id, name): figure
        for pci_id, chip in load_catalogue().chips.items()
        for name, figure in chip.expected.items()
    }
    assert len(figures) > 30
    assert figures["10de:2335", "bf16_tflops"].value == 790
    for place, figure in figures.items():
        lowest = 0.25 if place[1] == "peer_gb_per_s" else 0.4
        highest = 0.8 if figure.status == "datasheet" else 1
        assert lowest <= figure.acceptable <= highest, place
        assert len(figure.source) > 10, place


@pytest.mark.parametrize("key", sorted(TABLES))
def test_every_id_of_the_vendors_tables_resolves(key):
    stack, generation, sizes = TABLES[key]
    catalogue = load_catalogue()
    assert (catalogue.models[key].stack, catalogue.models[key].generation) == (stack, generation)
    found = {pci_id: chip.memory_gib for pci_id, chip in catalogue.chips.items() if chip.model == key}
    assert found == sizes


BOARDS = yaml.safe_load((FIXTURES / "nvidia_boards.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["source"]) for row in BOARDS if row["board"]])
def test_a_board_has_the_memory_that_its_driver_shows(row):
    """ECC takes a sixteenth of GDDR memory; what fits by the catalogue has to fit on the board."""
    _driver, device, mib, *_rest = row["shown"]
    assert load_catalogue().chips[f"10de:{device}"].memory_gib * 1024 == pytest.approx(mib, rel=0.01)


def test_nothing_is_in_the_catalogue_that_the_tables_do_not_have():
    catalogue = load_catalogue()
    assert set(catalogue.models) == set(TABLES)
    assert catalogue.switches.keys() == {"10de:1af1", "10de:22a3"}


@pytest.mark.parametrize("pci_id", ["1002:15bf", "1002:1638", "1002:164e", "10de:1fb0", "10de:1ff2", "10de:25b2"])
def test_graphics_of_processors_and_boards_for_screens_are_left_alone(pci_id):
    assert pci_id in load_catalogue().ignored


def test_what_vllm_cannot_serve_on_has_a_reason():
    models = load_catalogue().models
    assert {key for key in models if models[key].unsupported} == {
        *("p40", "v100", "mi50", "mi100", "ascend_310", "ascend_910", "gaudi"),
    }
    assert "7.5" in models["v100"].unsupported


def test_every_nvidia_chip_that_is_served_on_has_the_compute_capability_that_vllm_needs():
    for key, entry in load_catalogue().models.items():
        if entry.vendor == "nvidia":
            enough = float(entry.compute_capability) >= 7.5
            assert enough == (entry.unsupported is None), key


def test_the_devices_of_a_stack_reach_its_models_and_a_model_may_differ():
    models = load_catalogue().models
    assert models["h200"].devices == ("nvidia.com/gpu=all",)
    assert models["mi300x"].groups == ("render", "video")
    assert "/dev/devmm_svm" in models["ascend_a3"].devices
    assert "/dev/devmm_svm" not in models["ascend_950pr"].devices
    # The mounts that vllm-ascend's installation page gives for each chip.
    assert "/usr/local/Ascend/driver/tools/hccn_tool" in models["ascend_a3"].mounts
    assert "/usr/local/Ascend/driver" in models["ascend_950pr"].mounts
    assert not [path for path in models["ascend_310p"].mounts if "hccn_tool" in path]
    assert {"/dev/ummu", "/dev/uburma"} <= set(models["ascend_950dt"].devices)
    assert {"/etc/hccl_rootinfo.json", "/etc/hixlep"} <= set(models["ascend_950dt"].mounts)
    assert (models["gaudi3"].visible_env, models["arc_pro_b70"].visible_env) == (
        "HABANA_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_bundled_files_hold_to_the_schema(path):
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(path.read_text()))


def test_schema_and_loader_know_the_same_keys():
    from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog import accelerators as loader

    model_schema = SCHEMA["$defs"]["model"]
    pairs = [
        (SCHEMA, loader.FILE_KEYS),
        (SCHEMA["properties"]["pci_vendors"]["additionalProperties"], loader.PCI_VENDOR_KEYS),
        (SCHEMA["properties"]["stacks"]["additionalProperties"], loader.HOST_KEYS),
        (model_schema, loader.MODEL_KEYS),
        (model_schema["properties"]["pci_ids"]["additionalProperties"], loader.CHIP_KEYS),
    ]
    for schema, known in pairs:
        assert set(schema["properties"]) == set(known)
    assert set(model_schema["required"]) == set(loader.REQUIRED["model"])
    assert set(SCHEMA["required"]) == {"vendor", *loader.REQUIRED["file"]}


def test_a_vendor_of_ones_own(site):
    catalogue = load_catalogue([site()])
    assert catalogue.chips["abcd:0001"].model == "rocket"
    assert catalogue.models["rocket"].stack == "acme_sdk"
    assert "h200" in catalogue.models
    assert "rocket" not in load_catalogue().models


def test_a_short_file_adds_an_id_to_a_bundled_model_and_changes_nothing_else(site):
    models = {"h200": {"pci_ids": {"10de:23ff": {"form": "SXM"}}}}
    text = json.dumps({"vendor": "nvidia", "models": models, "ignored": {"10de:128b": "GT 710"}})
    catalogue = load_catalogue([site("nvidia.yml", text)])
    bundled = load_catalogue()
    assert catalogue.chips["10de:23ff"].memory_gib == 141
    assert catalogue.ignored["10de:128b"] == "GT 710"
    assert set(catalogue.chips) - set(bundled.chips) == {"10de:23ff"}
    assert catalogue.models["h200"] == bundled.models["h200"]
    assert catalogue.pci_vendors["10de"].classes == bundled.pci_vendors["10de"].classes


def test_a_site_can_say_that_its_build_serves_an_old_chip(site):
    text = "vendor: nvidia\nmodels: {v100: {supported: true}}\n"
    assert load_catalogue([site("old.yml", text)]).models["v100"].unsupported is None


def test_the_first_directory_wins(tmp_path):
    for name, size in (("first", 32), ("second", 48)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yml").write_text(f"vendor: ascend\nmodels: {{ascend_a2: {{memory_gib: {size}}}}}\n")
    catalogue = load_catalogue([tmp_path / "first", tmp_path / "second"])
    assert catalogue.chips["19e5:d802"].memory_gib == 32


def test_what_a_chip_lacks_is_data_that_a_site_can_change(site):
    names = {key for key, entry in load_catalogue().models.items() if "mxfp4" in dict(entry.lacks)}
    turing = {key for key, entry in load_catalogue().models.items() if entry.generation == "turing"}
    assert names - turing == {key for key, entry in load_catalogue().models.items() if "fp8" in dict(entry.lacks)}
    assert names - turing == {"ascend_310p", "ascend_a2", "ascend_a3"} and turing <= names
    assert declared_accelerator(load_catalogue(), "ascend_a2", 8).lacks == load_catalogue().models["ascend_a2"].lacks
    own = load_catalogue([site(**model(lacks={"fp8": "no kernels"}))])
    assert own.models["rocket"].lacks == (("fp8", "no kernels"),)


def test_a_catalogue_is_read_once(site):
    directory = site()
    assert load_catalogue([directory]) is load_catalogue([directory])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"modles": {}}, "unknown key 'modles'; nearest: 'models'"),
        (model(memory_gb=8), "unknown key 'models.rocket.memory_gb'; nearest: 'memory_gib'"),
        (model(memory_gib="8"), "models.rocket.memory_gib: found '8', expected a number of GiB above 0, or null"),
        (model(memory_gib=0), "models.rocket.memory_gib: found 0, expected a number of GiB above 0"),
        (model(compute_capability=9.0), "models.rocket.compute_capability: found 9.0, expected two numbers in quotes"),
        (model(devices_per_card=0), "models.rocket.devices_per_card: found 0, expected a number from 1"),
        (
            model(devices="/dev/x"),
            "models.rocket.devices: found '/dev/x', expected a list of device nodes or CDI names",
        ),
        (model(mounts=["usr"]), "models.rocket.mounts: found ['usr'], expected a list of absolute paths"),
        (
            model(lacks=["mxfp4"]),
            "models.rocket.lacks: found ['mxfp4'], expected a mapping of number formats, like mxfp4, to the reason",
        ),
        (
            model(lacks={"MXFP4": "no kernels"}),
            "models.rocket.lacks: found {'MXFP4': 'no kernels'}, expected a mapping",
        ),
        (
            model(driver={"first": 580}),
            "models.rocket.driver: found {'first': 580}, expected a mapping of first (a version in quotes)",
        ),
        (model(driver={"branch": "580"}), "models.rocket.driver: found {'branch': '580'}, expected a mapping of first"),
        (model(lacks={"mxfp4": None}), "models.rocket.lacks: found {'mxfp4': null}, expected a mapping"),
        (model(supported=False), "'models.rocket.reason' is missing; it says why supported is false"),
        (model(stack="acme_sdx"), "models.rocket.stack: 'acme_sdx' is not in stacks; nearest: 'acme_sdk'"),
        (model(pci_ids={"ABCD:0001": {}}), "models.rocket.pci_ids: found the key 'ABCD:0001', expected vendor:device"),
        (model(pci_ids={"abcd:0001": {"mem": 1}}), "unknown key 'models.rocket.pci_ids.abcd:0001.mem'"),
        (model(pci_ids={"abce:0001": {}}), "models.rocket.pci_ids.abce:0001: abce is not in pci_vendors"),
        (model(pci_ids={"10de:2335": {}}), "models.rocket.pci_ids.10de:2335 is an id of models.h200 too"),
        (model(pci_ids=["abcd:0001"]), "models.rocket.pci_ids: found ['abcd:0001'], expected a mapping"),
        ({"models": {"rocket": {"title": "R"}}}, "'models.rocket.generation' is missing"),
        ({"models": {"rocket": None}}, "models.rocket: found nothing, expected a mapping"),
        ({"models": {"cpu": {}}}, "models.cpu: this name means a host without a known accelerator"),
        ({"models": {"h200": ACME["models"]["rocket"]}}, "models.h200 is a model of nvidia too"),
        ({"models": {"Rocket": {}}}, "models: found the key 'Rocket', expected a name in lower case"),
        ({"pci_vendors": {"10de": ACME["pci_vendors"]["abcd"]}}, "pci_vendors.10de is in "),
        ({"pci_vendors": {"abcd": {"classes": ["1200"]}}}, "'pci_vendors.abcd.unknown_is_error' is missing"),
        (
            {"pci_vendors": {"abcd": {"classes": [1200]}}},
            "pci_vendors.abcd.classes: found [1200], expected a list of PCI",
        ),
        (
            {"stacks": {"acme_sdk": {"visible_env": "a b"}}},
            "stacks.acme_sdk.visible_env: found 'a b', expected the name",
        ),
        (
            {"ignored": {"abcd:0002": 1}},
            "ignored: found {'abcd:0002': 1}, expected a mapping of PCI ids to what they are",
        ),
        ({"switches": {"switch": "x"}}, "switches: found the key 'switch', expected vendor:device"),
    ],
)
def test_a_mistake_is_one_error_with_file_key_and_what_was_expected(site, changes, expected):
    directory = site(**changes)
    message = refusal(directory)
    assert message.startswith(f"{directory}/acme.yml: ")
    assert expected in message


def test_a_key_that_is_there_twice_is_an_error_and_not_half_of_the_file(site):
    directory = site(text="vendor: acme\nmodels: {}\nmodels: {}\n")
    assert re.search(r"acme.yml: cannot be read: the key 'models' is there twice(?s:.)*line 3", refusal(directory))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vendor: [", "acme.yml: cannot be read: "),
        ("- vendor\n", "acme.yml: the file: found ['vendor'], expected a mapping"),
        ("name: Acme\n", "acme.yml: 'vendor' is missing"),
        ("vendor: acme\n", "acme.yml: 'name' is missing"),
    ],
)
def test_a_file_that_is_none(site, text, expected):
    assert expected in refusal(site(text=text))


def test_a_directory_that_is_none_and_one_without_files(tmp_path):
    assert (
        refusal(tmp_path / "nope") == f"accelerator_catalog_path: {tmp_path}/nope is not a directory on the controller"
    )
    assert refusal(tmp_path) == f"accelerator_catalog_path: {tmp_path} has no *.yml file"


# What an inventory declares


def test_a_declared_model_comes_with_all_that_the_catalogue_knows():
    found = declared_accelerator(load_catalogue(), "ascend_a3", 16)
    assert (found.model, found.stack, found.generation, found.vendor, found.count) == (
        "ascend_a3", "cann", "ascend_a3", "ascend", 16,
    )  # fmt: skip
    assert (found.memory_mib, found.devices_per_card) == (64 * 1024, 2)
    assert found.visible_env == "ASCEND_RT_VISIBLE_DEVICES"
    assert "/dev/davinci{index}" in found.devices
    assert found.groups == ("HwHiAiUser",)
    assert declared_accelerator(load_catalogue(), "h200", 8).compute_capability == "9.0"


def test_what_is_known_better_goes_before_the_catalogue():
    facts = {"driver_version": "580.1", "cuda_version": None, "mec_firmware": 177}
    found = declared_accelerator(load_catalogue(), "ascend_a2", 8, 32, facts)
    assert (found.memory_mib, found.driver_version, found.cuda_version, found.mec_firmware) == (
        32 * 1024, "580.1", None, 177,
    )  # fmt: skip


def test_memory_that_nobody_knows():
    assert declared_accelerator(load_catalogue(), "strix_halo", 1).memory_mib is None
    assert declared_accelerator(load_catalogue(), "cpu", 1).memory_mib is None
    assert declared_accelerator(load_catalogue(), "cpu", 1, 7.5).memory_mib == 7680


@pytest.mark.parametrize(
    ("model_name", "message"),
    [
        ("h20O", "accelerator 'h20O' of the inventory is in no file of the catalogue; nearest: 'h20'"),
        (
            "ascend_910",
            "nothing can be served on Huawei Ascend 910 (910A, Atlas 800-9000): vLLM Ascend is built for A2, A3, "
            "310P and "
            "950, not for this chip",
        ),
    ],
)
def test_a_declared_model_that_cannot_be_served_on(model_name, message):
    with pytest.raises(AcceleratorError) as caught:
        declared_accelerator(load_catalogue(), model_name, 8)
    assert str(caught.value) == message


def test_a_station_with_one_chip_has_less_memory_than_a_node():
    catalogue = load_catalogue()
    one, four, declared = (declared_accelerator(catalogue, "gb300", *given) for given in ((1,), (4,), (1, 279)))
    assert [found.memory_mib for found in (one, four, declared)] == [252 * 1024, 279 * 1024, 279 * 1024]
