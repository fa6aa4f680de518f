# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import (
    UNKNOWN,
    FaultBook,
    chip_address,
    standing_faults,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.kernel_records import (
    KernelRecord,
    parse_record,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

# Lines as drivers and kernels write them, with what each means here: kind and code, chip, action.
LINES = [
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
     "xid 79", "0000:5d:00.0", "isolate_host"),
    ("cuda", "NVRM: Xid (PCI:0000:5D:00): 13, Graphics Exception: ESR 0x505730=0x10c000e", "xid 13", "0000:5d:00.0",
     "report"),
    ("cuda", "NVRM: Xid (PCI:0000:01:00): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No", "xid 94",
     "0000:01:00.0", "report"),
    ("cuda", "NVRM: Xid (PCI:0000:01:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC", "xid 95",
     "0000:01:00.0", "reset_chip"),
    ("cuda", "NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid 14", "0000:03:00.0", "ignore"),
    ("cuda", "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)",
     "xid 149.fatal", "0018:01:00.0", "reset_chip"),
    ("cuda", "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x00000000)",
     "xid 149", "0018:01:00.0", "report"),
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 154, "
     "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
     "xid 154.node_reboot", "0000:5d:00.0", "isolate_host"),
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 154, "
     "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
     "xid 154.none", "0000:5d:00.0", "ignore"),
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 999, something new", "xid 999", "0000:5d:00.0", "report"),
    ("cuda", "nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 22003, Fatal, Link 27 Minion Halt", "sxid 22003",
     "0000:c3:00.0", "isolate_host"),
    ("cuda", "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002}", "sxid 20034", "0000:a9:00.0",
     "isolate_host"),
    ("rocm", "amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
     "log ras_fatal", "0000:1c:00.0", "reset_chip"),
    ("rocm", "amdgpu 0000:1c:00.0: amdgpu: socket: 0, die: 0, 2 uncorrectable hardware errors detected in umc block",
     "log ras_uncorrectable", "0000:1c:00.0", "restart_instance"),
    ("rocm", "amdgpu 0000:1c:00.0: amdgpu: socket: 0, die: 0, 0 uncorrectable hardware errors detected in umc block",
     None, "", ""),
    ("rocm", "amdgpu 0000:1c:00.0: amdgpu: socket: 0, die: 0, 7 correctable hardware errors detected in umc block",
     "log ras_correctable", "0000:1c:00.0", "ignore"),
    ("rocm", "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!", "log reset_begin", "0000:c1:00.0", "restart_instance"),
    ("rocm", "amdgpu 0000:c1:00.0: amdgpu: GPU reset(3) succeeded!", "log reset_succeeded", "0000:c1:00.0", "report"),
    ("rocm", "amdgpu 0000:c1:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=1, emitted seq=3",
     "log ring_timeout", "0000:c1:00.0", "report"),
    ("rocm", "amdgpu 0000:c1:00.0: amdgpu: GPU mode1 reset", None, "", ""),
    # In the forms of AMD's own tests of such lines (amd/node-scraper), of the driver's messages and of reports to ROCm.
    ("rocm", "amdgpu 0000:68:00.0: {14}poison is consumed by client 12, kick off gpu reset flow", "log ras_poison",
     "0000:68:00.0", "restart_instance"),
    ("rocm", "amdgpu 0000:68:00.0: amdgpu: RAS poison consumption, unmap queue flow succeeded: client id 18",
     "log ras_poison", "0000:68:00.0", "restart_instance"),
    ("rocm", "amdgpu 0000:68:00.0: {15}Poison is created", None, "", ""),
    ("rocm", "amdgpu 0000:08:00.0: amdgpu: socket: 4, die: 0, 1 new deferred hardware errors detected in umc block",
     "log ras_deferred", "0000:08:00.0", "report"),
    ("rocm", "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0 1 correctable hardware errors detected in total in gfx "
     "block, no user action is needed.", "log ras_correctable", "0000:c1:00.0", "ignore"),
    ("rocm", "amdgpu 0000:08:00.0: amdgpu: Saved bad pages 176 reaches threshold value 128",
     "log bad_pages_threshold", "0000:08:00.0", "isolate_host"),
    ("rocm", "amdgpu 0000:08:00.0: amdgpu: Saved bad pages(176) reaches threshold value(128).",
     "log bad_pages_threshold", "0000:08:00.0", "isolate_host"),
    ("rocm", "amdgpu 0000:08:00.0: amdgpu: RAS records:129 exceed threshold:128, GPU will not be initialized. Replace "
     "this GPU or increase the threshold", "log bad_pages_threshold", "0000:08:00.0", "isolate_host"),
    ("rocm", "amdgpu 0000:08:00.0: amdgpu: RAS records:116 exceeds 90% of threshold:128", None, "", ""),
    ("rocm", "amdgpu 0000:c5:00.0: amdgpu: device lost from bus!", "log lost_from_bus", "0000:c5:00.0",
     "isolate_host"),
    ("rocm", "amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3", "log reset_begin", "0000:c5:00.0",
     "restart_instance"),
    ("rocm", "amdgpu 0000:c5:00.0: amdgpu: GPU reset succeeded, trying to resume", "log reset_resumes",
     "0000:c5:00.0", "report"),
    ("rocm", "amdgpu 0000:0b:00.0: amdgpu: GPU reset(1) failed", "log reset_failed", "0000:0b:00.0", "isolate_host"),
    ("rocm", "amdgpu 0000:c5:00.0: amdgpu: GPU reset end with ret = -19", "log reset_failed", "0000:c5:00.0",
     "isolate_host"),
    ("rocm", "amdgpu 0000:c5:00.0: amdgpu: GPU Recovery Failed: -19", "log reset_failed", "0000:c5:00.0",
     "isolate_host"),
    ("rocm", "amdgpu 0000:0d:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012 "
     "SMN_C2PMSG_82:0x00000005", "log firmware_hung", "0000:0d:00.0", "reset_chip"),
    ("rocm", "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=613206, emitted "
     "seq=613208", "log ring_timeout", "", "report"),
    ("rocm", "amdgpu 0000:83:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0", None, "", ""),
    ("rocm", "amdgpu 0000:c5:00.0: amdgpu: Ring gfx_0.0.0 reset failed", None, "", ""),
    ("rocm", "amdgpu 0000:0e:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:173 vmid:8 pasid:32791)",
     "log page_fault", "0000:0e:00.0", "report"),
    ("rocm", "amdgpu 0000:03:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:40 vmid:7 pasid:32776, for "
     "process python3 pid 4218 thread python3 pid 4218)", "log page_fault", "0000:03:00.0", "report"),
    ("cann", "[ascend] [devdrv] [event_notify 812] dev_id=3, event_id=0x80e18402, severity=4", "event 80E18402", "",
     "isolate_host"),
    ("cann", "[devdrv] Event id=0xffffffff raised", "event FFFFFFFF", "", "report"),
    ("cann", "[ascend] [devdrv] [devdrv_manager_process_sign_release 797] <main:42394> end devdrv_get_process_sign, "
     "count = 0, docker_id = 128", None, "", ""),
    ("cann", "[ascend] [icm] icm_ipc_msg_send_sync Wait event timeout (chan_id=13, wait_time=30000)", None, "", ""),
    ("cuda", "nvidia 0000:5d:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
     "pcie aer_fatal", "0000:5d:00.0", "reset_chip"),
    ("cuda", "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
     "pcie aer_corrected", "0000:00:01.0", "ignore"),
    ("cuda", "blk_update_request: I/O error, dev nvme0n1, sector 4194304 op 0x0:(READ)", "disk io_error", "",
     "report"),
    ("cuda", "pcieport 0000:80:1b.4: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, "
     "(Receiver ID)", "pcie aer_nonfatal", "0000:80:1b.4", "report"),
    ("cuda", "pcieport 0000:80:1b.4: AER: Uncorrectable (Non-Fatal) error message received from 0000:80:1b.4", None, "",
     ""),
    ("cuda", "critical medium error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
     "disk io_error", "", "report"),
    ("cuda", "Buffer I/O error on dev nvme0n1, logical block 0, async page read", None, "", ""),
    ("cuda", "blk_update_request: operation not supported error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x0", None,
     "", ""),
    ("cuda", "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", "xid 149.fatal",
     "0019:01:00.0", "reset_chip"),
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 154, "
     "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
     "xid 154.gpu_reset", "0000:5d:00.0", "reset_chip"),
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)",
     "xid 154.drain_p2p", "0000:5d:00.0", "reset_chip"),
    ("cuda", "NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
     "xid 154.drain_and_reset", "0000:5d:00.0", "reset_chip"),
    ("cuda", "nvidia-nvswitch0: open (major=510)", None, "", ""),
    ("cuda", "usb 1-1: new high-speed USB device number 2 using xhci_hcd", None, "", ""),
    ("cuda", "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05", None, "", ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def books():
    return {stack: FaultBook.from_document(faults_of_host(stack)) for stack in ("cuda", "rocm", "cann", "cpu")}


@pytest.mark.parametrize(("stack", "line", "name", "chip", "action"), LINES)
def test_lines_of_real_logs_are_recognised(books, stack, line, name, chip, action):
    event = books[stack].read(KernelRecord(line))
    if name is None:
        assert event is None
    else:
        assert (event.fault.name, event.chip, event.fault.action) == (name, chip, action)


def test_every_pattern_of_the_catalogue_finds_a_line(books):
    patterns = {
        f"{kind.name} {code}"
        for book in books.values()
        for kind in book.logged
        for code in kind.patterns or [code for code in kind.faults if code.partition(".")[2]]
    }
    found = {name for _stack, _line, name, _chip, _action in LINES if name}
    # Each of these codes of NVLink is written as 149 is.
    alike = {f"xid {code}.fatal" for code in (144, 145, 146, 147, 148, 150)}
    assert patterns - found == alike
    assert {kind.name for book in books.values() for kind in book.logged} <= {name.split()[0] for name in found}


@pytest.mark.parametrize(
    ("kind", "begins"),
    {
        "xid": "NVRM: ", "sxid": "nvidia-nvswitch", "log": "amdgpu ", "event": "[ascend] ", "pcie": "pcieport ",
        "disk": "Buffer I/O error",
    }.items(),
)  # fmt: skip
def test_every_kind_passes_over_a_harmless_line_of_its_driver(books, kind, begins):
    assert any(kind in book.kinds and book.kinds[kind].needle for book in books.values())
    assert [line for _stack, line, name, _chip, _action in LINES if name is None and line.startswith(begins)]


# How the kernel prints a text that somebody else chose: the name of a program (15 bytes), of a file, of a device.
FOREIGN = [
    "vllm[812]: segfault at 0 ip 00007f sp 00007f error 4 in {}[400000+1000]",
    "{:.15}[812]: segfault at 0 ip 00007f sp 00007f error 4 in {}[400000+1000]",
    "{:.15}[812]: segfault at 0 ip 00007f sp 00007f error 4 in {:.0}{tail}[400000+1000]",
    "traps: {:.15}[812] trap invalid opcode ip:55 sp:7f error:0 in {}[400000+1000]",
    "traps: {:.15}[812] general protection fault ip:55 sp:7f error:0 in {}[400000+1000]",
    "{:.15} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0 {}",
    "{:.15}: page allocation failure: order:4, mode:0x40cc0, nodemask=(null),cpuset={}",
    "{:.15}(812): Attempt to set a LOCK_MAND lock via flock(2). This support has been removed and the request ignored.",
    "{:.15} (812) used greatest stack depth: 12048 bytes left",
    "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/user.slice/{},task={:.15},pid=812,uid=1000",
    "Out of memory: Killed process 812 ({:.15}) total-vm:1kB",
    "Memory cgroup out of memory: Killed process 812 ({}) total-vm:1kB",
    'audit: type=1701 audit(1.0:1): auid=1000 comm="{:.15}" exe="{}"',
    "process '{}' started with executable stack",
    "usb 1-1: Product: {}",
    "usb 1-1: SerialNumber: {}",
    "EXT4-fs ({}): mounted filesystem",
    "EXT4-fs (sda1): mounted filesystem, label {}",
    "XFS (dm-0): Mounting V5 Filesystem {}",
    "{:.15}: renamed from eth0 {}",
    "device-mapper: table: 252:0: {}: unknown target type",
    "systemd[1]: {}",
    "CPU: 3 PID: 812 Comm: {:.15} Not tainted 6.8.0 {}",
    "scsi 0:0:0:0: Direct-Access {}",
    "a\\x0a{}",
    " {}",
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_text_that_a_program_or_device_chose_is_no_fault(books, foreign):
    for stack, line, name, _chip, _action in LINES:
        if name is None:
            continue
        for cut in (line, line.split(": ", 1)[-1]):
            text = foreign.format(cut, cut, tail=cut[15:])
            record = parse_record(f"6,1,1000,-;{text}")
            assert books[stack].read(record) is None, text


def test_a_record_that_a_program_wrote_into_the_kernels_log_is_no_fault(books):
    for stack, line, name, _chip, _action in LINES:
        for priority in (8, 12, 30, 188):
            assert books[stack].read(parse_record(f"{priority},1,1000,-;{line}")) is None
        assert bool(books[stack].read(parse_record(f"4,1,1000,-;{line}"))) is bool(name)


def test_a_program_cannot_choose_the_suffix_of_a_code(books):
    for name in ("A Fatal B", "x, AB Fatal XC0", "to 0x2 (OS Reboo"):
        for code in (149, 154):
            line = f"NVRM: Xid (PCI:0018:01:00): {code}, pid=7, name={name}, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08"
            assert books["cuda"].read(KernelRecord(line)).fault.code == str(code)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("0x0 (None) to 0x2 (OS Reboot)", "154.node_reboot"), ("0x0 (None) to 0x1 (PF FLR)", "154.gpu_reset"),
        ("0x4 (Drain and Reset) to 0x1 (GPU Reset Required)", "154.gpu_reset"), ("0x0 (None) to 0x9 (Pray)", "154"),
        ("0x2 (Node Reboot Required) to 0x0 (None)", "154.none"),
    ],
)  # fmt: skip
def test_what_the_driver_recommends(books, change, code):
    fault = (
        books["cuda"]
        .read(KernelRecord(f"NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from {change}"))
        .fault
    )
    assert (fault.code, fault.takes_out) == (code, code != "154.none")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:81:00 GPU-I:05): 94, pid=7, name=python3, Contained: SM (0x1)",
        "NVRM: Xid (PCI:0000:81:00.0): 79, GPU has fallen off the bus.",
    ],
)
def test_other_forms_of_an_address(books, line):
    assert books["cuda"].read(KernelRecord(line)).chip == "0000:81:00.0"


