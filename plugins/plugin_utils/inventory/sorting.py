# SPDX-License-Identifier: GPL-3.0-or-later
"""Sort hosts into inventory groups by what sources state about their accelerators."""

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.accelerator.recognition import CPU, UNKNOWN, Catalogue, rank
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..catalog.accelerators import MOST_CHIPS, count_problem
from ..common.group_names import CONFLICT_GROUP, MODEL_PREFIX, name_region_group

MIXED = "accelerator_mixed"

# ``h200:4 l40s:2``, the form that fits into one cell of a table.
_COUNTED = re.compile(r"([A-Za-z0-9_]+):(\d{1,4})\Z")


class SortingError(ValueError):
    """A statement about a host is invalid; the message names the variable, what was found and what was expected."""


class RegionError(SortingError):
    """Two names would become the same group; ``kind`` is cluster or site, ``value`` one of the names."""

    def __init__(self, kind: str, value: str, other: str) -> None:
        super().__init__(
            f"{kind}: found {show_value(value)}, and {show_value(other)} elsewhere, which would both be the group "
            f"{name_region_group(kind, value)}; rename one of them"
        )
        self.kind, self.value = kind, value


@dataclass(frozen=True)
class Statement:
    """What one source states about one host.

    ``source`` describes the source. ``models`` are pairs of model and number, the leading one first; the number is None
    where only the model is named. ``unknown`` counts chips that are not in the catalogue.
    """

    source: str
    models: tuple[tuple[str, int | None], ...]
    unknown: int = 0

    @property
    def kinds(self) -> int:
        """Return the number of kinds of chips; the unknown ones are one kind."""
        return len(self.models) + bool(self.unknown)

    def __str__(self) -> str:
        parts = [model if count is None else f"{model} x {count}" for model, count in self.models]
        return ", ".join(parts + ([f"unknown x {self.unknown}"] if self.unknown else []))


@dataclass(frozen=True)
class Place:
    """The groups that a host is a direct member of, by name, and the variables that it gets with them."""

    groups: tuple[str, ...]
    variables: Mapping[str, Any]


def read_declaration(variables: Mapping[str, Any], catalogue: Catalogue) -> Statement | None:
    """Return what a host's variables declare, None if they declare nothing. Raises SortingError.

    Either ``accelerator`` (and ``accelerator_count``), or ``accelerators``, a mapping of models to numbers or a text
    such as ``h200:4 l40s:2``.
    """
    model, count = variables.get("accelerator"), variables.get("accelerator_count")
    several = variables.get("accelerators")
    if several is not None:
        kinds = _declared_kinds(several, catalogue)
        # An earlier source may have set the other two from the same declaration.
        leading = kinds.models[0]
        if (model, count) not in ((None, None), leading):
            raise SortingError("accelerators: found beside accelerator or accelerator_count; use one of the two")
        return kinds
    if count is not None:
        count = _count("accelerator_count", count, model, catalogue)
    if model is None:
        return None
    _check_model("accelerator", model, catalogue)
    if model == CPU and count not in (None, 1):
        raise SortingError(f"accelerator_count: found {count} beside accelerator cpu, expected 1 or nothing")
    return Statement("declared", ((str(model), count),))


def _declared_kinds(several: Any, catalogue: Catalogue) -> Statement:
    pairs = _pairs(several) if isinstance(several, str) else several
    if not isinstance(pairs, Mapping) or not pairs:
        raise SortingError(
            f"accelerators: found {_shorten(several)}, expected models with their numbers, like {{h200: 4, l40s: 2}}"
        )
    for model in pairs:
        _check_model("accelerators", model, catalogue)
    if CPU in pairs:
        raise SortingError("accelerators: found cpu beside others, which means a host without any; leave it out")
    counts = {str(model): _count(f"accelerators.{model}", count, model, catalogue) for model, count in pairs.items()}
    return Statement("declared", leading_first(counts, catalogue))


def _pairs(text: str) -> dict[str, int] | None:
    """Return the pairs of ``h200:4 l40s:2``, None for any other text."""
    found = [_COUNTED.match(word) for word in text.split()]
    pairs = {match.group(1): int(match.group(2)) for match in found if match}
    return pairs if len(pairs) == len(found) else None


def _check_model(variable: str, model: Any, catalogue: Catalogue) -> None:
    if not isinstance(model, str):
        raise SortingError(f"{variable}: found {_shorten(model)}, expected the name of a model, like h200")
    if model not in catalogue.models and model != CPU:
        known = [*catalogue.models, CPU]
        raise SortingError(
            f"{variable}: found {_shorten(model)}, which is in no file of the catalogue; {_near(model, known)}"
        )


