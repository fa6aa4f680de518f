# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole answer, to starts as people have them (tests/fixtures/commands.yml)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.answer import AdoptRequest, answer
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.redaction import redact, secrets_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError

from tests.fakes.commands import commands

COMMANDS = commands()
READ = [pytest.param(entry, id=entry["source"]) for entry in COMMANDS if "as" in entry]
REFUSED = [pytest.param(entry, id=entry["source"]) for entry in COMMANDS if "refused" in entry]
PLACES = ("args", "env", "left_out", "secrets")


@pytest.mark.parametrize("entry", READ)
def test_a_start_of_a_public_thread_is_adopted(entry):
    found = answer(AdoptRequest(**entry["options"]), entry["text"])
    instance, expected = found["instances"]["chat"], entry["as"]
    assert {key: instance.get(key) for key in expected if key not in PLACES} == {
        key: value for key, value in expected.items() if key not in PLACES
    }
    for key in ("args", "env"):
        assert (expected.get(key) or {}).items() <= (instance.get(key) or {}).items()
    words = {word for each in found["left_out"] for word in [each["word"], *each["word"].split(", ")]}
    assert set(expected.get("left_out") or ()) <= words
    assert found["secrets"] == expected.get("secrets", []) and not found["problem"]


@pytest.mark.parametrize("entry", REFUSED)
def test_one_that_cannot_be_read_is_answered_in_one_sentence(entry):
    options = entry["options"] if "as" not in entry else {}
    with pytest.raises(CommandError) as caught:
        answer(AdoptRequest(**options), entry["text"])
    assert entry["refused"] in str(caught.value) and "\n" not in str(caught.value)


# As guides write them, with what the sentence has to name.
OPEN = [
    (
        "docker run -e HF_TOKEN=<your-token> vllm/vllm-openai:latest --model ${MODEL} --api-key <the-key> -tp {TP} "
        "--port <port>",
        ["${MODEL}", "{TP}", "<port>"],
    ),
    (
        "vllm serve PATH/TO/MODEL -tp {TP} --max-model-len <MAX LEN> --served-model-name your-name",
        ["PATH/TO/MODEL", "{TP}", "<MAX LEN>", "your-name"],
    ),
    (
        "docker run -p $PORT:8000 -e NCCL_SOCKET_IFNAME=<nic> -v /path/to/models:/m $IMAGE --model {ORG}/{NAME}",
        ["$PORT", "<nic>", "$IMAGE", "{ORG}", "{NAME}"],
    ),
    ("bash -c 'vllm serve <your-model> --host <ip>'", ["<your-model>", "<ip>"]),
    (
        "services:\n  a:\n    image: ${IMAGE}\n    command: --model <model> --port ${PORT}\n",
        ["${IMAGE}", "<model>", "${PORT}"],
    ),
]


@pytest.mark.parametrize(("text", "parts"), OPEN)
def test_all_placeholders_are_named_in_one_sentence(text, parts):
    with pytest.raises(CommandError) as caught:
        answer(AdoptRequest(), text)
    message = str(caught.value)
    assert {part for part in parts if part not in message} == set() and "\n" not in message
    assert "your-token" not in message and "the-key" not in message and "/m" not in message.split("; ", 1)[1]


def test_placeholders_beside_the_model_are_left_out_each_with_its_reason():
    text = "vllm serve o/m -tp <N> --max-model-len {MAX_LEN} --port ${PORT} > log --served-model-name 'a {b}' <in.txt"
    found = answer(AdoptRequest(), text)
    reasons = {each["word"]: each["reason"] for each in found["left_out"]}
    assert reasons["-tp"].startswith("found <N>,") and reasons["--max-model-len"].startswith("found {MAX_LEN},")
    assert reasons["--port"].startswith("found ${PORT},") and reasons["--served-model-name"].startswith("found {b},")


def test_what_json_and_templates_hold_is_no_placeholder():
    text = (
        "vllm serve o/m --chat-template '{% for m in ms %}<s>{{m}}{% endfor %}' --served-model-name '{{name}}' "
        """--override-generation-config '{"stop": ["<end>", "{x}"]}'"""
    )
    found = answer(AdoptRequest(), text)
    assert found["left_out"] == [] and found["instances"]["chat"]["args"]["chat-template"].count("<s>{{m}}") == 1


HOSTILE = """
services:
  chat:
    image: vllm/vllm-openai:v0.33.0
    command: ["--model", "o/m", "--served-model-name", "{{ 6 * 7 }}", "--chat-template", "{% set a = 6 * 7 %}{{ a }}"]
    environment:
      NCCL_DEBUG: "{# #}{{ 40 + 2 }}"
      "HF_' ) ~ (40 + 2) ~ ('_KEY": x
      "NCCL_{{ 40 + 2 }}": x
      VLLM_API_KEY: x
"""


