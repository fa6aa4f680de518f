# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the origin of each setting: the plans of a fleet, grouped and laid out as text."""

import json
import shlex
from typing import Any, Dict, Iterable, Mapping, Sequence

from ...module_utils.common.spelling import nearest
from ...module_utils.vllm.plan_document import DECODE, PREFILL
from ..common.tables import by_name, hosts_in_words, table, wrapped

WIDTH = 120
# Names of arguments and variables up to this width are not wrapped.
WHOLE = 44
HEADERS = ("key", "value", "from", "instead of")

# Fields of a plan that are listed beside its settings, in this order.
FACTS = (
    "instance", "replica_of", "accelerator", "stack", "generation", "runtime", "release", "vllm_version", "image",
    "recipe", "variant", "preset", "strategy", "features", "model", "listen", "chips", "memory_required_gib",
    "compilers", "command",
    "evidence", "warnings", "known_issues", "explain",
)  # fmt: skip

Plan = Mapping[str, Any]
Group = Dict[str, Any]


class ExplainError(ValueError):
    """The requested instance does not exist; the message is the whole sentence for the user."""


def group(plans: Iterable[Plan]) -> list[Group]:
    """Return plans that differ only in the host once each, with ``hosts`` in place of ``host``.

    A plan that already has ``hosts`` counts as a group. Groups keep the order of their first plans.
    """
    groups: dict[str, Group] = {}
    for plan in plans:
        hosts = list(plan["hosts"]) if "hosts" in plan else [plan["host"]]
        rest = {key: value for key, value in plan.items() if key not in ("host", "hosts")}
        found = groups.setdefault(json.dumps(rest, sort_keys=True, default=str), {"hosts": [], **rest})
        found["hosts"] += [host for host in hosts if host not in found["hosts"]]
    return list(groups.values())


def select_instance(groups: Sequence[Group], instance: str) -> list[Group]:
    """Return the groups of one instance and of its replicas. Raises ExplainError where no host has it."""
    found = [entry for entry in groups if instance in (entry["instance"], entry.get("replica_of"))]
    if not found:
        known = {entry["instance"] for entry in groups}
        raise ExplainError(f"explain_instance: no host has an instance {instance!r}; {nearest(instance, known)}")
    return found


