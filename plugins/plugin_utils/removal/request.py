# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from the variables of playbooks/remove.yml what to remove."""

import re
from typing import Any, Iterable, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest

# The variables that name something, with the form of a name and an example.
FORMS = {
    "instance": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*"), "chat"),
    "model": (re.compile(r"[\w.-]+/[\w.-]+(@[0-9a-f]{40})?", re.ASCII), "openai/gpt-oss-20b"),
    "environment": (re.compile(r"[0-9][A-Za-z0-9_.+-]*"), "0.32.0"),
    "image": (
        re.compile(r"[^\s/:@]+(:\d+(?=/))?(/[^\s:@]+)*(:[\w.-]+|@sha256:[0-9a-f]{64})"),
        "vllm/vllm-openai:v0.33.0",
    ),
}
EVERYTHING = "everything"
PREFIX = "remove_"
# What is removed with everything only if it is requested too.
SWITCHES = ("driver", "container_engine")


class RemovalRequestError(ValueError):
    """The variables do not define what to remove; the message is the whole sentence for the user."""


def parse_request(options: Mapping[str, Any], variables: Iterable[str]) -> dict[str, Any]:
    """Return ``kind``, ``names`` and ``also`` of a request; ``variables`` are the names of all variables of the play.

    Raises RemovalRequestError unless exactly one thing is requested, with valid names.
    """
    known = [f"{PREFIX}{kind}" for kind in (*FORMS, EVERYTHING)]
    switches = [f"{PREFIX}{switch}" for switch in SWITCHES]
    for name in sorted(variables):
        if name.startswith(PREFIX) and name not in (*known, *switches):
            raise RemovalRequestError(f"{name} is not a variable of remove.yml; {nearest(name, (*known, *switches))}")
    requested = {kind: options[kind] for kind in (*FORMS, EVERYTHING) if options.get(kind)}
    if len(requested) != 1:
        found = " and ".join(f"{PREFIX}{kind}" for kind in requested) or "none"
        raise RemovalRequestError(
            f"found {found}, expected exactly one of {', '.join(known)}, such as -e remove_instance=chat "
            "(`inference remove HOST --instance chat`)"
        )
    (kind, value) = next(iter(requested.items()))
    also = [switch for switch in SWITCHES if options.get(switch)]
    if also and kind != EVERYTHING:
        raise RemovalRequestError(
            f"found {PREFIX}{also[0]} with {PREFIX}{kind}, expected it with -e {PREFIX}{EVERYTHING}=true "
            f"(`inference remove HOST --{EVERYTHING}`) only"
        )
    return {"kind": kind, "names": [] if kind == EVERYTHING else _names(kind, value), "also": also}


def _names(kind: str, value: Any) -> list[str]:
    """Return the names in a text with commas or in a list. Raises RemovalRequestError for one of another form."""
    entries = value if isinstance(value, list) else str(value).split(",")
    names = [str(entry).strip() for entry in entries]
    form, example = FORMS[kind]
    for name in names:
        if not form.fullmatch(name):
            raise RemovalRequestError(
                f"{PREFIX}{kind} (--{kind}): found {show_value(name)}, expected a name such as {example}"
            )
    return list(dict.fromkeys(names))