def test_a_host_without_accelerators_can_be_named():
    found = answer(AdoptRequest(accelerator="cpu"), "vllm serve o/m --dtype bfloat16")
    assert not found["problem"] and "1 x cpu" in found["text"]


@pytest.mark.slow
def test_what_a_site_writes_evaluates_no_word_of_a_command(tmp_path):
    found = answer(AdoptRequest(), HOSTILE)
    (tmp_path / "site.yml").write_text(found["text"].split("\n\n", maxsplit=1)[0])
    for name in ("vllm_instances", "vllm_secrets"):
        words = ["localhost", "-m", "debug", "-a", f"var={name}", "-e", f"@{tmp_path}/site.yml"]
        shown = subprocess.run(
            [sys.executable, "-m", "ansible", "adhoc", *words], capture_output=True, text=True, check=True,
            env={**os.environ, "VLLM_API_KEY": "the-key"},
        )  # fmt: skip
        assert "42" not in shown.stdout
        assert ("the-key" if name == "vllm_secrets" else "{{ 6 * 7 }}") in shown.stdout
    assert [each["reason"] for each in found["left_out"] if "40 + 2" in each["word"]] == ["no name of a variable"] * 2


NINES = "9" * 5000
LONG = [
    f"CUDA_VISIBLE_DEVICES={NINES} vllm serve o/m", f"docker run --gpus device={NINES} vllm/vllm-openai --model o/m",
    f"docker run --device /dev/davinci{NINES} vllm/vllm-openai --model o/m", f"vllm serve o/m --max-model-len {NINES}",
    f"docker run -p {NINES}:8000 vllm/vllm-openai --model o/m", f"vllm serve o/m -dp {NINES} -pp {NINES}",
    f"services:\n  a:\n    image: vllm/vllm-openai\n    command: --model o/m\n    gpus: [device_ids: ['{NINES}']]\n",
    "docker run --entrypoint \"'\" vllm/vllm-openai --model o/m",
]  # fmt: skip


@pytest.mark.parametrize("text", LONG)
def test_a_number_without_end_is_no_fault_of_ours(text):
    with contextlib.suppress(CommandError):
        assert answer(AdoptRequest(), text)["instances"]


@pytest.mark.parametrize("text", [
    "vllm serve " + "models--" * 7500, "vllm serve o/m " + "\\#" * 30_000,
    "docker run --device " + "a" * 60_000 + " vllm/vllm-openai", "bash " * 13_000, "bash" + " -x" * 20_000,
    "vllm serve m" + "\n#\\" * 20_000, "bash -" + "c" * 60_000 + "! vllm serve o/m",
])  # fmt: skip
def test_a_long_word_is_read_in_the_time_of_its_length(text):
    # Searched from each place to the end, these take minutes to hours.
    with contextlib.suppress(CommandError):
        answer(AdoptRequest(), text)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--kv-transfer-config", '{"kv_connector": "X", "kv_connector_extra_config": {"password": "s3cret99"}}'),
        ("--model-loader-extra-config", '{"aws_secret_access_key": "s3cret99", "concurrency": 16}'),
        ("--model-loader-extra-config.aws_secret_access_key", "s3cret99"),
        ("--otlp-traces-endpoint", "http://u:s3cret99@host"),
        ("--allowed-headers", '["X-Key: s3cret99"]'),
        ("--speculative-config", '{"model": "x/y", num: "s3cret99"}'),
    ],
)
def test_an_argument_with_a_secret_in_it_is_left_out_whole(flag, value):
    text = f"vllm serve o/m {flag} '{value}'"
    found = redact(answer(AdoptRequest(), text), text)
    assert found["instances"]["chat"]["args"] == {"tensor-parallel-size": 1}
    assert [each["word"] for each in found["left_out"]] == [flag.partition(".")[0]]
    assert "s3cret99" not in found["text"] and "****" not in found["text"]


def test_a_variable_whose_value_has_the_secret_of_another_becomes_a_secret():
    text = "docker run -e MY_PASSWORD=s3cret99 -e OTEL_SERVICE_NAME=a-s3cret99 vllm/vllm-openai --model o/m"
    assert answer(AdoptRequest(), text)["secrets"] == ["MY_PASSWORD", "OTEL_SERVICE_NAME"]


