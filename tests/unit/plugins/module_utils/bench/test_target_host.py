# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance is measured, from its files."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import BY_MODULE, BenchError
from ansible_collections.baremetal.inference.plugins.module_utils.bench.target_host import read_instance

from tests.fakes.bench_host import KEY, BenchHost


@pytest.fixture
def host(tmp_path):
    return BenchHost(tmp_path, 8123)


def test_an_instance_in_a_virtual_environment(host):
    found = read_instance("chat", str(host.root))
    assert found.target.command == (f"{host.bin}/vllm", "bench", "serve") and found.target.inside == ()
    assert (found.target.url, found.target.model, found.target.tokenizer) == (
        "http://127.0.0.1:8123",
        "m",
        "/srv/models/m",
    )
    assert found.target.options == ("--trust-remote-code",) and found.api_key == KEY and KEY in found.secrets


@pytest.mark.parametrize("kept_by_an_older_release", [True, False])
def test_an_environment_whose_vllm_command_does_not_work(host, kept_by_an_older_release):
    if kept_by_an_older_release:
        host.serve(f"{host.bin}/python -m vllm.entrypoints.openai.api_server")
    else:
        (host.root / "etc/vllm/chat.env").write_text("PYTHONPATH=/usr/local/lib/vllm:/var/lib/vllm/chat/metadata\n")
    host.program("python", "#!/bin/sh\n")
    (host.bin / "vllm").unlink()
    assert read_instance("chat", str(host.root)).target.command == (f"{host.bin}/python", "-c", BY_MODULE)


def test_an_instance_in_a_container(host):
    (host.root / "etc/systemd/system").mkdir(parents=True)
    (host.root / "etc/systemd/system/vllm@chat.service").write_text("[Service]\n")
    host.serve("/usr/bin/docker run --rm --name vllm-chat vllm/vllm-openai:v0.33.0")
    target = read_instance("chat", str(host.root)).target
    assert (target.command, target.inside) == (("vllm", "bench", "serve"), ("/usr/bin/docker", "exec", "vllm-chat"))


def test_tls_and_another_tokenizer(host):
    path = host.root / "etc/vllm/chat.yaml"
    path.write_text(path.read_text() + "ssl-certfile: /etc/c.pem\ntokenizer: /srv/t\ntokenizer-mode: slow\n")
    target = read_instance("chat", str(host.root)).target
    assert target.url.startswith("https:") and target.tokenizer == "/srv/t"
    assert target.options == ("--tokenizer-mode", "slow", "--trust-remote-code", "--insecure")


def test_what_is_missing_is_named(host):
    (host.bin / "vllm").unlink()
    with pytest.raises(
        BenchError, match=r"venv/bin/vllm is not there, expected vLLM's command; run playbooks/site.yml"
    ):
        read_instance("chat", str(host.root))
    (host.root / "var/lib/vllm/chat/serve").unlink()
    with pytest.raises(BenchError, match="names no virtual environment and no image"):
        read_instance("chat", str(host.root))
    with pytest.raises(BenchError, match=r"instance talk is not installed on this host: .*/etc/vllm/talk.yaml"):
        read_instance("talk", str(host.root))
    (host.root / "etc/vllm/chat.yaml").write_text("port: x\nmodel: m\n")
    with pytest.raises(BenchError, match=r"chat.yaml: port: found 'x'"):
        read_instance("chat", str(host.root))
