# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import argparse
import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import (
    InstanceError,
    Listening,
    endpoint_of,
    is_worker,
    listening_of,
    read_flat_yaml,
    read_secrets,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.arguments import env_line

yaml = pytest.importorskip("yaml")

CONFIGS = [
    {"model": "/var/lib/vllm/chat/model", "served-model-name": ["a", "b/c"], "host": "0.0.0.0", "port": 8000},
    {
        "served-model-name": "yes",
        "port": "8000",
        "compilation-config": '{"level": 3, "x": "it\'s"}',
        "enforce-eager": True,
    },
    {"model": "it's: #1", "host": "::1", "port": 1, "empty": [], "nothing": None},
    {"model": 'tab\tand "quotes"', "port": 8000, "nested": {"a": ["b"], "c": 1}, "last": "x"},
]


def test_a_template_of_a_chat_over_many_lines_is_passed_over():
    template = "{% for m in messages %}\\n{{ m['content'] }}: it's\\n{% endfor %}\\n" * 40
    config = {"chat-template": template.replace("\\\\n", "\\n"), "model": "m", "port": 8001}
    for width in (1000, 2**31 - 1):
        text = yaml.safe_dump(config, default_flow_style=False, indent=4, width=width)
        assert endpoint_of(text) == ("http://127.0.0.1:8001", ("m",))


@pytest.mark.parametrize("config", CONFIGS)
def test_it_reads_what_ansible_writes(config):
    # As Ansible's to_nice_yaml(width=1000) does.
    text = yaml.safe_dump(config, default_flow_style=False, indent=4, width=1000, allow_unicode=True)
    found = read_flat_yaml(f"#\n# Ansible managed\n#\n{text}")
    for key, value in config.items():
        if isinstance(value, str) or (isinstance(value, list) and value):
            assert found[key] == value
        elif isinstance(value, int) and not isinstance(value, bool):
            assert found[key] == str(value)


@pytest.mark.parametrize(
    ("text", "url", "names"),
    [
        ("model: m\n", "http://127.0.0.1:8000", ("m",)),
        (
            "host: 0.0.0.0\nport: 8001\nmodel: /x\nserved-model-name: chat # for people\n",
            "http://127.0.0.1:8001",
            ("chat",),
        ),
        # A worker: its play asks the unit whether it has joined.
        ("headless: true\nmodel: /x\nserved-model-name: [chat]\n", "http://127.0.0.1:8000", ("chat",)),
        ("host: '::'\nserved-model-name:\n- a\n- b\nmodel: x\n", "http://[::1]:8000", ("a", "b")),
        ("host: 10.0.0.7\nserved_model_name: [a, 'b']\nssl-certfile: /x.pem\n", "https://10.0.0.7:8000", ("a", "b")),
    ],
)
def test_the_endpoint_of_a_config(text, url, names):
    assert endpoint_of(text) == (url, names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: 8000\n", "found neither served-model-name nor model"),
        ("model: m\nport: http\n", "port: found 'http', expected a number from 1 to 65535"),
        ("model: m\nport: [1, 2]\n", "port: found a list, expected one value"),
        ("model: 'm\n", 'line 1: found "\'m", expected the quotes to end on the line'),
        ("{model: m}\n", "line 1: found '{model: m}', expected 'key: value'"),
        ("model: m\nserved-model-name: [a,\n", "line 2: found '[a,', expected the list to end on its line"),
    ],
)
def test_a_config_that_cannot_be_read_is_named(text, said):
    with pytest.raises(InstanceError) as caught:
        endpoint_of(text)
    assert said in str(caught.value)


def test_secrets_of_an_instance():
    lines = [env_line("HF_TOKEN", "hf_x"), env_line("VLLM_API_KEY", 'a "b" \\ $c')]
    text = "#\n# Ansible managed\n#\n" + "\n".join(lines)
    assert read_secrets(text) == {"HF_TOKEN": "hf_x", "VLLM_API_KEY": 'a "b" \\ $c'}
    assert read_secrets("# nothing\n; here\n\n") == {}
    assert read_secrets("A='b c'\nB=\n") == {"A": "b c", "B": ""}


@pytest.mark.parametrize("key", ["sk-plain", "c2VjcmV0a2V5MTIz", "YWJjZA==", "a=b"])
def test_a_file_that_is_the_key(key):
    assert read_secrets(f"{key}\n") == {"VLLM_API_KEY": key}


@pytest.mark.parametrize(
    ("text", "worker"),
    [("headless: true\nnode-rank: 1\n", True), ("port: 8000\n", False), ("x: 'headless: true'\n", False)],
)
def test_the_config_of_a_worker(text, worker):
    assert is_worker(text) is worker


# What vLLM's own parser makes of a file: FlexibleArgumentParser.load_config_file flattens what YAML reads into words,
# argparse takes the last of equal options, create_server_socket and uvicorn take the rest.
def judged(text):
    words = []
    for key, value in (yaml.safe_load(text) or {}).items():
        name = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words += [name] if value else []
        elif isinstance(value, list):
            words += [name, *map(str, value)] if value else []
        elif not isinstance(value, dict):
            words += [name, str(value)]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--headless", action="store_true")
    for name in ("--host", "--ssl-certfile", "--ssl-keyfile"):
        parser.add_argument(name)
    parser.add_argument("--port", type=int, default=8000)
    found, _rest = parser.parse_known_args(words)
    if found.headless:
        return None
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(found.host or "", found.host)
    only_here = (found.host or "") not in ("", "0.0.0.0", "::")
    return Listening(host, found.port, bool(found.ssl_certfile or found.ssl_keyfile), only_here)


@pytest.mark.parametrize(
    "text",
    [
        "model: m\n",
        "port: 8001\n",
        "host: ''\nport: '8001'\n",
        'host: "::"\n"port": 8_001 # the second instance\n',
        "host: 10.0.0.7\nport: 0x1F41\n",
        "port: 017501\n",
        "headless: yes\nport: 8001\n",
        "headless: True\n",
        "headless: false\nhost: localhost\n",
        "headless: off\n",
        "host: 127.0.0.1\nssl_certfile: /x.pem\n",
        "ssl-certfile: ''\n",
        "ssl-certfile: false\n",
        "ssl-keyfile: /x.key\nssl-certfile: /x.pem\n",
        "port: 8001\nport: 8002\n",
        "ssl-certfile: /x.pem\nssl_certfile: ''\n",
        "compilation-config:\n    host: 1.2.3.4\n    port: 9\nport: 8001\n",
        "chat-template: |\n  port: 9\nport: 8001\n",
        "host: '0.0.0.0'\n",
        "---\nhost: ::1\n...\n",
    ],
)
def test_an_odd_file_is_read_as_vllm_reads_it(text):
    assert listening_of(text) == judged(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("uds: /run/x\n", "uds: found a Unix socket, expected none"),
        ("port: 70000\n", "port: found '70000', expected a number"),
        ("port: 08.5\n", "port: found"),
        ("host: [a, b]\n", "host: found a list"),
    ],
)
def test_an_instance_that_nobody_can_reach_is_named(text, said):
    with pytest.raises(InstanceError, match=re.escape(said)):
        listening_of(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("''", False), ("0.0.0.0", False), ("10.0.0.7", False)],
)
def test_whether_other_hosts_can_reach_it(host, loopback):
    assert listening_of(f"host: {host}\n").on_loopback is loopback
