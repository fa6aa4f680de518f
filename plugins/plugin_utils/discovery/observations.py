# SPDX-License-Identifier: GPL-3.0-or-later
"""Observations of hosts: the output of the probe, its meaning by the catalogue, and the stored form of answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Collection, Mapping, Sequence, Union

from ...module_utils.accelerator.cpu_host import Cpu, CpuError, parse_cpu
from ...module_utils.accelerator.drivers_host import ASCEND_VERSION, NVRM_VERSION, first_group
from ...module_utils.accelerator.partitions import partition_text
from ...module_utils.accelerator.pci_host import PciFunction
from ...module_utils.accelerator.recognition import Catalogue, Detected, match
from ...module_utils.common.foreign_numbers import read_count
from ...module_utils.common.foreign_text import escape_controls, quote_foreign

# The first and the last line of the probe's output (probe.sh); a number of lines follows the last.
BEGIN = "accelerator-probe 1 begin"
END = "accelerator-probe 1 end"

# Schema of the file with the answers. A file of another schema is not read; the next discovery rebuilds it.
SCHEMA = 1

# An observation as plain data, or a sentence with the reason why a host gave none.
Answer = Union[Mapping[str, Any], str]

_FUNCTION = re.compile(
    r"(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<vendor_id>[0-9a-f]{4}) (?P<device_id>[0-9a-f]{4}) "
    r"(?P<class_id>[0-9a-f]{4}) (?P<subvendor_id>[0-9a-f]{4}|-) (?P<subdevice_id>[0-9a-f]{4}|-) "
    r"(?P<numa_node>[0-9]{1,9}|-)(?P<virtual> virtual)?(?P<unbound> unbound)?"
)
_FIRMWARE = re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,9}")
# The characters of a driver's version that are kept; a version has about ten.
MOST_TEXT = 200
_SHORT = (
    "model", "stack", "generation", "vendor", "count", "memory_mib", "compute_capability", "devices_per_card", "mixed",
    "models", "unknown", "driver_version", "mec_firmware", "partition", "numbers",
)  # fmt: skip


class DiscoveryError(ValueError):
    """An answer or a stored answer cannot be read; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Observation:
    """The raw hardware data of one host, so that a newer catalogue can interpret it again.

    ``functions`` are PCI functions of the catalogue's vendors, by address. ``drivers`` is the result of
    drivers_host.read_drivers. ``memory_mib`` is the memory of a chip by its PCI address, where the kernel reports it.
    """

    functions: tuple[PciFunction, ...]
    cpu: Cpu
    drivers: Mapping[str, Mapping[str, Any]]
    memory_mib: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the observation as plain data, JSON-serialisable; each PCI function is one text."""
        return {
            "functions": [_function_text(function) for function in self.functions],
            "cpu": self.cpu.as_dict(),
            "drivers": {vendor: dict(driver) for vendor, driver in self.drivers.items()},
            "memory_mib": dict(self.memory_mib),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Observation:
        """Return the observation that as_dict() wrote. Raises DiscoveryError for anything else."""
        keys = {"functions", "cpu", "drivers", "memory_mib"}
        if not isinstance(data, dict) or set(data) != keys:
            raise _odd("observation", data, f"a mapping of {', '.join(sorted(keys))}")
        if not isinstance(data["functions"], list):
            raise _odd("functions", data["functions"], "a list of PCI functions")
        return cls(
            functions=tuple(_function(text) for text in data["functions"]),
            cpu=_cpu(data["cpu"]),
            drivers=_drivers(data["drivers"]),
            memory_mib=_memory(data["memory_mib"]),
        )


def parse_probe(text: str) -> Observation:
    """Return the observation in the probe's output; other output of the login before or after it is ignored.

    Raises DiscoveryError where the probe did not start, was interrupted, or itself reports why it has no answer.
    """
    lines = _between_marks(text)
    lines_by_key: dict[str, list[str]] = {}
    for line in lines:
        key, _space, value = line.partition(" ")
        lines_by_key.setdefault(key, []).append(value)
    if "error" in lines_by_key:
        raise DiscoveryError(quote_foreign(lines_by_key["error"][0]))
    functions, memory_mib = [], {}
    for value in lines_by_key.get("pci", []):
        words, _bar, size = value.partition(" bytes ")
        function = _function(words)
        functions.append(function)
        if read_count(size):
            memory_mib[function.address] = int(size) // 1024**2
    return Observation(
        functions=tuple(sorted(functions, key=lambda function: function.address)),
        cpu=_probed_cpu(lines_by_key),
        drivers=_probed_drivers(lines_by_key),
        memory_mib=memory_mib,
    )


def detected(observation: Observation, catalogue: Catalogue) -> Detected:
    """Return a host's hardware by the catalogue, with the memory that the kernel reports instead of the nominal one."""
    functions = [
        replace(function, memory_mib=observation.memory_mib.get(function.address)) for function in observation.functions
    ]
    return match(functions, catalogue, observation.cpu, observation.drivers)


