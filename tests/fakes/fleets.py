# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets for property-based tests, and what follows for them from the files of the catalogue, worked out apart."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

TOP = Path(__file__).resolve().parents[2]
MOST = 64
UNKNOWN_ID = "10de:fffe"  # of a class that counts, in no file

# Below .cache, which git ignores.
set_hypothesis_home_dir(TOP / ".cache" / "hypothesis")
_SETTINGS = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate, Phase.shrink),
}
# The same examples on every run, ten seconds in all; HYPOTHESIS_EXAMPLES=1000 (make long) searches elsewhere each time.
settings.register_profile("ci", max_examples=40, derandomize=True, **_SETTINGS)
settings.register_profile("long", max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "40")), **_SETTINGS)
settings.load_profile("long" if "HYPOTHESIS_EXAMPLES" in os.environ else "ci")
# For what takes a few milliseconds an example.
MANY = settings(max_examples=3 * settings().max_examples)


def _read_catalogue() -> tuple[dict, dict, set, dict, dict]:
    """Return of each model: stack and generation, PCI ids, whether nothing serves on it, memory, the most of a host."""
    kinds, ids, unsupported, memory, most = {"cpu": ("cpu", "cpu")}, {}, set(), {}, {}
    for path in sorted((TOP / "catalog/accelerators").glob("*.yml")):
        data = yaml.safe_load(path.read_text())
        for key, entry in data["models"].items():
            kinds[key] = (entry.get("stack", data["stack"]), entry["generation"])
            ids[key] = list(entry["pci_ids"])
            unsupported |= set() if entry.get("supported", True) else {key}
            memory[key] = entry.get("memory_gib") or 0
            most[key] = entry.get("host_chips", MOST)
    return kinds, ids, unsupported, memory, most


KINDS, PCI_IDS, UNSUPPORTED, MEMORY_GIB, HOST_CHIPS = _read_catalogue()
# Only these can be seen: of the others no PCI id is public.
CHIPS = sorted(model for model, ids in PCI_IDS.items() if ids)


@dataclass(frozen=True)
class Said:
    """What one source says of a host: models with numbers (None: not said), and how many unknown chips."""

    models: dict[str, int | None]
    unknown: int = 0

    def first(self) -> str | None:
        """Return the model that gives the host its name."""

        def rank(model: str) -> tuple[bool, int, float, str]:
            return model in UNSUPPORTED, -(self.models[model] or 0), -MEMORY_GIB.get(model, 0), model

        return min(self.models, key=rank, default=None)

    def denies(self, other: Said) -> bool:
        """Return whether the other source cannot be right if this one is."""

        def differ(model: str) -> bool:
            ours, theirs = self.models[model], other.models.get(model, 0)
            return None not in (ours, theirs) and ours != theirs

        if len(self.models) == 1 and not self.unknown:
            return other.first() != self.first() or differ(self.first())
        kinds = set(self.models) != set(other.models) or bool(self.unknown) != bool(other.unknown)
        return kinds or any(differ(model) for model in self.models)


@dataclass(frozen=True)
class Machine:
    """A host, and what is said of it."""

    name: str
    declared: Said | None = None
    discovered: Said | None = None
    redfish: Said | None = None
    cluster: str | None = None
    site: str | None = None
    note: str | None = None

    def heard(self) -> tuple[list[Said], bool]:
        """Return the sources that are believed, and whether one is not."""
        said = [source for source in (self.declared, self.discovered, self.redfish) if source]
        believed = [source for source in said if source is said[0] or not said[0].denies(source)]
        return believed, len(believed) < len(said)

    def kinds(self) -> set[str]:
        """Return the models, and 'unknown'."""
        believed, _conflict = self.heard()
        models = {model for source in believed for model in source.models}
        return models | ({"unknown"} if any(source.unknown for source in believed) else set())

    def groups(self) -> set[str]:
        """Return all groups that the host belongs to."""
        found = set()
        for kind in self.kinds():
            found |= {f"accel_{name}" for name in (kind, *KINDS.get(kind, ()))}
        found |= {"accelerator_conflict"} if self.heard()[1] else set()
        found |= {f"cluster_{group_part(self.cluster)}"} if self.cluster else set()
        return found | ({f"site_{group_part(self.site)}"} if self.site else set())

    def variables(self) -> dict:
        """Return the variables of a fleet file or of an earlier source."""
        said = {"cluster": self.cluster, "site": self.site, "note": self.note}
        if self.redfish:
            said["accelerator_bmc"] = f"{self.name}.bmc"
        if self.declared and len(self.declared.models) > 1:
            said["accelerators"] = self.declared.models
        elif self.declared:
            ((said["accelerator"], said["accelerator_count"]),) = self.declared.models.items()
        return {key: value for key, value in said.items() if value is not None}


def group_part(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)


def _some(counts, most: int) -> st.SearchStrategy[dict]:
    chips = st.dictionaries(st.sampled_from(CHIPS), counts, min_size=1, max_size=most)
    return chips.map(lambda found: {model: count and min(count, HOST_CHIPS[model]) for model, count in found.items()})