MANY = [
    "vllm serve o/m " + "--f1 1 " * 5000, "vllm serve o/m --lora-modules" + " a=/b" * 5000,
    " ".join(f"A{n}=1" for n in range(5000)) + " vllm serve o/m",
    "docker run " + " ".join(f"-e A{n}=1" for n in range(5000)) + " vllm/vllm-openai --model o/m",
    "docker run " + " ".join(f"--f{n}=1" for n in range(5000)) + " vllm/vllm-openai --model o/m",
]  # fmt: skip


@pytest.mark.parametrize("text", MANY)
def test_a_command_of_thousands_of_words_is_refused(text):
    with pytest.raises(CommandError, match=r"found \S+ words, options and variables, expected at most 600"):
        answer(AdoptRequest(), text)


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["source"]) for entry in COMMANDS])
def test_no_secret_is_printed_however_a_text_is_cut(entry):
    text = entry["text"]
    secrets = secrets_of(text)
    for end in {len(text), *range(20, len(text), 97)}:
        part = text[:end]
        try:
            found = str(redact(answer(AdoptRequest(**entry["options"]), part), part))
        except ValueError as exc:
            found = redact(str(exc), part)
        assert not [secret for secret in secrets if secret in found]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "neither command nor adopt_file"),
        ({"command": "a b", "file": "x"}, "both of command and adopt_file"),
        ({"command": "docker"}, "found the word 'docker' alone, because -e ends a value at a blank"),
        ({"file": "/nowhere/x"}, "cannot be read: No such file"),
        ({"file": "/dev/zero"}, "is not a file"),
    ],
)
def test_a_request_that_names_no_command_is_answered(options, part):
    with pytest.raises(CommandError) as caught:
        AdoptRequest(**options).text()
    assert part in str(caught.value)


DERIVED = "no image of vLLM's own; it may have other defaults, and "


@pytest.mark.parametrize(
    ("image", "inside"),
    [
        ("lmcache/vllm-openai:v0.5.4", "nothing says which release of vLLM is in it"),
        ("nvcr.io/nvidia/vllm:25.11-py3", "nothing says which release of vLLM is in it"),
        ("drikster80/vllm-gh200-openai:v0.11.0", "nothing says which release of vLLM is in it"),
        ("rocm/vllm:rocm7.0.0_vllm_0.11.1_20251103", "vLLM 0.11.1 is in it"),
        ("intel/vllm:0.33.0-xpu", "vLLM 0.33.0 is in it"),
    ],
)
def test_an_image_that_others_build_is_not_taken_for_the_one_of_the_release(image, inside):
    left = answer(AdoptRequest(), f"docker run --network host {image} vllm serve org/m")["left_out"]
    reason = f"{DERIVED}{inside}; the entry is for vLLM's image of 0.33.0; set vllm_image to keep it"
    assert [each["reason"] for each in left if each["word"] == image] == [reason]


def test_a_file_is_read_within_bounds(tmp_path):
    path = tmp_path / "start.txt"
    path.write_bytes(b"vllm serve o/m")
    assert AdoptRequest(file=str(path)).text() == "vllm serve o/m"
    for content, part in ((b"x" * 70_000, "more than 65,536 bytes"), (b"\xff", "is not text")):
        path.write_bytes(content)
        with pytest.raises(CommandError, match=part):
            AdoptRequest(file=str(path)).text()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("vllm serve o/m", "8 x h100"),
        ("VLLM_ROCM_USE_AITER=1 vllm serve o/m", "8 x mi300x"),
        ("HCCL_BUFFSIZE=1 vllm serve o/m", "8 x ascend_a2"),
        ("docker run -it quay.io/ascend/vllm-ascend:v0.30.0-a3 bash -c 'vllm serve o/m'", "16 x ascend_a3"),
        ("docker run vllm/vllm-openai-cpu:v0.32.0 --model o/m", "1 x cpu"),
    ],
)
def test_the_hardware_follows_from_image_and_variables(text, host):
    assert f"planned on {host}." in answer(AdoptRequest(), text)["text"]


def test_a_remark_on_a_variable_is_printed_once():
    text = answer(AdoptRequest(), "SOMETHING=1 vllm serve o/m")["text"]
    assert text.count("is known to read it") == 1


def test_another_version_of_the_package_is_named():
    found = answer(AdoptRequest(), "uv run --with vllm==0.25.1 vllm serve o/m")
    assert found["left_out"][0]["word"] == "vllm==0.25.1" and "for 0.33.0" in found["left_out"][0]["reason"]


def test_an_unknown_accelerator_is_named():
    with pytest.raises(CommandError, match="adopt_accelerator: unknown accelerator 'h20o'"):
        answer(AdoptRequest(accelerator="h20o"), "vllm serve o/m")
