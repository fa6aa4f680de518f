# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which paths and methods a service allows; the gateway answers 404 to everything else that vLLM serves."""

import re
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
KEYS = ("methods", "path")

# A name in a path. It begins with no dot, and only a slash may be encoded, so vLLM cannot read a path as another one.
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9._:@+-]*"
# A model ID may contain slashes, which clients send literally or encoded.
MODEL = f"{SEGMENT}(?:(?:/|%2[Ff]){SEGMENT})*"
PLACEHOLDERS = {"<id>": SEGMENT, "<model>": MODEL}

MODELS = (("/v1/models", ("GET",)), ("/v1/models/<model>", ("GET",)))
# Not /v1/responses/<id>: vLLM does not know whose response it is, so each client could read and cancel all of them.
_WRITE = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
_LISTEN = ("/v1/audio/transcriptions", "/v1/audio/translations")
_RERANK = ("/v1/rerank",)
# By task: those of recipes, and rerank and audio, for which recipes have no word. An embedding also ranks.
BY_TASK: Mapping[str, Sequence[str]] = {
    "audio": _LISTEN,
    "embedding": ("/v1/embeddings", *_RERANK),
    "multimodal": _WRITE,
    "omni": (*_WRITE, *_LISTEN),
    "rerank": _RERANK,
    "text": _WRITE,
}
# What vLLM's options runner, convert and the older task make of a model.
_BY_ARGUMENT = {
    **dict.fromkeys(("pooling", "embed", "embedding", "reward"), "embedding"),
    **dict.fromkeys(("classify", "score"), "rerank"),
    "transcription": "audio",
}

_PATH = re.compile(r"(?:/(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*|<id>|<model>))+\Z")


def tasks_of(arguments: Mapping[str, Any], recipe_tasks: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tasks of an instance from its arguments, else from its recipe; text where neither names one."""
    named = (str(arguments.get(name)) for name in ("task", "convert", "runner"))
    found = [_BY_ARGUMENT[value] for value in named if value in _BY_ARGUMENT]
    return tuple(found[:1]) or tuple(task for task in recipe_tasks if task in BY_TASK) or ("text",)


def paths_of(tasks: Sequence[str], extra: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the allowed paths of a service with these tasks; ``extra`` are valid entries of ``gateway_paths``.

    Each path is a mapping of ``methods`` (separated by spaces), ``match`` (``str`` or ``reg``, HAProxy's names) and
    ``value``.
    """
    own = [(path, ("POST",)) for path in dict.fromkeys(path for task in tasks for path in BY_TASK[task])]
    more = [(entry["path"], tuple(entry.get("methods", ["POST"]))) for entry in extra]
    return [_rule(path, methods) for path, methods in dict.fromkeys((*MODELS, *own, *more))]


def path_problems(extra: Any) -> list[str]:
    """Return a problem for each invalid entry of ``gateway_paths``."""
    if not isinstance(extra, (list, tuple)):
        return [f"gateway_paths: found {show_value(extra)}, expected a list of {{path: ..., methods: [...]}}"]
    return [text for number, entry in enumerate(extra) for text in _problems(f"gateway_paths[{number}]", entry)]


def task_problems(where: str, tasks: Any) -> list[str]:
    """Return a problem for each invalid entry of a service's ``tasks``."""
    if not isinstance(tasks, (list, tuple)) or not tasks:
        return [f"{where}: found {show_value(tasks)}, expected a list such as [text]"]
    return [
        f"{where}: found {show_value(task)}, expected the name of a task; {nearest(str(task), BY_TASK)}"
        for task in tasks
        if not isinstance(task, str) or task not in BY_TASK
    ]


def _problems(where: str, entry: Any) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f"{where}: found {show_value(entry)}, expected {{path: /v1/score, methods: [POST]}}"]
    for key in entry:
        if key not in KEYS:
            return [f"{where}: unknown key {show_value(key)}; {nearest(str(key), KEYS)}"]
    if not isinstance(entry.get("path"), str) or not _PATH.match(entry["path"]):
        return [
            f"{where}.path: found {show_value(entry.get('path'))}, expected a path such as /v1/score, where <id> "
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