def summary(hardware: Detected) -> dict[str, Any]:
    """Return the fact of a host without the lists that matter only on the host itself: devices, switches, processor."""
    document = hardware.as_dict()
    return {key: document[key] for key in _SHORT}


@dataclass(frozen=True)
class Entry:
    """The last answer of a host.

    ``at`` is the time of the last answer, even if it equals the one before; ``observation`` is as stored, not yet
    parsed. ``stale_since`` and ``stale_reason`` are since when and why the host has not answered; None where it
    answered. Times are UTC, as 2026-11-21T14:40:00Z.
    """

    at: str
    observation: Mapping[str, Any]
    stale_since: str | None = None
    stale_reason: str | None = None


@dataclass(frozen=True)
class Changes:
    """The effects of a discovery on each host, in the order of their names.

    ``new`` answered for the first time, ``changed`` differently than before, ``back`` the same as before after failed
    attempts; ``stale`` failed to answer for the first time; ``gone`` are no longer in the inventory.
    """

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.new, self.changed, self.back, self.stale, self.gone))


def merge(
    entries: Mapping[str, Entry], answers: Mapping[str, Answer], now: str, known_hosts: Collection[str]
) -> tuple[dict[str, Entry], Changes]:
    """Return the entries after a discovery, by host in the order of names, and the changes.

    A host that fails to answer keeps its last answer; for a host that never answered nothing is stored. Hosts that were
    not asked stay unchanged; hosts that are not among ``known_hosts`` are removed.
    """
    known = set(known_hosts)
    merged: dict[str, Entry] = {}
    kinds: dict[str, list[str]] = {"new": [], "changed": [], "back": [], "stale": [], "gone": []}
    for host in sorted({*entries, *answers}):
        before, answer = entries.get(host), answers.get(host)
        if host not in known:
            if before:
                kinds["gone"].append(host)
            continue
        kind, after = _next(before, answer, now)
        if after:
            merged[host] = after
        if kind:
            kinds[kind].append(host)
    return merged, Changes(**{kind: tuple(hosts) for kind, hosts in kinds.items()})


