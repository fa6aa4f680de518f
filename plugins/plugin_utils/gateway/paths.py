# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which paths and methods a gateway allows; it answers 404 to everything else that vLLM serves."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import show_value
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
KEYS = ("methods", "path")

# A name in a path. It begins with no dot, and only a slash may be encoded, so vLLM cannot read a path as another one.
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9._:@+-]*"
# A model ID may contain slashes, which clients send literally or encoded.
MODEL = f"{SEGMENT}(?:(?:/|%2[Ff]){SEGMENT})*"
PLACEHOLDERS = {"<id>": SEGMENT, "<model>": MODEL}

ALLOWED = (
    ("/v1/models", ("GET",)),
    ("/v1/models/<model>", ("GET",)),
    ("/v1/chat/completions", ("POST",)),
    ("/v1/completions", ("POST",)),
    # Not /v1/responses/<id>: vLLM does not know whose response it is, so each client could read and cancel all of them.
    ("/v1/responses", ("POST",)),
)

_PATH = re.compile(r"(?:/(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*|<id>|<model>))+\Z")


def paths_of(extra: Any) -> tuple[list[dict[str, str]], list[str]]:
    """Return the allowed paths, and a problem for each invalid entry of ``gateway_paths``.

    Each path is a mapping of ``methods`` (separated by spaces), ``match`` (``str`` or ``reg``, HAProxy's names) and
    ``value``.
    """
    if not isinstance(extra, (list, tuple)):
        return [], [f"gateway_paths: found {show_value(extra)}, expected a list of {{path: ..., methods: [...]}}"]
    problems = [text for number, entry in enumerate(extra) for text in _problems(f"gateway_paths[{number}]", entry)]
    more = [] if problems else [(entry["path"], tuple(entry.get("methods", ["POST"]))) for entry in extra]
    return [_rule(path, methods) for path, methods in (*ALLOWED, *more)], problems


def _problems(where: str, entry: Any) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f"{where}: found {show_value(entry)}, expected {{path: /v1/embeddings, methods: [POST]}}"]
    for key in entry:
        if key not in KEYS:
            return [f"{where}: unknown key {show_value(key)}; {nearest(str(key), KEYS)}"]
    if not isinstance(entry.get("path"), str) or not _PATH.match(entry["path"]):
        return [
            f"{where}.path: found {show_value(entry.get('path'))}, expected a path such as /v1/embeddings, where <id> "
            "stands for a name and <model> for a name with slashes"
        ]
    return _method_problems(f"{where}.methods", entry.get("methods", ["POST"]))


def _method_problems(where: str, methods: Any) -> list[str]:
    if not isinstance(methods, (list, tuple)) or not methods:
        return [f"{where}: found {show_value(methods)}, expected a list such as [POST]"]
    return [
        f"{where}: found {show_value(method)}, expected one of {', '.join(METHODS)}"
        for method in methods
        if method not in METHODS
    ]


def _rule(path: str, methods: Sequence[str]) -> dict[str, str]:
    rule = {"methods": " ".join(methods), "match": "str", "value": path}
    if "<" in path:
        parts = [PLACEHOLDERS.get(part) or re.escape(part) for part in re.split(r"(<id>|<model>)", path)]
        rule.update(match="reg", value=f"^{''.join(parts)}$")
    return rule