def _near(model: str, known: Sequence[str]) -> str:
    words = model.lower().replace("-", "_").replace(" ", "_")[:64]
    return f"nearest: {words!r}" if words in known else nearest(words, known)


def _count(variable: str, value: Any, model: Any, catalogue: Catalogue) -> int:
    """Return a number of chips. A text of digits is accepted, because INI files and tables have only text."""
    number = int(value) if isinstance(value, str) and re.match(r"\d{1,9}\Z", value, re.ASCII) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise SortingError(f"{variable}: found {_shorten(value)}, expected a whole number from 1 to {MOST_CHIPS}")
    if problem := count_problem(catalogue, str(model), number):
        raise SortingError(f"{variable}: {problem}")
    return number


def _shorten(value: Any) -> str:
    text = show_value(value)
    return text if len(text) <= 80 else text[:77] + "..."


def read_detection(document: Any, source: str, catalogue: Catalogue) -> Statement | None:
    """Return the hardware found on a host, from ``accelerator_detected`` as a fact or variable; None for anything else.

    A model that the catalogue no longer has counts as unknown.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("models"), Mapping):
        return None
    counts = {str(model): count for model, count in document["models"].items() if isinstance(count, int) and count > 0}
    unknown = document.get("unknown")
    strange = len(unknown) if isinstance(unknown, list) else 0
    strange += sum(count for model, count in counts.items() if model not in catalogue.models)
    known = {model: count for model, count in counts.items() if model in catalogue.models}
    if not known and not strange:
        return Statement(source, ((CPU, 1),))
    return Statement(source, leading_first(known, catalogue), strange)


def leading_first(counts: Mapping[str, int], catalogue: Catalogue) -> tuple[tuple[str, int], ...]:
    """Return pairs of model and number, ordered as recognition.match does."""
    return tuple(sorted(counts.items(), key=lambda pair: rank(catalogue.models[pair[0]], pair[1])))


def can_agree(first: Statement, other: Statement) -> bool:
    """Return whether two sources can both be right.

    A source with one model states nothing about others; a source with several models names all of them. A missing
    number agrees with every number.
    """
    if first.kinds == 1 and first.models:
        return any(_same(first.models, [pair]) for pair in other.models)
    return bool(first.unknown) == bool(other.unknown) and _same(first.models, other.models)


def _same(ours: Sequence[tuple[str, int | None]], theirs: Sequence[tuple[str, int | None]]) -> bool:
    counts = dict(theirs)
    return len(ours) == len(theirs) and all(
        model in counts and (count is None or counts[model] in (None, count)) for model, count in ours
    )


class Tree:
    """The groups of a catalogue: each model's below its generation's, and that below its stack's.

    A group is put below another only where every model of the one also belongs to the other, so that no group contains
    hosts whose chips do not belong to it.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        chains = {key: _distinct((model.stack, model.generation, key)) for key, model in catalogue.models.items()}
        chains[CPU] = (CPU,)
        self.parents: dict[str, list[str]] = {}
        below: dict[str, list[frozenset[str]]] = {}
        for chain in chains.values():
            for name in chain:
                below.setdefault(name, []).append(frozenset(chain))
        for chain in sorted(chains.values()):
            for parent, child in zip(chain, chain[1:]):
                if all(parent in names for names in below[child]) and child not in self._above(parent):
                    parents = self.parents.setdefault(child, [])
                    parents += [] if parent in parents else [parent]
        self._own = {key: self._lowest(chain) for key, chain in chains.items()}
        self._own[UNKNOWN] = (MODEL_PREFIX + UNKNOWN,)
        stacks = {model.stack for model in catalogue.models.values()} | {CPU, UNKNOWN}
        self.always = (*sorted(MODEL_PREFIX + stack for stack in stacks), CONFLICT_GROUP)

    def _above(self, name: str) -> list[str]:
        """Return a name and all above it."""
        found = [name]
        for entry in found:
            found += [parent for parent in self.parents.get(entry, ()) if parent not in found]
        return found

    def _lowest(self, chain: Sequence[str]) -> tuple[str, ...]:
        """Return the groups of a chain that none of its other groups implies."""
        implied = {above for name in chain for above in self._above(name)[1:]}
        return tuple(MODEL_PREFIX + name for name in chain if name not in implied)

    def own(self, model: str) -> tuple[str, ...]:
        """Return the groups that a host with this chip is a direct member of; their parents follow from ``edges``."""
        return self._own[model]

    def edges(self, groups: Iterable[str]) -> list[tuple[str, str]]:
        """Return the pairs of parent and child that these groups need."""
        prefix = MODEL_PREFIX
        own = [group[len(prefix) :] for group in groups if group.startswith(prefix)]
        names = sorted({above for name in own for above in self._above(name)})
        return [(prefix + parent, prefix + name) for name in names for parent in self.parents.get(name, ())]


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


