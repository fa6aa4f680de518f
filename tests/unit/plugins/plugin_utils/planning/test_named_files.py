# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import Doubt
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.named_files import file_problems, with_files

GEMMA = "examples/tool_chat_template_gemma4.jinja"
MANIFEST = {"files": {"parser.py": {}, "chat.jinja": {}}}


@pytest.mark.parametrize(
    ("args", "examples", "expected"),
    [
        ({"chat-template": GEMMA}, True, {"chat-template": GEMMA}),
        ({"chat-template": GEMMA}, False, {"chat-template": "/usr/local/lib/vllm/tool_chat_template_gemma4.jinja"}),
        ({"chat-template": "examples/other.jinja"}, False, {"chat-template": "examples/other.jinja"}),
        ({"chat-template": "examples/a-b/c-d.jinja"}, False, {"chat-template": "examples/a-b/c-d.jinja"}),
        ({"chat-template": "chat.jinja"}, True, {"chat-template": "/srv/m/chat.jinja"}),
        ({"reasoning-parser-plugin": "parser.py"}, False, {"reasoning-parser-plugin": "/srv/m/parser.py"}),
        ({"tool-parser-plugin": "/opt/parser.py"}, False, {"tool-parser-plugin": "/opt/parser.py"}),
        ({"chat-template": "{{ parser.py }}"}, False, {"chat-template": "{{ parser.py }}"}),
    ],
)
def test_files_of_the_weights_and_of_this_collection_get_their_path(args, examples, expected):
    assert with_files(args, MANIFEST, "/srv/m", examples) == expected


@pytest.mark.parametrize(
    ("args", "pinned", "examples", "kinds"),
    [
        ({"chat-template": "examples/other.jinja"}, True, False, [str]),
        ({"chat-template": "examples/other.jinja"}, False, False, [str]),
        ({"chat-template": "examples/other.jinja"}, True, True, []),
        ({"chat-template": "examples/pooling/score/template/nemotron-rerank.jinja"}, True, True, []),
        *(
            ({"chat-template": name}, True, True, [str])
            for name in ("chat.jinja", "examples/../x.jinja", "examples/tool_chat_template_hermes", "../x.jinja", "x")
        ),
        ({"chat-template": "examples/pooling/embed/template/x.jinja"}, True, True, []),
        # vLLM looks for these among its own.
        ({"chat-template": "template_chatml.jinja"}, True, False, []),
        ({"reasoning-parser-plugin": "parser.py"}, True, True, [str]),
        # Weights that nobody has pinned may have it.
        ({"reasoning-parser-plugin": "parser.py"}, False, True, [Doubt]),
        ({"reasoning-parser-plugin": "/opt/parser.py", "chat-template": "{{ x }}"}, True, False, []),
    ],
)
def test_files_that_nothing_brings(args, pinned, examples, kinds):
    assert [type(problem) for problem in file_problems(args, pinned, examples)] == kinds


def test_the_sentence_names_flag_and_file():
    (problem,) = file_problems({"tool-parser-plugin": "parser.py"}, True, True)
    assert problem == (
        "tool-parser-plugin names parser.py, which nothing brings to the place where vLLM starts; set args "
        "tool-parser-plugin to the absolute path of a copy that vLLM can read there (of a container: in its image), or "
        "take it away with null"
    )
