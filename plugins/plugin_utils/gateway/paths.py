# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which paths a gateway lets through, by method. Everything else that vLLM serves stays behind it. No I/O."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
KEYS = ("methods", "path")

# A name in a path. It begins with no dot, and nothing but a slash may be encoded: no path means another one behind it.
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9._:@+-]*"
# The id of a model has slashes of its own, which clients send as they are or encoded.
MODEL = f"{SEGMENT}(?:(?:/|%2[Ff]){SEGMENT})*"
PLACEHOLDERS = {"<id>": SEGMENT, "<model>": MODEL}

ALLOWED = (
    ("/v1/models", ("GET",)),
    ("/v1/models/<model>", ("GET",)),
    ("/v1/chat/completions", ("POST",)),
    ("/v1/completions", ("POST",)),
    ("/v1/responses", ("POST",)),
    ("/v1/responses/<id>", ("GET",)),
    ("/v1/responses/<id>/cancel", ("POST",)),
)

_PATH = re.compile(r"(?:/(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*|<id>|<model>))+\Z")


def paths_of(wanted: Any) -> tuple[list[dict[str, str]], list[str]]:
    """Return what is let through, and a sentence for each entry of ``gateway_paths`` that cannot be used.

    Each is a mapping of ``methods`` (parted by spaces), ``match`` (``str`` or ``reg``, as HAProxy calls it) and
    ``value``.
    """
    if not isinstance(wanted, (list, tuple)):
        return [], [f"gateway_paths: found {wanted!r}, expected a list of {{path: ..., methods: [...]}}"]
    problems = [text for number, entry in enumerate(wanted) for text in _problems(f"gateway_paths[{number}]", entry)]
    more = [] if problems else [(entry["path"], tuple(entry.get("methods", ["POST"]))) for entry in wanted]
    return [_rule(path, methods) for path, methods in (*ALLOWED, *more)], problems


def _problems(where: str, entry: Any) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f"{where}: found {entry!r}, expected {{path: /v1/embeddings, methods: [POST]}}"]
    for key in entry:
        if key not in KEYS:
            return [f"{where}: unknown key {key!r}; {nearest(str(key), KEYS)}"]
    if not isinstance(entry.get("path"), str) or not _PATH.match(entry["path"]):
        return [
            f"{where}.path: found {entry.get('path')!r}, expected a path such as /v1/embeddings, in which <id> stands "
            "for a name and <model> for one with slashes"
        ]
    return _method_problems(f"{where}.methods", entry.get("methods", ["POST"]))


def _method_problems(where: str, methods: Any) -> list[str]:
    if not isinstance(methods, (list, tuple)) or not methods:
        return [f"{where}: found {methods!r}, expected a list such as [POST]"]
    return [
        f"{where}: found {method!r}, expected one of {', '.join(METHODS)}"
        for method in methods
        if method not in METHODS
    ]


def _rule(path: str, methods: Sequence[str]) -> dict[str, str]:
    rule = {"methods": " ".join(methods), "match": "str", "value": path}
    if "<" in path:
        parts = [PLACEHOLDERS.get(part) or re.escape(part) for part in re.split(r"(<id>|<model>)", path)]
        rule.update(match="reg", value=f"^{''.join(parts)}$")
    return rule
