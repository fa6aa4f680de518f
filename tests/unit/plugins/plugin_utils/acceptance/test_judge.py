# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that are healthy, and that fall short in each way."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.acceptance.judge import judge

BENCH = {
    "concurrency": 16, "requests": 64, "input_tokens": 1024, "output_tokens": 256,
    "output_tokens_per_second": 2400.0, "ttft_ms": 210.0, "tpot_ms": 6.1, "itl_p99_ms": 9.0,
}  # fmt: skip
CHIPS = ("0000:1b:00.0", "0000:43:00.0")
MEASURED = {"status": "measured", "source": "one H200"}
EXPECTED = {
    "bf16_tflops": {"value": 790, "acceptable": 0.9, **MEASURED},
    "copy_tb_per_s": {"value": 4.3, "acceptable": 0.9, **MEASURED},
    "peer_gb_per_s": {"value": 450, "acceptable": 0.7, "status": "datasheet", "source": "NVIDIA"},
}


def counters(chip, **changes):
    return {
        "chip": chip, "errors": {"ECC DRAM correctable": 0, "PCIe replays": 1}, "slowed": {"hw_therm_slowdown": 0},
        "slowing": [], "capped": False, "faults": [], "link_width": 16, "link_width_max": 16, "link_gen": 5,
        "link_gen_max": 5, "celsius": {"gpu": 66}, "watts": 690, "watts_limit": 700, **changes,
    }  # fmt: skip


def healthy():
    """Return the measurements of a healthy machine with two H200, on which everything was tried."""
    figures = {"lowest": 780, "highest": 800, "windows": [], "wrong": 0}
    return {
        "expected": dict.fromkeys(CHIPS, EXPECTED),
        "driver": {"findings": [], "later": [], "active": ["nvidia-persistenced.service"]},
        "burn_in": {
            "problem": "",
            "measured": {
                "products": [{"chip": n, "address": chip, "median": 788, **figures} for n, chip in enumerate(CHIPS)],
                "copy": [{"chip": n, "median": 4.28, **figures} for n in range(2)],
                "peer": [
                    {"from": n, "to": 1 - n, "direct": True, "wrong": 0, "median": 390, "lowest": 380, "highest": 391}
                    for n in range(2)
                ],
            },
            "counters": {
                "before": [counters(chip, link_gen=1) for chip in CHIPS],
                "samples": [counters(chip, capped=True) for chip in CHIPS],
                "after": [counters(chip, link_gen=1) for chip in CHIPS],
                "problem": "",
            },
        },
        "storage": {"problem": "", "gb_per_s": 6.1, "direct": True},
        "network": {"problem": "", "gbit_per_s": 93.0},
        "limits": {"storage_gb_per_s": 5, "network_gbit_per_s": 90, "bench_tokens_per_s": 1000},
        "chats": [{"item": "chat", "ok": True}],
        "benches": [{"item": "chat", "figures": BENCH}],
    }


def sentences(document):
    return [finding.sentence for finding in judge(document).findings]


def test_a_healthy_machine_is_accepted_and_nothing_is_left_out():
    judged = judge(healthy())
    assert judged.findings == ()
    assert judged.accepted
    assert judged.not_tried == ()
    assert f"at its power limit, as is usual under full load: {', '.join(CHIPS)}" in judged.notes


def changed(path, value):
    """Return the healthy machine with one value changed."""
    document = healthy()
    place = document
    *way, last = path
    for step in way:
        place = place[step]
    place[last] = value
    return document


