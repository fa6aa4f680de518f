# SPDX-License-Identifier: GPL-3.0-or-later
"""The module and tools/verify.py: processes, one of Ansible among them, a real server, and what they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.api_host import ask
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_host import listening_in

from tests.fakes.actions import ACTIONS
from tests.fakes.vllm import ANSWER, MODEL, chat_body, fake_vllm, self_signed
from tests.fakes.wheelhouse import run_module

ROOT = Path(__file__).resolve().parents[5]
# What the module asks systemd about a unit that runs.
UNIT_IS_UP = """#!/bin/sh
printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nResult=success\\nNRestarts=0\\nInvocationID=one\\n'
"""
KEY, OTHER_KEY, INVALID_KEY = "sk-planted-0123456789", "sk-other-planted-key", "sk-planted 1"


@pytest.fixture
def fake():
    with fake_vllm() as server:
        yield server


def environment(tmp_path, **extra):
    own = {
        "ANSIBLE_ACTION_PLUGINS": str(ACTIONS),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
    }
    return {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "1", **own, **extra}


def run(**options):
    """Run the module alone."""
    return run_module("endpoint", **{"ready_timeout": 5, **options})


@pytest.fixture
def play(tmp_path):
    """Run the module for each set of options in one play; return the results and what was printed at -vvv --diff."""

    def call(cases):
        # The values come from a file: ansible prints the lines of a playbook that fails.
        values, play, results = (tmp_path / name for name in ("values.json", "play.json", "results.json"))
        values.write_text(json.dumps({"cases": [{"ready_timeout": 5, **case} for case in cases]}))
        tasks = [
            {
                "baremetal.inference.endpoint": {
                    name: f"{{{{ cases[{number}].{name} }}}}" for name in ("ready_timeout", *case)
                },
                "register": f"found_{number}",
                "ignore_errors": True,
            }
            for number, case in enumerate(cases)
        ]
        found = "{{ [" + ", ".join(f"found_{number}" for number in range(len(cases))) + "] }}"
        tasks.append({"keep_result": {"value": found, "dest": str(results)}, "no_log": True})
        play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local", "-vvv", "--diff"]
        command += ["-e", f"ansible_python_interpreter={sys.executable}", "-e", f"@{values}", str(play)]
        done = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return json.loads(results.read_text()), printed

    return call


def test_a_good_server(fake):
    result = run(url=fake.url, model=MODEL, expect="fleet is ready")
    assert result["ok"] and not result["changed"]
    assert [row["name"] for row in result["checks"]] == [
        "ready",
        "models",
        "chat",
        "chat_stream",
        "responses",
        "completions",
    ]
    assert result["answer"] == ANSWER and result["tokens_per_second"] > 0
    assert 0 < result["time_to_first_token_s"] < 5 and result["ready_after_s"] < 5
    assert result["msg"] == f"{MODEL} at {fake.url} passes 6 checks"


@pytest.fixture
def unit_is_up(monkeypatch, tmp_path):
    """A systemd that says of each unit that it runs."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(UNIT_IS_UP)
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")


@pytest.fixture
def installed(fake, tmp_path):
    """Write the files of an instance, with a model of this configuration, and run the module on it."""

    def call(config, options="", **more):
        (tmp_path / "config.json").write_text(json.dumps(config))
        lines = f"host: 127.0.0.1\nport: {fake.server.server_port}\nserved-model-name: {MODEL}\nmodel: {tmp_path}\n"
        (tmp_path / "chat.yaml").write_text(lines + options)
        return run(instance="chat", config_dir=str(tmp_path), **more)

    return call


