# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import selection
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.selection import (
    Selection,
    SelectionError,
    check_inventory,
)

GROUPS = {
    "all": ["gpu-1", "gpu-2", "gw-1", "nas-1"],
    "inference": ["gpu-1", "gpu-2"],
    "gateways": ["gw-1"],
    "mirrors": [],
    "ungrouped": ["nas-1"],
}


def problem(pattern, groups=None, **how):
    try:
        Selection(pattern, **how).check(groups or GROUPS, DataLoader())
    except SelectionError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize("pattern", [
    "all", "inference", "gpu-1", "gpu-*", "inference:!gpu-1", "inference,gateways", "~gpu-[0-9]", "inference[0]",
    "localhost", "inference:&gpu-*", "*",
])  # fmt: skip
@pytest.mark.parametrize("is_default", [True, False])
def test_what_selects_a_host(pattern, is_default):
    assert problem(pattern, option="target_hosts", is_default=is_default) == ""


@pytest.mark.parametrize("pattern, told", [
    ("infrence", "o_hosts: no host or group of the inventory is called 'infrence'; nearest: 'inference'"),
    ("Inference", "o_hosts: no host or group of the inventory is called 'Inference'; nearest: 'inference'"),
    ("gpu-1,gpu-9", "o_hosts: no host or group of the inventory is called 'gpu-9'; nearest: 'gpu-"),
    ("inference:!broken", "o_hosts: no host or group of the inventory is called 'broken'; the groups are all, "),
    ("gpu-7*", "o_hosts: no host of the inventory matches 'gpu-7*'; name other hosts or groups"),
    ("mirrors", "o_hosts: no host of the inventory matches 'mirrors'; name other hosts or groups"),
    *((text, "o_hosts: found an empty text, expected hosts or groups; leave it out for all") for text in ("", " ")),
    ("inference:!gpu-*", "o_hosts: no host of the inventory matches 'inference:!gpu-*'"),
])  # fmt: skip
def test_what_selects_none(pattern, told):
    assert problem(pattern, option="o_hosts", is_default=False).startswith(told)


def test_a_default_without_hosts():
    assert problem("mirrors") == "no host of the inventory is in the group 'mirrors': put hosts into it"
    assert problem("mirrors", option="o_hosts").endswith("put hosts into it, or name others with -e o_hosts=PATTERN")
    misspelt = {"all": ["gw-1"], "ungrouped": [], "gateway": ["gw-1"], "gateways": []}
    assert problem("gateways", misspelt).endswith("put hosts into it; nearest: 'gateway'")
    assert problem("inference", {"all": [], "ungrouped": []}) == (
        "the inventory has no host: name an inventory with -i, or add hosts to it"
    )


@pytest.mark.parametrize("limit, also, fits", [
    ("gpu-1", "", True), ("!gpu-1", "", True), ("gw-1", "", False), ("gw-1", "gateways", True),
    ("nas-1", "gateways", False), ("gpu-9", "", False),
])  # fmt: skip
def test_the_limit_of_the_run(limit, also, fits):
    told = problem("inference", limit=limit, also=also)
    assert told == (
        ""
        if fits
        else f"-l {limit}: none of these hosts is in 'inference', where this playbook runs; name others with -l"
    )


def test_the_controller_is_not_in_a_limit():
    assert (
        problem("localhost", limit="gpu-1") == "-l gpu-1: this playbook runs on the controller only; run it without -l"
    )
    assert problem("localhost", limit="localhost") == ""


def test_a_second_play_with_the_same_selection_costs_nothing(monkeypatch):
    assert problem("inference", limit="gpu-2") == ""
    monkeypatch.setattr(selection, "_inventory", None)
    assert problem("inference", limit="gpu-2") == ""
    with pytest.raises(TypeError):
        problem("inference", limit="gpu-2", groups={**GROUPS, "all": [*GROUPS["all"], "gpu-3"]})


def test_a_large_inventory_is_not_listed():
    groups = {
        "all": [f"host{number}" for number in range(5000)],
        **{f"rack_{number}": ["host1"] for number in range(500)},
    }
    told = problem("zzz", groups, option="o_hosts", is_default=False)
    assert "and 489 more" in told and len(told) < 400


def site(tmp_path, *files):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return [str(tmp_path / "hosts.yml")]


def test_a_file_of_variables_whose_group_is_misspelt_is_refused(tmp_path):
    sources = site(tmp_path, "hosts.yml", "group_vars/infrence.yml")
    with pytest.raises(SelectionError, match=r"/infrence\.yml: .* no group 'infrence'; nearest: 'inference'$"):
        check_inventory({"all": ["gpu-1"], "inference": ["gpu-1"]}, sources, strict=True)


def test_a_file_for_another_inventory_beside_this_one_is_no_error(tmp_path):
    sources = site(tmp_path, "hosts.yml", "group_vars/gateways2.yml", "group_vars/inference_eu.yml")
    check_inventory({"all": ["gpu-1"], "inference": ["gpu-1"], "gateways": ["gpu-1"]}, sources, strict=True)