class Sorter:
    """Sort hosts; equal statements are evaluated once, because a fleet has few kinds of hosts."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.tree = Tree(catalogue)
        self._known: dict[tuple[Statement, ...], Place] = {}

    def place(self, statements: tuple[Statement, ...]) -> Place:
        """Return the place of a host. The first statement decides; one that disagrees is only reported."""
        if statements not in self._known:
            self._known[statements] = self._place(statements)
        return self._known[statements]

    def _place(self, statements: tuple[Statement, ...]) -> Place:
        if not statements:
            return Place((), {})
        first = statements[0]
        agreeing = [first, *(other for other in statements[1:] if can_agree(first, other))]
        models = list(dict.fromkeys(model for statement in agreeing for model, _count in statement.models))
        models += [UNKNOWN] if any(statement.unknown for statement in agreeing) else []
        groups = [group for model in models for group in self.tree.own(model)]
        variables: dict[str, Any] = {MIXED: True} if len(models) > 1 else {}
        if first.source == "declared" and first.kinds > 1:
            variables.update(accelerator=first.models[0][0], accelerator_count=first.models[0][1])
        if len(agreeing) < len(statements):
            others = [f"{other.source} says {other}" for other in statements[1:] if other not in agreeing]
            variables[CONFLICT_GROUP] = f"{_describe(first)}, but {' and '.join(others)}"
            groups.append(CONFLICT_GROUP)
        return Place(tuple(dict.fromkeys(groups)), variables)


def _describe(first: Statement) -> str:
    return f"declared {first}" if first.source == "declared" else f"{first.source} says {first}"


@dataclass(frozen=True)
class Regions:
    """Groups of clusters and sites: those of each pair of cluster and site, pairs of parent and child, doubts.

    ``split_clusters`` are the clusters with hosts of several sites, or with some hosts of no site.
    """

    groups: Mapping[tuple[str | None, str | None], tuple[str, ...]]
    edges: list[tuple[str, str]]
    split_clusters: list[str]
    warnings: list[str]


def regions(pairs: Iterable[tuple[str | None, str | None]]) -> Regions:
    """Return the groups for pairs of cluster and site, either of which may be None; pairs may repeat.

    A cluster's group is put below its site's group where all its hosts name that site. Raises RegionError for two names
    that would become the same group.
    """
    distinct = sorted(set(pairs), key=lambda pair: (pair[0] or "", pair[1] or ""))
    names: dict[str, str] = {}
    sites: dict[str, list[str | None]] = {}
    for cluster, site in distinct:
        for kind, value in (("cluster", cluster), ("site", site)):
            if value is not None and names.setdefault(name_region_group(kind, value), value) != value:
                raise RegionError(kind, value, names[name_region_group(kind, value)])
        if cluster is not None:
            sites.setdefault(cluster, []).append(site)
    nested = {cluster: found[0] for cluster, found in sites.items() if len(found) == 1 and found[0] is not None}
    groups = {}
    for cluster, site in distinct:
        own = [] if cluster is None else [name_region_group("cluster", cluster)]
        own += [] if site is None or cluster in nested else [name_region_group("site", site)]
        groups[cluster, site] = tuple(own)
    edges = [
        (name_region_group("site", site), name_region_group("cluster", cluster))
        for cluster, site in sorted(nested.items())
        if site
    ]
    split_clusters = {cluster: [site for site in found if site] for cluster, found in sites.items() if len(found) > 1}
    warnings = [
        f"cluster {cluster!r} has hosts of several sites ({', '.join(found)}), so its group is below none of theirs"
        for cluster, found in split_clusters.items()
        if len(found) > 1
    ]
    return Regions(groups, edges, list(split_clusters), warnings)


def region_name(variable: str, value: Any) -> str | None:
    """Return the name of a cluster or site, None where none is given. Raises SortingError."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isalnum() and value.isascii():
        return value
    if isinstance(value, (str, int)) and not isinstance(value, bool) and re.search(r"[A-Za-z0-9]", str(value)):
        if not str(value).isprintable():
            raise SortingError(f"{variable}: found {_shorten(value)}, expected a name on one line, like fra1")
        return str(value)
    raise SortingError(f"{variable}: found {_shorten(value)}, expected a name, like fra1")