@pytest.mark.usefixtures("unit_is_up")
def test_an_instance_is_asked_what_fits_its_model(installed, fake):
    result = installed({"architectures": ["BertModel"]})
    assert [row["name"] for row in result["checks"]] == ["ready", "models", "embedding"] and result["ok"], result
    sees = {"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {"depth": 1}}
    fake.behaviour["image"] = lambda handler: handler.send_json(chat_body(content="Blue."))
    result = installed(sees, "enable-auto-tool-choice: true\n")
    assert [row["name"] for row in result["checks"]][2:] == [
        *("chat", "chat_stream", "responses", "completions"),
        *("tool_call", "image"),
    ]
    assert result["ok"] and result["doubts"] == ["image: answered 'Blue.' about a red picture"]
    assert any("answered 'Blue.' about a red picture" in str(warning) for warning in result["warnings"])
    result = installed(sees, checks=["models"])
    assert [row["name"] for row in result["checks"]] == ["ready", "models"]
    fake.behaviour["/rerank"] = lambda handler: handler.send_json({}, 500)
    result = installed({"architectures": ["BertForSequenceClassification"], "num_labels": 1})
    assert not result["ok"] and "vllm_instances.NAME.checks replaces it." in result["msg"]


@pytest.mark.usefixtures("unit_is_up")
def test_of_a_worker_the_unit_says_that_it_has_joined(installed):
    result = installed({}, "headless: true\n")
    assert result["ok"] and [row["name"] for row in result["checks"]] == ["ready"], result


@pytest.mark.usefixtures("unit_is_up")
def test_the_prompts_of_an_instance_with_a_router_are_computed_elsewhere(installed, fake, tmp_path):
    config, path = {"architectures": ["LlamaForCausalLM"]}, "/routed/v1/chat/completions"

    def computed(who):
        def send(handler):
            text = json.dumps(chat_body()).encode()
            handler.send_response(200)
            for name, value in (("Content-Type", "application/json"), ("Content-Length", len(text)), ("prefill", who)):
                handler.send_header(name, str(value))
            handler.end_headers()
            handler.wfile.write(text)

        return send

    with fake_vllm() as router:
        group = {"router": {"host": "0.0.0.0", "port": router.server.server_port}}
        (tmp_path / "chat.group.json").write_text(json.dumps(group))
        asked = {"checks": ["models", "chat"], "remote_prefill": True}
        router.behaviour[path] = computed("remote")
        result = installed(config, **asked)
        assert result["ok"], result
        assert [each[0] for each in router.asked] == [path]
        # What is not about a prompt is asked of vLLM itself.
        assert "/v1/models" in [each[0] for each in fake.asked]
        router.behaviour[path] = computed("local")
        assert "this host computed the prompt itself" in installed(config, **asked)["msg"]
        router.behaviour[path] = lambda handler: handler.send_text("No available workers: 0 prefill, 1 decode", 503)
        result = installed(config, **asked)
        assert result["failed"] and "no prefill host computed the prompt" in result["msg"]
        assert installed(config, checks=["chat"])["ok"]
    (tmp_path / "chat.group.json").write_text("[]")
    assert "chat.group.json" in installed(config, **asked)["msg"]


def test_a_bad_answer_fails_with_one_message(fake):
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(chat_body(content=""))
    result = run(url=fake.url, model=MODEL, checks=["models", "chat"], prompt="Ready?")
    assert result["failed"] and not result["ok"]
    assert result["msg"].splitlines() == [
        f"{MODEL} at {fake.url} does not pass 1 of 3 checks:",
        "- chat (POST /v1/chat/completions): choices[0].message.content is empty (10 tokens, finish_reason stop), "
        "expected text",
        "The prompt was 'Ready?'.",
    ]


def test_no_key_is_in_anything_that_is_printed(play, fake, tmp_path):
    def echo(handler):
        handler.send_json({"error": {"message": f"bad header {handler.headers['Authorization']}"}}, 400)

    fake.api_key = KEY
    fake.behaviour["/v1/responses"] = echo
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(chat_body(content=f"Your key is {KEY}"))
    secrets = tmp_path / "chat.secrets"
    secrets.write_text(f"# Ansible managed\nHF_TOKEN=hf_planted_token\nVLLM_API_KEY={KEY}\n")
    keys = {"api_key": KEY}, {"api_key_file": str(secrets)}, {"api_key": OTHER_KEY}, {"api_key": INVALID_KEY}
    (*right, wrong, invalid), printed = play([{"url": fake.url, "model": MODEL, **key} for key in keys])
    for result in right:
        assert [row["name"] for row in result["checks"] if not row["ok"]] == ["responses"]
        assert "bad header Bearer ****" in result["msg"] and result["answer"] == "Your key is ********"
        assert KEY not in json.dumps(result)
    assert wrong["msg"].count("answered 401 (Unauthorized); the server expects another API key") == 1
    assert invalid["failed"] and "the API key holds a blank, a line break" in invalid["msg"]
    assert {key for _path, _payload, key in fake.asked} == {f"Bearer {KEY}", f"Bearer {OTHER_KEY}"}
    assert [key for key in (KEY, OTHER_KEY, INVALID_KEY) if key in printed] == []


@pytest.mark.usefixtures("unit_is_up")
def test_every_client_of_an_instance_takes_its_self_signed_certificate(tmp_path):
    """An endpoint that is no instance of this host is verified, also at the same address."""
    context, certificate = self_signed(tmp_path)
    with fake_vllm(context) as fake:
        address = f"host: 127.0.0.1\nport: {fake.server.server_port}\n"
        (tmp_path / "chat.yaml").write_text(f"{address}served-model-name: [{MODEL}]\nssl-certfile: {certificate}\n")
        listening = listening_in(str(tmp_path), "chat")
        assert listening and ask(listening, "GET", "/health", 5).status == 200
        given = {"config_dir": str(tmp_path), "instance": "chat"}
        gate = run_module("instance_gate", **given, prompts=[], measure={"prompts": 0}, tries=1, pause=0)
        assert gate["passed"], gate
        wanted = {"checks": ["models", "chat"], "ready_timeout": 5}
        answer = run_module("endpoint", **given, **wanted)
        assert [row["name"] for row in answer["checks"] if not row["ok"]] == [], answer
        refused = {
            "an address": {"url": fake.url, "model": MODEL},
            "an authority that the site names": {**given, "ca_path": certificate},
        }
        for kind, options in refused.items():
            answer = run_module("endpoint", **{**options, **wanted, "ready_timeout": 0.5})
            assert "CERTIFICATE_VERIFY_FAILED" in answer["msg"], kind


def test_a_server_that_is_loading_is_waited_for(fake):
    began = time.monotonic()

    def loading(handler):
        handler.send_text("", 503 if time.monotonic() - began < 2 else 200)

    fake.behaviour["/health"] = loading
    result = run(url=fake.url, model=MODEL, checks=["models"], ready_timeout=120)
    assert result["ok"]
    assert [path for path, _payload, _key in fake.asked if path != "/health"] == ["/v1/models"]


def test_the_deadline_says_what_was_found_last(fake):
    fake.behaviour["/health"] = lambda handler: handler.send_text("", 503)
    result = run(url=fake.url, model=MODEL, ready_timeout=1)
    assert (
        result["msg"]
        == f"{MODEL} at {fake.url} is not ready:\n- ready: not ready after 1 s: GET {fake.url}/health: answered 503"
    )
    assert [row["name"] for row in result["checks"]] == ["ready"] and "ready_after_s" not in result


@pytest.mark.usefixtures("unit_is_up")
def test_an_instance_says_first_and_shortly_where_it_stands(installed, fake):
    fake.behaviour["/health"] = lambda handler: handler.send_text("", 503)
    first, second = installed({}, ready_timeout=0.5)["msg"].splitlines()[:2]
    assert (first, second) == ("chat runs, and does not answer.", f"{MODEL} at {fake.url} is not ready:")


def test_nobody_listens():
    result = run(url="http://127.0.0.1:9", model=MODEL, ready_timeout=0.5)
    assert "GET http://127.0.0.1:9/health: connection refused, nothing listens on 127.0.0.1:9" in result["msg"]


WRONG = [
    ({}, "one of the following is required: instance, model"),
    ({"model": "m", "checks": ["chat", "speed"]}, "value of checks must be one or more of"),
    ({"model": "m", "checks": []}, "checks: the list is empty, expected some of models, chat"),
    ({"model": "m", "max_tokens": 0}, "max_tokens: found 0, expected more than 0."),
    ({"model": "m", "journal_lines": -1}, "journal_lines: found -1, expected 0 or more."),
    ({"model": "m", "prompt": " "}, "prompt: is blank, expected a text."),
    ({"model": "m", "url": "http://127.0.0.1:8000/v1"}, "ends in /v1; give the server's address without it."),
    (
        {"model": "m", "url": "https://h", "ca_path": "/nowhere.pem"},
        "ca_path: /nowhere.pem holds no usable certificates",
    ),
    ({"model": "m", "api_key_file": "/nowhere/key"}, "api_key_file: /nowhere/key is not on this host."),
    ({"instance": "../x"}, "instance: found '../x', expected a name such as chat"),
    ({"instance": "chat", "config_dir": "/nowhere"}, "instance chat is not installed on this host: /nowhere/chat.yaml"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_a_wrong_option_is_named_before_anything_is_asked(options, said):
    result = run(**options)
    assert result["failed"] and said in result["msg"]


@pytest.mark.parametrize(
    "options", [{"instance": "chat", "config_dir": "/nowhere"}, {"url": "http://127.0.0.1:9", "model": MODEL}]
)
def test_check_mode_skips_what_is_not_there_yet(options):
    result = run(**options, _ansible_check_mode=True)
    assert (result["skipped"], result["ok"], result.get("failed", False), result["rc"]) == (True, None, False, 0)
    if "url" in options:
        assert result["msg"] == "Not verified: nothing answers at http://127.0.0.1:9."


@pytest.fixture
def verify(tmp_path):
    """Run tools/verify.py on hosts; return its exit status and the document."""

    def call(hosts, *flags):
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
        path = tmp_path / "hosts.json"
        path.write_text(json.dumps({"all": {"hosts": {name: {**local, **values} for name, values in hosts.items()}}}))
        command = [sys.executable, str(ROOT / "tools/verify.py"), "-i", str(path), *flags]
        done = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, json.loads(done.stdout)

    return call


def test_one_document_whatever_happens_to_a_host(verify):
    instances = {"vllm_instances": {"not-there": {"port": 8000}}}
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9, **instances}
    status, document = verify({"here": instances, "away": away, "bare": {}})
    assert status == 1 and not document["ok"]
    rows = {(row["host"], row["instance"], row["name"]): row for row in document["checks"]}
    assert set(rows) == {("here", "not-there", "endpoint"), ("away", None, "reach")}
    assert "/etc/vllm/not-there.yaml is not there" in rows["here", "not-there", "endpoint"]["detail"]
    # On a busy machine ssh has ended before Ansible has sent it anything.
    assert re.search(r"Connection refused|Broken pipe", rows["away", None, "reach"]["detail"])


def test_nothing_verified_is_not_ok(verify):
    status, document = verify({"bare": {}})
    (row,) = document["checks"]
    assert (status, document["ok"], row["host"], row["ok"]) == (1, False, "bare", False)
    assert "No host of this run has vllm_instances" in row["detail"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--limit", "nobody"), "ansible-playbook ended with status 1 before it verified anything"),
        (("--no-such-option",), "ansible-playbook ended with status 2 before it verified anything"),
    ],
)
def test_a_run_that_ends_before_it_verifies_is_not_ok(verify, flags, said):
    status, document = verify({"bare": {}}, *flags)
    assert (status, document["ok"], document["checks"]) == (1, False, [])
    assert said in document["problem"]