def test_the_real_form_of_nvlink_errors_has_several_blanks(books):
    line = "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)"
    assert books["cuda"].read(KernelRecord(line)).fault.code == "149.fatal"


def test_an_event_of_an_npu_in_the_form_of_huaweis_driver(books):
    line = (
        "[ascend] [ERROR] [dms] [dms_event_add_to_bbox 88] <kworker/u16:2:14887,14887> Add event_id to bbox. "
        "(dev_id=0; event_id=0x80e18402;bbox_code=0x1)"
    )
    assert books["cann"].read(KernelRecord(line)).fault.code == "80E18402"


@pytest.mark.parametrize("code", [13, 31, 43, 45, 94])
def test_errors_of_programs_take_no_chip_out(books, code):
    event = books["cuda"].read(
        KernelRecord(f"NVRM: Xid (PCI:0000:01:00): {code}, pid=7, name=python3, whatever Fatal follows")
    )
    assert event.fault.code == str(code)
    assert not event.fault.takes_out


def test_an_unknown_code_is_reported_and_never_acted_upon(books):
    for fault in (books["cuda"].fault("xid", "4711"), books["cpu"].fault("xid", "79"), books["rocm"].fault("new", "1")):
        assert (fault.action, fault.back, fault.meaning) == ("report", "", UNKNOWN)