AFTER = ("burn_in", "counters", "after", 1)
SAMPLE = ("burn_in", "counters", "samples", 1)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            ("burn_in", "measured", "products", 1, "median"),
            512,
            "chip 0000:43:00.0: bf16 matrix products at 512 TFLOP/s, 0.65 of the expected 790 (measured: one H200), at "
            "least 0.9 is acceptable; check its temperature, power limit and clocks",
        ),
        (("burn_in", "measured", "copy", 0, "median"), 3.1, "chip 0000:1b:00.0: copies in memory at 3.1 TB/s, 0.72 of"),
        (("burn_in", "measured", "peer", 1, "median"), 51, "chip 0000:43:00.0 to chip 0000:1b:00.0: copies between"),
        (("burn_in", "measured", "products", 0, "wrong"), 2, "bf16 matrix products gave wrong results (2 times)"),
        (("burn_in", "measured", "copy", 0, "wrong"), 1, "copies in memory gave wrong results"),
        (("burn_in", "measured", "peer", 0, "wrong"), 1, "chip 0000:1b:00.0: a copy to chip 0000:43:00.0 arrived"),
        (("burn_in", "problem"), "the burn-in did not end", "burn-in: the burn-in did not end"),
        (
            (*AFTER, "errors"),
            {"PCIe replays": 4},
            "chip 0000:43:00.0: PCIe replays rose from 1 to 4 during the burn-in",
        ),
        ((*AFTER, "errors"), {"Xid 79": 1}, "chip 0000:43:00.0: Xid 79 rose from 0 to 1"),
        ((*AFTER, "slowed"), {"hw_therm_slowdown": 9}, "it was slowed down during the burn-in (hw_therm_slowdown, at"),
        ((*SAMPLE, "slowing"), ["hw_slowdown"], "slowed down during the burn-in (hw_slowdown, at up to 66 C); check"),
        ((*AFTER, "faults"), ["ECC is off"], "chip 0000:43:00.0: ECC is off"),
        (("burn_in", "counters", "after"), [counters(CHIPS[0])], "0000:43:00.0: the vendor's tool no longer lists it"),
        (("burn_in", "counters", "problem"), "nvidia-smi says no", "error counters: nvidia-smi says no"),
        (("storage", "gb_per_s"), 1.5, "storage: 1.5 GB/s, 0.30 of the 5 that accept_storage_gb_per_s asks for"),
        (("network",), {"problem": "no connection"}, "network: no connection; then repeat the acceptance"),
        (("network", "gbit_per_s"), 9.4, "network: 9.4 Gbit/s, 0.10 of the 90 that accept_network_gbit_per_s asks for"),
        (("chats",), [{"item": "chat", "ok": False, "msg": "HTTP 500"}], "instance chat: HTTP 500; see verify.yml"),
        (
            ("benches", 0, "figures"),
            {**BENCH, "output_tokens_per_second": 400},
            "bench of chat: 400 output tokens/s with 16 requests at a time, 0.40 of the 1000 that "
            "accept_bench_tokens_per_s asks for; look at what else uses the host",
        ),
        (
            ("benches",),
            [{"item": "chat", "problem": "instance chat did not survive the measurement"}],
            "bench of chat: instance chat did not survive the measurement; see the journal of its unit",
        ),
        (("benches",), [{"item": "chat", "failed": True, "msg": "MODULE"}], "bench of chat: MODULE; see the journal"),
        (
            ("driver", "findings"),
            [{"where": "module nvidia", "what": "old", "action": "reboot"}],
            "module nvidia: old; reboot",
        ),
    ],
)
def test_one_fault_is_one_finding(path, value, words):
    (sentence,) = sentences(changed(path, value))
    assert words in sentence


def test_a_figure_is_in_the_finding():
    (finding,) = judge(changed(("burn_in", "measured", "products", 1, "median"), 512)).findings
    assert (finding.found, finding.expected, finding.fraction, finding.unit) == (512, 790, 0.648, "TFLOP/s")


@pytest.mark.parametrize(("median", "short"), [(711, False), (710.9, True)])
def test_the_acceptable_fraction_itself_passes(median, short):
    assert bool(sentences(changed(("burn_in", "measured", "products", 0, "median"), median))) is short


def test_an_instance_that_runs_is_named_where_a_figure_falls_short():
    document = changed(("burn_in", "measured", "products", 1, "median"), 512)
    document["driver"]["active"] = ["vllm@chat.service", "nvidia-persistenced.service"]
    (sentence,) = sentences(document)
    assert "; vllm@chat.service was running: drain the host or stop it and repeat; otherwise check" in sentence