def test_a_playbook_that_must_work_whatever_else_is_wrong_warns_of_misspelt_groups(tmp_path):
    sources = site(tmp_path, "hosts.yml", "group_vars/gatways.yml")
    groups = {"all": ["gpu-1"], "inference": ["gpu-1"], "mirror": ["gpu-1"]}
    group, file = check_inventory(groups, sources, strict=False)
    assert "'mirror'" in group and "nearest: 'mirrors'" in group and file.endswith("nearest: 'gateways'")
    with pytest.raises(SelectionError, match="'mirror'"):
        check_inventory(groups, sources, strict=True)


def test_a_file_of_variables_that_misspells_a_name_of_the_site_is_a_warning(tmp_path):
    files = ("group_vars/acount.yml", "group_vars/accel_b300.yml", "group_vars/other", "host_vars/gpua-1.yml")
    sources = site(tmp_path, "hosts.yml", *files, "host_vars/gpu-a-2.yml", "host_vars/localhost.yml")
    groups = {"all": ["gpu-a-1"], "account": ["gpu-a-1"], "accel_b200": []}
    told = [text.removeprefix(f"{tmp_path}/") for text in check_inventory(groups, [*sources, "gpu-a-1,"], strict=True)]
    assert told == [
        "group_vars/acount.yml: the inventory has no group 'acount'; nearest: 'account'; nothing reads the file",
        "host_vars/gpua-1.yml: the inventory has no host 'gpua-1'; nearest: 'gpu-a-1'; nothing reads the file",
        "host_vars: nothing reads gpu-a-2.yml: the inventory has no host of this name",
    ]


@pytest.mark.parametrize("file", ["gpu-a-1.yml", "GPU-A-01.yml", "gpu_a_01", "gpu-a-001.json"])
def test_a_file_of_variables_whose_host_is_spelt_otherwise_is_refused(tmp_path, file):
    sources = site(tmp_path, "hosts.yml", f"host_vars/{file}")
    groups = {"all": ["gpu-a-01", "gpu-b-01"], "inference": ["gpu-a-01"]}
    told = rf"/{file}: the inventory has no host '[\w-]+'; nearest: 'gpu-a-01'$"
    with pytest.raises(SelectionError, match=told):
        check_inventory(groups, sources, strict=True)
    (warning,) = check_inventory(groups, sources, strict=False)
    assert warning.endswith("nearest: 'gpu-a-01'")


@pytest.mark.parametrize(("files", "count"), [
    (["gpu-a-1.yml", "gpu-a-01.yml"], 1),  # the host has a file, and the other may be in another inventory
    (["gpu-a-02.yml", "gpu-b-77.yml"], 1),  # hosts that have left, or that come
    (["gpu-1.example.com"], 0), (["gpu-1.example.com.yml"], 0), (["gpu-1.example.com.yml~"], 0),
])  # fmt: skip
def test_a_file_of_variables_for_another_host_is_no_error(tmp_path, files, count):
    sources = site(tmp_path, "hosts.yml", *(f"host_vars/{file}" for file in files))
    told = check_inventory({"all": ["gpu-a-01", "gpu-1.example.com"], "inference": []}, sources, strict=True)
    assert len(told) == count and all("nothing reads" in text for text in told)


@pytest.mark.parametrize(("files", "why"), [
    (["inference.yml", "inference.yaml"], "inference.yaml: Ansible reads inference.yml in place of it"),
    (["inference.yml", "inference/a.yml"], "inference.yml: Ansible reads inference in place of it"),
    (["inference.yml.bak"], "inference.yml.bak: Ansible reads no file with this ending; expected inference.yml"),
    (["inference.txt"], "inference.txt: Ansible reads no file with this ending; expected inference.yml"),
    (["inference.yml/a.txt"], "inference.yml: found a directory without a file that Ansible reads"),
    (["inference.yml", "inference.yml.bak"], ""), (["inference/a.yml"], ""),
    (["inference.yml/a.yml"], ""), (["inference"], ""), (["README.md"], ""),
])  # fmt: skip
def test_a_file_that_ansible_passes_over_is_named(tmp_path, files, why):
    for file in files:
        path = tmp_path / "group_vars" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("vllm_release: '1'\n", encoding="utf-8")
    told = check_inventory({"all": ["gpu-1"], "inference": ["gpu-1"]}, site(tmp_path, "hosts.yml"), strict=True)
    assert len(told) == bool(why) and why in "".join(told)
    # Ansible's own reader agrees: with a warning, a file of the site does not count.
    read = DataLoader().find_vars_files(str(tmp_path / "group_vars"), "inference")
    assert (len(read) == 1) is (not why or len(files) == 2) or files == ["README.md"]


def test_a_link_to_nothing_does_not_hide_a_file(tmp_path):
    sources = site(tmp_path, "hosts.yml", "group_vars/inference.yaml")
    (tmp_path / "group_vars/inference.yml").symlink_to("/nope")
    (told,) = check_inventory({"all": ["gpu-1"], "inference": ["gpu-1"]}, sources, strict=True)
    assert told == f"{tmp_path}/group_vars/inference.yml: found a link to nothing, expected a file"