def test_a_fault_of_a_switch_concerns_the_host(books):
    assert books["cuda"].fault("sxid", "22003").scope == "host"
    assert books["cuda"].fault("xid", "79").scope == "chip"


def test_a_host_without_accelerators_watches_for_faults_of_hosts_only(books):
    assert set(books["cpu"].kinds) == {"pcie", "disk", "vllm"}


def test_another_format_is_refused():
    with pytest.raises(ValueError, match="schema 2, expected 1"):
        FaultBook.from_document({"schema": 2, "kinds": {}})


RESET = "NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
OTHER = RESET.replace("5d", "1b")
GSP, ROW = (f"NVRM: Xid (PCI:0000:5d:00): {code}, pid=7" for code in (119, 64))


@pytest.mark.parametrize(
    ("lines", "standing"),
    [
        ([GSP, RESET], []), ([RESET, GSP], ["119"]), ([GSP, OTHER], ["119"]), ([GSP, RESET, GSP], ["119"]),
        # A row that could not be remapped stays so.
        ([ROW, GSP, RESET], ["64"]),
    ],
)  # fmt: skip
def test_a_reset_clears_what_a_boot_would_clear(books, lines, standing):
    found = standing_faults(books["cuda"], "\n".join(lines))
    assert [event.fault.code for event in found if event.fault.takes_out] == standing


def test_a_reset_of_amds_driver_clears_only_once_it_has_ended(books):
    chip = "amdgpu 0000:c1:00.0: amdgpu: "
    failed, begins = f"{chip}GPU reset(2) failed", f"{chip}GPU reset succeeded, trying to resume"
    found = standing_faults(books["rocm"], f"{failed}\n{begins}")
    assert [event.fault.code for event in found] == ["reset_failed", "reset_resumes"]
    found = standing_faults(books["rocm"], f"{failed}\n{begins}\n{chip}GPU reset(3) succeeded!")
    assert "reset_failed" not in [event.fault.code for event in found]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:5D:00", "0000:5d:00.0"), ("00000000:5d:00.0", "0000:5d:00.0"), ("5d:00", "0000:5d:00.0"),
        ("0001:c3:00.1", "0001:c3:00.1"), ("", ""), ("GPU-1234", ""),
    ],
)  # fmt: skip
def test_addresses_are_written_in_one_way(text, address):
    assert chip_address(text) == address