COUNTS = st.integers(1, MOST)
FEW = st.integers(1, 4)
PROCESSOR = Said({"cpu": 1})
DECLARED = st.one_of(
    st.builds(Said, _some(st.none(), 1)),
    st.builds(Said, _some(COUNTS, 1)),
    st.builds(Said, _some(COUNTS, 3)),
    st.sampled_from([Said({"cpu": None}), PROCESSOR]),
)
SEEN = st.one_of(st.builds(Said, _some(FEW, 2), st.sampled_from([0, 0, 1])), st.builds(Said, st.just({}), FEW))
# The last two look like the first to a careless eye.
PLACES = st.none() | st.sampled_from(["c1", "fra-1", "7", "Zürich 2", "C1"])
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,12}[a-z0-9])?", fullmatch=True).filter(lambda name: name != "all")
# PyYAML writes a next line (85) so that it reads as a space.
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x85")
TEXTS = st.text(LETTERS, min_size=1, max_size=12).filter(lambda text: text.strip() == text)


@st.composite
def machines(draw, name: str) -> Machine:
    """Return a host about which its sources agree or do not."""
    declared = draw(st.none() | DECLARED)
    discovered, redfish = (_second(draw, declared, source) for source in (st.just(PROCESSOR) | SEEN, SEEN))
    return Machine(name, declared, discovered, redfish, draw(PLACES), draw(PLACES), draw(st.none() | TEXTS))


def _second(draw, declared: Said | None, seen) -> Said | None:
    kind = draw(st.sampled_from(["nothing", "nothing", "the same", "more", "any"]))
    if kind == "nothing":
        return None
    chips = {model: count or 2 for model, count in (declared.models if declared else {}).items() if model != "cpu"}
    if kind == "any" or not chips or max(chips.values()) > 16:
        return draw(seen)
    return Said(chips, 1 if kind == "more" else 0)


@st.composite
def fleets(draw, most: int = 8) -> list[Machine]:
    """Return hosts of different names."""
    names = draw(st.lists(NAMES, unique=True, max_size=most))
    return [draw(machines(name)) for name in names]


@dataclass
class Layout:
    """Where the hosts of a fleet are read: an earlier source, or files."""

    earlier: list[Machine] = field(default_factory=list)
    files: dict[str, list[Machine]] = field(default_factory=dict)


@st.composite
def layouts(draw, fleet: list[Machine]) -> Layout:
    """Return the hosts of a fleet in any order, spread over an earlier source and files of the three formats."""
    suffixes = draw(st.lists(st.sampled_from(["csv", "json", "yml"]), min_size=1, max_size=3))
    layout = Layout(files={f"{number}.{suffix}": [] for number, suffix in enumerate(suffixes)})
    for machine in draw(st.permutations(fleet)):
        draw(st.sampled_from([layout.earlier, *layout.files.values()])).append(machine)
    return layout


def file_text(name: str, fleet: list[Machine]) -> str:
    """Return a fleet file."""
    hosts = {machine.name: machine.variables() for machine in fleet}
    if name.endswith(".json"):
        return json.dumps({"hosts": hosts}, indent=1)
    if name.endswith(".yml"):
        return yaml.safe_dump({"hosts": hosts}, allow_unicode=True, sort_keys=False)
    columns = list(dict.fromkeys(key for variables in hosts.values() for key in variables))
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["name", *columns])
    rows.writerows(
        [name, *(_cell(variables.get(column, "")) for column in columns)] for name, variables in hosts.items()
    )
    return text.getvalue()


def _cell(value: object) -> str:
    pairs = value.items() if isinstance(value, dict) else ()
    return " ".join(f"{model}:{count}" for model, count in pairs) or str(value)


def observation(said: Said) -> dict:
    """Return what discovery keeps of a host with such chips."""
    ids = [PCI_IDS[model][0] for model, count in said.models.items() if model != "cpu" for _chip in range(count or 1)]
    functions = [
        f"0000:{number:02x}:00.0 {pci_id.replace(':', ' ')} 0302 - - -"
        for number, pci_id in enumerate(ids + [UNKNOWN_ID] * said.unknown)
    ]
    cpu = {"arch": "x86_64", "model": "EPYC", "instruction_sets": ["avx2"], "cores": 8, "threads": 16}
    return {
        "functions": functions,
        "cpu": {**cpu, "numa_nodes": 1, "memory_mib": 65536},
        "drivers": {},
        "memory_mib": {},
    }


def discovery_document(fleet: list[Machine]) -> dict:
    """Return the discovery cache of a fleet."""
    answers = {
        machine.name: {"at": "2026-11-21T14:40:00Z", "observation": observation(machine.discovered)}
        for machine in fleet
        if machine.discovered
    }
    return {"schema": 1, "hosts": answers}


def bmc_ids(said: Said) -> dict[str, int]:
    """Return the devices that a BMC shows, by PCI id."""
    ids = {PCI_IDS[model][0]: count for model, count in said.models.items()}
    return {**ids, **({UNKNOWN_ID: said.unknown} if said.unknown else {})}