def as_documents(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the groups as a document for programs: hosts, what was chosen, and each setting with its origin."""
    return [{"hosts": entry["hosts"], **{key: entry[key] for key in FACTS if key in entry}} for entry in groups]


def command_line(plan: Plan) -> str:
    """Return the variables of a plan and what its unit or container starts, as one line for a shell without secrets."""
    # An image that starts vLLM by itself has no words of its own.
    words = [*(plan["launch"] or plan["argv"][:2]), *plan["argv"][2:]]
    return shlex.join(["env", *(f"{name}={value}" for name, value in plan["env"].items()), *words])


def command_lines(groups: Sequence[Group]) -> str:
    """Return the command of each plan on one line for a shell, below a comment that names the instance."""
    places = (f"# {entry['instance']} on {hosts_in_words(by_name(entry['hosts']))}" for entry in groups)
    return "\n".join(f"{place}\n{command_line(entry)}" for place, entry in zip(places, groups))


def plan_table(plans: Iterable[Plan], width: int = WIDTH) -> str:
    """Return each distinct plan's settings and the origin of each, in at most ``width`` columns.

    A replica lists only its differences from its instance.
    """
    groups = group(plans)
    return "\n\n".join(_describe_group(entry, _base(entry, groups), width) for entry in groups)


def short_table(plans: Iterable[Plan], width: int = WIDTH) -> str:
    """Return what plan_table does, without what the collection sets in every plan, and with replicas in one line."""
    groups = group(plans)
    bases = [_base(entry, groups) for entry in groups]
    blocks = []
    for entry in (entry for entry, base in zip(groups, bases) if base is None):
        rows = entry.get("explain") or []
        shown = [row for row in rows if not str(row["layer"]).startswith("collection")]
        replicas = [other for other, base in zip(groups, bases) if base is entry]
        lines = [_describe_group({**entry, "explain": shown}, None, width)]
        lines += [wrapped(_replicas(replicas), width, "  ", "  ")] if replicas else []
        lines += [f"  {len(rows) - len(shown)} more settings are the collection's"] if len(rows) > len(shown) else []
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def shown_warnings(plans: Iterable[Plan], is_short: bool) -> set[str]:
    """Return the warnings in plan_table, or in short_table, which leaves out those of replicas."""
    groups = group(plans)
    shown = [entry for entry in groups if not is_short or _base(entry, groups) is None]
    return {text for entry in shown for text in entry.get("warnings") or []}


def _replicas(replicas: Sequence[Group]) -> str:
    """Return one line about the replicas of an instance, or about the other hosts of its group."""
    names = ", ".join(f"{entry['instance']} ({', '.join(_where(entry))})" for entry in replicas)
    return f"and {len(replicas)} like it: {names}"


def how_to_narrow(groups: Sequence[Group]) -> str:
    """Return the line on how to see fewer plans; "" for a single instance and its replicas."""
    if sum(entry.get("replica_of") in (None, entry["instance"]) for entry in groups) < 2:
        return ""
    hosts = {host for entry in groups for host in entry["hosts"]}
    return (
        f"{len(groups)} different plans on {len(hosts)} host{'' if len(hosts) == 1 else 's'}. To see fewer: -l HOSTS, "
        "-e explain_instance=NAME (`inference plan HOSTS --instance NAME`)\n\n"
    )


def _base(entry: Group, groups: Sequence[Group]) -> Group | None:
    """Return the plan that ``entry`` is shown against: of which it is a replica, or that of the head of its hosts."""
    for other in groups:
        if other["instance"] == entry.get("replica_of") != entry["instance"] and other["hosts"] == entry["hosts"]:
            return other
        if _is_head_of(other, entry):
            return other
    return None


def _is_head_of(other: Group, entry: Group) -> bool:
    """Return whether ``other`` is the plan of the first host of the hosts that serve ``entry`` together."""
    group, theirs = entry.get("group"), other.get("group")
    if not group or not theirs or other["instance"] != entry["instance"]:
        return False
    return bool(theirs["hosts"] == group["hosts"] and theirs["rank"] == 0 != group["rank"])


def _describe_group(entry: Group, base: Group | None, width: int) -> str:
    rows = entry.get("explain") or []
    if base is not None:
        rows = [row for row in rows if row not in (base.get("explain") or [])]
    parts = [wrapped(f"{entry['instance']} on {hosts_in_words(by_name(entry['hosts']))}", width, further="  ")]
    parts += [wrapped(line, width, "  ", "  ") for line in _headlines(entry, base)]
    if base is None and entry.get("evidence"):
        parts.append(wrapped(f"evidence: {entry['evidence']}", width, "  ", "  "))
    if rows:
        parts.append("\n" + table(HEADERS, [_row(row) for row in rows], width, "  ", whole=WHOLE))
    parts += [wrapped(f"warning: {text}", width, "  ", "  ") for text in entry.get("warnings") or []]
    return "\n".join(parts)


def _role(group: Mapping[str, Any]) -> str:
    """Return what a host does in its group."""
    sides = {PREFILL: "this host computes prompts", DECODE: "this host computes answers"}
    return sides.get(group["role"], f"this is its {group['role']}")


def _headlines(entry: Group, base: Group | None) -> list[str]:
    """Return the lines with the choices of a plan."""
    where, group = _where(entry), entry.get("group")
    if group and base is not None:
        beside = f"{group['role']} {group['rank']} of the instance on {group['hosts'][0]}; the rest is as there"
        return [", ".join(part for part in (beside, *where) if part)]
    if base is not None:
        return [", ".join(part for part in (f"a replica of {base['instance']}", *where) if part)]
    chosen_modes = dict(entry.get("features") or {})
    features = ", ".join(f"{name} ({mode})" if mode else name for name, mode in chosen_modes.items())
    chosen = [
        f"recipe {entry['recipe']}" if entry.get("recipe") else f"model {entry.get('model')}",
        *[f"{kind} {entry[kind]}" for kind in ("variant", "preset", "strategy") if entry.get(kind)],
        f"features {features}" if features else "",
    ]
    image = entry.get("image")
    hardware = [
        f"{entry.get('accelerator')} ({entry.get('stack')}, {entry.get('generation')})",
        f"vLLM {entry.get('vllm_version')}",
        f"{entry.get('runtime')} {image}" if image else str(entry.get("runtime")),
    ]
    together = [f"one instance over {hosts_in_words(group['hosts'])}; {_role(group)}"] if group else []
    return [", ".join(part for part in line if part) for line in (chosen, [*hardware, *where], together) if line]


def _where(entry: Group) -> list[str]:
    """Return where an instance listens, and its chips."""
    listen = entry.get("listen") or {}
    where = [f"listens on {listen['host']}:{listen['port']}" if listen else "", _chips(entry)]
    return [part for part in where if part]


def _chips(entry: Group) -> str:
    chips = entry.get("chips") or []
    return f"chip{'s' if len(chips) > 1 else ''} {', '.join(str(chip) for chip in chips)}" if chips else ""


def _row(row: Mapping[str, Any]) -> list[str]:
    because = row.get("because")
    over = [f"{format_value(entry.get('value'))} ({entry['layer']})" for entry in row.get("overrides") or []]
    return [
        str(row["key"]),
        format_value(row.get("value")),
        f"{row['layer']}: {because}" if because else str(row["layer"]),
        "; ".join(over),
    ]


def format_value(value: Any) -> str:
    """Return a value for a table: a text as it is, any other value as JSON, ``(not set)`` for None."""
    if value is None:
        return "(not set)"
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value, ensure_ascii=False, default=str)
