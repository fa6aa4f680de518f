# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of the inventory groups that hosts are sorted into, and what the names mean."""

import functools
import re
from typing import Iterable, Mapping, Sequence

from ...module_utils.accelerator.recognition import CPU, UNKNOWN, Model
from ...module_utils.common.spelling import misspelt

# Groups for the purpose of a host.
PURPOSES = ("inference", "mirrors", "gateways")
MODEL_PREFIX, CLUSTER_PREFIX, SITE_PREFIX = "accel_", "cluster_", "site_"
KINDS = ("accel", "cluster")
# The group of hosts whose sources disagree, and the variable with the reason.
CONFLICT_GROUP = "accelerator_conflict"

_INVALID = re.compile(r"[^A-Za-z0-9_]")


def name_region_group(kind: str, value: str) -> str:
    """Return the name of the group of a cluster or site; ``kind`` is "cluster" or "site"."""
    return f"{kind}_{_INVALID.sub('_', value)}"


def unknown_groups(groups: Iterable[str], models: Mapping[str, Model]) -> list[str]:
    """Return the groups such as accel_b20 that name neither a model, generation nor stack of the catalogue, by name."""
    known = known_groups(models)
    return sorted(name for name in groups if name.startswith(MODEL_PREFIX) and name not in known)


@functools.lru_cache(maxsize=None)
def meant_group(name: str) -> str | None:
    """Return the group of the collection that ``name`` misspells; None for one of its groups and one of the site's.

    Names with a number, such as gateway1 and cluster2_nodes, and with a whole word of the collection's, such as
    inference_eu and ml-inference, are the site's own.
    """
    begin, _underscore, rest = name.partition("_")
    for known in (*KINDS, *PURPOSES):
        # Only the capitals differ. The rest is a name of the site's, such as FRA1.
        if known != begin and known == begin.lower() and (known in KINDS) == bool(rest):
            return f"{known}_{rest}" if rest else known
    lower = name.lower()
    if {*re.split(r"[-_]", lower)} & {*KINDS, *PURPOSES, "clusters"} or re.search(r"\d", begin):
        return None
    kind = misspelt(begin.lower(), KINDS) if rest else None
    return f"{kind}_{rest}" if kind else misspelt(lower, PURPOSES)


def misspelt_groups(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the misspelt groups of an inventory, each with the group that it was meant to be.

    A group with hosts that are all in the right group is another name of the site's own, and so is `gateway` beside
    `gateways`.
    """
    found = {}
    for name in sorted(groups):
        near = meant_group(name)
        right = groups.get(near, ()) if near else ()
        if near and {*groups[name]} - {*right} and not (right and f"{name}s" == near):
            found[name] = near
    return found


def known_groups(models: Mapping[str, Model]) -> set[str]:
    """Return the groups accel_* of a catalogue: of its models, generations and stacks, with cpu and unknown."""
    names = {name for entry in models.values() for name in (entry.key, entry.generation, entry.stack)}
    return {MODEL_PREFIX + name for name in (*names, CPU, UNKNOWN)}


def models_of_groups(groups: Iterable[str], models: Mapping[str, Model]) -> list[str]:
    """Return the models that groups such as accel_h200 name, with cpu and unknown, by name.

    A stack or a generation may have a model's name. Beside another model of it, that name does not count as a model.
    """
    named = {name[len(MODEL_PREFIX) :] for name in groups if name.startswith(MODEL_PREFIX)}
    entries = [models[name] for name in named if name in models]
    wider = {wide for entry in entries for wide in (entry.stack, entry.generation) if wide != entry.key}
    return sorted(name for name in named - wider if name in models or name in (CPU, UNKNOWN))
