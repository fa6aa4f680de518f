# SPDX-License-Identifier: GPL-3.0-or-later
"""A field by which a request could steer the engine is known, whatever the release: removed, or harmless."""

from __future__ import annotations

import ast
import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.steering import FIELDS, KEYS, RECORDINGS

from tests.parity.real import RELEASES
from tools.vllm.fetch_vllm_release import sources

# What a field is called that could: order, identity, place, transfer, another process.
SUSPICIOUS = re.compile(
    "priorit|_id$|_ids$|rank|transfer|connector|remote|host|addr|port|url|path|peer|engine|worker|scheduler|report|xargs|"
    "extra_args|plugin|processor|backend|embeds|payload|priorities"
)
HARMLESS = {
    "allowed_token_ids", "label_token_ids", "logprob_token_ids", "prompt_token_ids", "return_token_ids",
    "stop_token_ids", "token_ids", "return_tokens_as_token_ids",  # tokens
    "previous_response_id", "custom_id", "session_id", "lora_int_id",  # names that clients may choose, or operators do
    "lora_path", "url", "file_url",  # of endpoints for operators, and of files of batches
    "mm_processor_kwargs", "mm_payload",  # how pictures are read, and what rendering returns
    "prompt_embeds",  # refused without --enable-prompt-embeds
    "vllm_xargs",  # searched for the fields
    "guided_decoding_backend",  # ignored
}  # fmt: skip
# Classes that are no request of a client: what the server makes of one, and offline use.
OTHERS = re.compile("Response|Offline|Render|Metadata|Metrics|BeamSearch|FaultTolerance")


def fields(root):
    """Yield class and name of each field of a request."""
    for path in (root / "vllm/entrypoints").rglob("*.py"):
        for found in ast.walk(ast.parse(path.read_text())):
            name = found.name if isinstance(found, ast.ClassDef) else ""
            if not re.search("Request|Mixin", name) or OTHERS.search(name):
                continue
            for line in found.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield name, line.target.id


@pytest.mark.parametrize("release", RELEASES)
def test_each_field_that_could_steer_the_engine_is_removed_or_known(release):
    found = {*fields(sources(release))}
    names = {name for _class, name in found}
    assert {"priority", "request_id", "kv_transfer_params"} <= names and len(names) > 100
    unknown = {pair for pair in found if SUSPICIOUS.search(pair[1])} - {
        pair for pair in found if pair[1] in FIELDS or pair[1] in HARMLESS
    }
    assert not unknown


# What vLLM reads of a part of a message: what it is, and what is in it.
CONTENTS = {
    "type", "text", "refusal", "thinking", "name", "data", "detail", "image_url", "image_pil", "image_embeds",
    "audio_url", "audio_embeds", "input_audio", "video_url", "video_embeds", "prompt_embeds",
}  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
def test_each_word_of_a_part_of_a_message_is_removed_or_known(release):
    files = (sources(release) / "vllm/renderers").glob("chat_utils*/**/*.py")
    files = [*files, *(sources(release) / "vllm/renderers").glob("chat_utils.py")]
    found = {name for path in files for name in re.findall(r'\bpart\.get\(\s*"(\w+)"', path.read_text())}
    assert {*KEYS, "type"} <= found and found <= {*KEYS, *CONTENTS}


@pytest.mark.parametrize("release", RELEASES)
def test_only_recordings_come_as_forms(release):
    """A field of a form may be JSON, which is not searched for the fields."""
    texts = [path.read_text() for path in (sources(release) / "vllm/entrypoints").rglob("*.py")]
    routes = {route for text in texts if "Form()" in text for route in re.findall(r'@router\.post\(\s*"([^"]+)"', text)}
    assert routes == {*RECORDINGS}