@pytest.mark.parametrize(("name", "words"), [("link_width", "lanes 8 of 16"), ("link_gen", "generation 4 of 5")])
def test_a_link_below_its_maximum_under_load(name, words):
    document = healthy()
    slow = 8 if name == "link_width" else 4
    for row in (document["burn_in"]["counters"][part][0] for part in ("samples", "after")):
        row[name] = slow
    (sentence,) = sentences(document)
    assert f"its PCIe link ran at {words}; check its seat" in sentence


def test_torchs_own_addresses_count_where_they_are_in_another_order():
    document = healthy()
    first, second = document["burn_in"]["measured"]["products"]
    first["address"], second["address"] = second["address"], first["address"]
    second["median"] = 500
    (sentence,) = sentences(document)
    assert sentence.startswith("chip 0000:1b:00.0: bf16")
    first["address"] = second["address"] = ""
    assert sentences(document)[0].startswith("chip 0000:43:00.0: bf16")


def test_chips_without_direct_access_are_a_note():
    document = healthy()
    for row in document["burn_in"]["measured"]["peer"]:
        row.update(direct=False, median=20)
    judged = judge(document)
    assert judged.accepted
    assert "chips without direct access to each other's memory: 0 to 1, 1 to 0" in judged.notes


def test_errors_of_before_and_of_a_later_boot_are_notes():
    document = healthy()
    document["driver"]["later"] = [{"where": "module nvidia", "what": "no package", "action": "install it"}]
    notes = judge(document).notes
    assert "chip 0000:1b:00.0 already had errors before the burn-in: PCIe replays 1" in notes
    assert "at a later boot: module nvidia: no package; install it" in notes


def test_a_host_without_accelerators_and_without_vllm_says_what_was_not_tried():
    row = {"chip": 0, "address": "", "median": 0.3, "lowest": 0.2, "highest": 0.3, "windows": [], "wrong": 0}
    judged = judge({"burn_in": {"measured": {"products": [row], "copy": [row]}, "problem": ""}, "storage": {}})
    assert judged.accepted
    assert [missing["what"] for missing in judged.not_tried] == [
        "comparison of the processor", "copies between chips", "network", "chat", "bench",
    ]  # fmt: skip


def test_chips_that_torch_does_not_see_and_chips_without_figures():
    document = healthy()
    document["burn_in"]["measured"] = {
        part: rows[:1] for part, rows in document["burn_in"]["measured"].items() if part != "peer"
    }
    document["expected"] = {CHIPS[0]: {}, CHIPS[1]: EXPECTED}
    judged = judge(document)
    assert [finding.what for finding in judged.findings] == [
        "torch saw 1 of 2 chips, and the others were not tested"
    ]  # fmt: skip
    assert judged.not_tried[0]["what"] == "comparison of chip 0000:1b:00.0"


def test_a_chat_whose_module_broke_is_a_finding_and_one_that_check_mode_skipped_is_not():
    chats = [{"item": "a", "skipped": True, "ok": None, "msg": "Not verified: b."}, {"item": "b", "msg": "MODULE"}]
    judged = judge({**healthy(), "chats": chats})
    assert [finding.sentence for finding in judged.findings] == ["instance b: MODULE; see verify.yml"]
    assert {"what": "chat with a", "why": "Not verified: b."} in judged.not_tried


@pytest.mark.parametrize(
    ("benches", "why"),
    [
        ([], "it answered no chat"),
        ([{"item": "chat", "not_tried": "it has 3 running requests"}], "it has 3 running requests"),
    ],
)
def test_an_instance_that_was_not_measured_is_named_and_no_finding(benches, why):
    judged = judge({**healthy(), "benches": benches})
    assert judged.accepted
    assert judged.not_tried == ({"what": "bench of chat", "why": why},)


def test_check_mode_finds_nothing_and_says_so():
    document = copy.deepcopy(healthy())
    document["burn_in"] = {"not_tried": "check mode runs nothing", "measured": {}, "problem": "", "counters": {}}
    document["storage"] = {"not_tried": "check mode reads nothing", "problem": ""}
    judged = judge(document)
    assert judged.accepted
    assert {"what": "burn-in", "why": "check mode runs nothing"} in judged.not_tried
