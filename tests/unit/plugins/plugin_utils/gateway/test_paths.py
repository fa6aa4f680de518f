# SPDX-License-Identifier: GPL-3.0-or-later
"""Which paths a service allows, with the expressions as HAProxy matches them: on the path as it was sent."""

from __future__ import annotations

import re

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.paths import (
    BY_TASK,
    METHODS,
    path_problems,
    paths_of,
    task_problems,
    tasks_of,
)


@pytest.mark.parametrize(
    ("arguments", "recipe", "tasks"),
    [
        ({}, (), ("text",)), ({}, ("multimodal",), ("multimodal",)), ({}, ("unheard-of",), ("text",)),
        ({"runner": "pooling"}, ("text",), ("embedding",)), ({"convert": "classify"}, (), ("rerank",)),
        ({"task": "transcription"}, ("embedding",), ("audio",)), ({"runner": "generate"}, ("omni",), ("omni",)),
        # The older and the more exact one counts.
        ({"task": "score", "runner": "pooling"}, (), ("rerank",)), ({"convert": "none", "runner": None}, (), ("text",)),
    ],
)  # fmt: skip
def test_arguments_say_the_task_before_the_recipe_does(arguments, recipe, tasks):
    assert tasks_of(arguments, recipe) == tasks


def allowed(tasks, extra, method, path):
    for rule in paths_of(tasks, extra):
        matches = rule["value"] == path if rule["match"] == "str" else re.search(rule["value"], path)
        if matches and method in rule["methods"].split():
            return True
    return False


MORE = [{"path": "/v1/score"}, {"path": "/v1/files/<id>/a.b", "methods": ["GET", "DELETE"]}]


@pytest.mark.parametrize(
    ("method", "path", "is_allowed"),
    [
        ("POST", "/v1/chat/completions", True), ("GET", "/v1/chat/completions", False), ("GET", "/v1/models", True),
        ("POST", "/v1/models", False), ("GET", "/v1/models/org/model", True), ("GET", "/v1/models/org%2Fmodel", True),
        ("GET", "/v1/models/../metrics", False), ("GET", "/v1/models/.x", False), ("GET", "/v1/models/a//b", False),
        ("GET", "/v1/models/a%2e%2e", False), ("GET", "/v1/models/", False), ("POST", "/v1/embeddings", False),
        ("POST", "/v1/responses", True), ("GET", "/v1/responses/resp_1", False), ("GET", "/metrics", False),
        ("POST", "/v1/score", True), ("DELETE", "/v1/files/f-1/a.b", True), ("DELETE", "/v1/files/f-1/aXb", False),
        ("DELETE", "/v1/files/a/b/a.b", False), ("GET", "/x/v1/files/f/a.b", False),
    ],
)  # fmt: skip
def test_a_service_of_texts_allows_what_clients_need(method, path, is_allowed):
    assert allowed(["text"], MORE, method, path) == is_allowed


def test_tasks_share_paths_without_doubling_them():
    found = [rule["value"] for rule in paths_of(["embedding", "rerank", "text", "omni"], [])]
    assert len(found) == len(set(found)) and found.count("/v1/rerank") == 1
    assert all(allowed([task], [], "POST", BY_TASK[task][0]) for task in BY_TASK)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ("x", 'gateway_paths: found "x", expected a list'), (["x"], 'gateway_paths[0]: found "x", expected {path:'),
        ([MORE[0], {"paht": "/x"}], 'gateway_paths[1]: unknown key "paht"; nearest: "path"'), ([{}], "[0].path: found"),
        ([{"path": "v1"}], '.path: found "v1", expected a path'), ([{"path": "/v1/<x>"}], ".path: found"),
        ([{"path": "/a/../b"}], ".path: found"), ([{"path": "/a\n"}], ".path: found"), ([{"path": "/a//b"}], ".path:"),
        ([{"path": "/v1/x", "methods": "POST"}], '.methods: found "POST", expected a list such as [POST]'),
        ([{"path": "/v1/x", "methods": []}], ".methods: found"),
        ([{"path": "/v1/x", "methods": ["post"]}], f'.methods: found "post", expected one of {", ".join(METHODS)}'),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_is_named(entries, problem):
    (found,) = path_problems(entries)
    assert problem in found.replace("'", '"')
    assert path_problems(MORE) == path_problems([]) == []


def test_a_task_is_one_of_the_list():
    assert task_problems("x.tasks", ["text", "audio"]) == []
    for tasks in ("text", [], None):
        assert len(task_problems("x.tasks", tasks)) == 1
    (problem,) = task_problems("x.tasks", ["txt", "text"])
    assert "'txt'" in problem.replace('"', "'") and "text" in problem