def to_document(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Return the entries as plain data: {"schema": 1, "hosts": {host: {"at": ..., "observation": ...}}}."""
    hosts = {
        host: {key: value for key, value in vars(entry).items() if value is not None} for host, entry in entries.items()
    }
    return {"schema": SCHEMA, "hosts": hosts}


def from_document(document: Any) -> dict[str, Entry]:
    """Return the entries that to_document() wrote, with unparsed observations. Raises DiscoveryError."""
    if not isinstance(document, dict) or not isinstance(document.get("hosts"), dict):
        raise DiscoveryError("holds no answers of hosts, expected a mapping with 'schema' and 'hosts'")
    if document.get("schema") != SCHEMA:
        raise DiscoveryError(f"is of schema {quote_foreign(repr(document.get('schema')))}, expected {SCHEMA}")
    entries: dict[str, Entry] = {}
    for host, kept in document["hosts"].items():
        try:
            entry = Entry(**kept)
        except TypeError as exc:
            raise _odd(
                f"hosts.{quote_foreign(host)}", kept, "a mapping of at, observation, stale_since and stale_reason"
            ) from exc
        stale = (entry.stale_since, entry.stale_reason)
        texts = isinstance(entry.at, str) and all(text is None or isinstance(text, str) for text in stale)
        if not texts or not isinstance(entry.observation, dict):
            raise _odd(f"hosts.{quote_foreign(host)}", kept, "texts, and a mapping as observation")
        entries[host] = entry
    return entries


def _next(before: Entry | None, answer: Answer | None, now: str) -> tuple[str | None, Entry | None]:
    """Return the kind of change of one host, None where there is none, and its new entry."""
    if answer is None:
        return None, before
    if isinstance(answer, str):
        if before is None:
            return None, None
        silent = replace(before, stale_since=before.stale_since or now, stale_reason=answer)
        return (None if before.stale_since else "stale"), silent
    after = Entry(now, answer)
    if before is None:
        return "new", after
    if before.observation != answer:
        return "changed", after
    return ("back" if before.stale_since else None), after


def _between_marks(text: str) -> list[str]:
    """Return the lines of the probe's own output."""
    lines = text.replace("\r\n", "\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line == BEGIN]
    if not starts:
        first = next((line.strip() for line in lines if line.strip()), "")
        raise DiscoveryError(
            "the probe did not start" + (f": {quote_foreign(first)}" if first else ": it printed nothing")
        )
    inside = lines[starts[-1] + 1 :]
    for number, line in enumerate(inside):
        if line.startswith(END):
            if line != f"{END} {number}":
                break
            return inside[:number]
    raise DiscoveryError(f"the answer of the probe is cut: its last line or others are missing ({len(inside)} arrived)")


def _probed_cpu(lines_by_key: Mapping[str, Sequence[str]]) -> Cpu:
    """Return the processors: the probe prints the first one and counts the others."""
    numbers = {key: _number(key, lines_by_key.get(key, ["nothing"])[0]) for key in ("threads", "cores", "nodes")}
    machine = lines_by_key.get("machine", [""])[0]
    try:
        cpu = parse_cpu(
            "\n".join(lines_by_key.get("cpuinfo", [])),
            "\n".join(lines_by_key.get("meminfo", [])),
            numbers["nodes"],
            machine,
        )
    except CpuError as exc:
        raise DiscoveryError(str(exc)) from exc
    return replace(cpu, threads=numbers["threads"], cores=numbers["cores"] or numbers["threads"])


def _probed_drivers(lines_by_key: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return the drivers in the form of drivers_host.read_drivers on the host itself."""
    texts = {key: escape_controls("\n".join(lines_by_key.get(key, []))[:MOST_TEXT]) for key in ("nvidia", "amdgpu")}
    texts |= {key: "\n".join(lines_by_key.get(key, [])) for key in ("nvrm", "ascend")}
    firmware = [
        int(text, 16 if "x" in text else 10) for text in lines_by_key.get("mec", []) if _FIRMWARE.fullmatch(text)
    ]
    modes = {partition_text(*pair.split(" ")) for pair in lines_by_key.get("partition", []) if pair.count(" ") == 1}
    found: dict[str, dict[str, Any]] = {
        "nvidia": {"version": texts["nvidia"].strip() or first_group(NVRM_VERSION, texts["nvrm"] + "\n")},
        "amd": {
            "version": texts["amdgpu"].strip(),
            "mec_firmware": min(firmware) if firmware else None,
            "partition": ", ".join(sorted(modes - {""})),
        },
        "ascend": {"version": first_group(ASCEND_VERSION, texts["ascend"])},
    }
    known = {vendor: {key: value for key, value in part.items() if value} for vendor, part in found.items()}
    return {vendor: part for vendor, part in known.items() if part}


def _function_text(function: PciFunction) -> str:
    """Return a function in the probe's form: address, ids, class, ids of the board, NUMA node."""
    numa_node = "-" if function.numa_node is None else str(function.numa_node)
    words = [function.address, function.vendor_id, function.device_id, function.class_id]
    words += [function.subvendor_id or "-", function.subdevice_id or "-", numa_node]
    return " ".join(words + ["virtual"] * function.virtual + ["unbound"] * function.unbound)


def _function(text: Any) -> PciFunction:
    found = _FUNCTION.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise _odd("functions", text, "address, vendor, device, class, subsystem vendor and device, NUMA node")
    words: dict[str, Any] = {key: None if value == "-" else value for key, value in found.groupdict().items()}
    numa_node = words.pop("numa_node")
    words["numa_node"] = None if numa_node is None else int(numa_node)
    return PciFunction(**{**words, **{name: words[name] is not None for name in ("virtual", "unbound")}})


def _cpu(data: Any) -> Cpu:
    expected = {"arch": str, "model": str, "instruction_sets": list, "cores": int, "threads": int, "numa_nodes": int,
                "memory_mib": int}  # fmt: skip
    good = isinstance(data, dict) and set(data) == set(expected)
    if not good or not all(_is(data[key], kind) for key, kind in expected.items()):
        raise _odd("cpu", data, f"a mapping of {', '.join(expected)}")
    if not all(isinstance(name, str) for name in data["instruction_sets"]):
        raise _odd("cpu.instruction_sets", data["instruction_sets"], "a list of names")
    return Cpu(**data)


def _drivers(data: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(data, dict):
        raise _odd("drivers", data, "a mapping by vendor")
    for vendor, driver in data.items():
        kinds = {"version": str, "mec_firmware": int, "partition": str}
        good = isinstance(driver, dict) and set(driver) <= set(kinds)
        if not good or not all(_is(value, kinds[key]) for key, value in driver.items()):
            raise _odd(f"drivers.{quote_foreign(vendor)}", driver, "a mapping of version, mec_firmware and partition")
    return data


def _memory(data: Any) -> dict[str, int]:
    if not isinstance(data, dict) or not all(_is(size, int) and size >= 0 for size in data.values()):
        raise _odd("memory_mib", data, "a mapping of PCI addresses to MiB")
    return data


def _is(value: Any, kind: type) -> bool:
    """Return whether a value is of a kind; true and false do not count as numbers."""
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _number(key: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise _odd(key, text, "a number")
    return int(text)


def _odd(where: str, value: Any, expected: str) -> DiscoveryError:
    return DiscoveryError(f"{where}: found {str(value)[:120]!r}, expected {expected}")
