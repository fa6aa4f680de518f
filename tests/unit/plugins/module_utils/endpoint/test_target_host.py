# SPDX-License-Identifier: GPL-3.0-or-later
"""What the options of the module endpoint name, with files of an instance as the role vllm writes them."""

from __future__ import annotations

import json
import ssl

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.documented import documented_arguments
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint import target_host
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.questions import CHECKS
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.target_host import Endpoint, OptionError
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import InstanceError
from ansible_collections.baremetal.inference.plugins.modules.endpoint import DOCUMENTATION

DEFAULTS = {name: entry.get("default") for name, entry in documented_arguments(DOCUMENTATION).items()}
CONFIG = "model: /srv/m\nserved-model-name: [first, second]\nhost: 0.0.0.0\nport: 8001\n"


@pytest.fixture
def target(tmp_path):
    """Write the files of chat; return what makes its endpoint."""
    (tmp_path / "chat.yaml").write_text(CONFIG)
    (tmp_path / "chat.secrets").write_text("VLLM_API_KEY=sk-of-the-instance\nHF_TOKEN=hf_1234567\nFLAG=1\n")

    def make(hidden=None, **options):
        params = {**DEFAULTS, "config_dir": str(tmp_path), "instance": "chat", **options}
        return Endpoint(params, lambda *_words: (0, "", ""), set() if hidden is None else hidden)

    return make


def test_an_instance_is_asked_at_its_loopback_address_with_its_key_and_its_names(target):
    hidden = set()
    endpoint = target(hidden)
    assert endpoint.facts() == {"url": "http://127.0.0.1:8001", "model": "first", "unit": "vllm@chat.service"}
    assert endpoint.models == ("first", "second")
    assert endpoint.client._headers["Authorization"] == "Bearer sk-of-the-instance"
    assert hidden == {"sk-of-the-instance", "hf_1234567"}, "a flag hides nothing"
    assert not endpoint.worker and endpoint.router is None


def test_options_go_before_the_files(target, tmp_path):
    (tmp_path / "key").write_text("VLLM_API_KEY=sk-of-the-file\n")
    endpoint = target(
        url="https://site.example:8443/", model="other", unit="x.service", api_key_file=str(tmp_path / "key")
    )
    assert endpoint.facts() == {"url": "https://site.example:8443", "model": "other", "unit": "x.service"}
    assert endpoint.client._headers["Authorization"] == "Bearer sk-of-the-file"
    assert target(api_key="sk-given").client._headers["Authorization"] == "Bearer sk-given"


def test_without_an_instance_nothing_of_one_is_read(target):
    endpoint = target(instance=None, model="m", config_dir="/nowhere")
    assert endpoint.facts() == {"url": "http://127.0.0.1:8000", "model": "m", "unit": ""}
    assert endpoint.unit is None and "Authorization" not in endpoint.client._headers


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_tokens": 0}, "max_tokens: found 0, expected more than 0"),
        ({"request_timeout": -1.5}, "request_timeout: found -1.5"), ({"ready_timeout": 0}, "ready_timeout: found 0"),
        ({"journal_lines": -1}, "journal_lines: found -1, expected 0 or more"),
        ({"checks": []}, f"checks: the list is empty, expected some of {CHECKS[0]}"),
        ({"prompt": " \n"}, "prompt: is blank"), ({"completion_prompt": ""}, "completion_prompt: is blank"),
        ({"instance": "../chat"}, "instance: found '../chat', expected a name such as chat"),
        ({"unit": "-x"}, "unit: found '-x'"),
        ({"api_key_file": "/nowhere/key"}, "api_key_file: /nowhere/key is not on"),
        ({"api_key": "two words"}, "the API key holds a blank"), ({"url": "ftp://x"}, "ftp://x"),
        ({"url": "https://x", "ca_path": "/nowhere/ca.pem"}, "ca_path: /nowhere/ca.pem holds no usable certificates"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_named(target, options, reason):
    with pytest.raises(OptionError) as caught:
        target(**options)
    assert reason in str(caught.value).replace('"', "'") and "two words" not in str(caught.value)


def test_an_instance_that_is_not_installed_is_named(target):
    with pytest.raises(InstanceError, match="caht"):
        target(instance="caht")


def test_checks_fit_the_model_unless_they_are_given(target, tmp_path):
    assert target(checks=["models"]).checks == ("models",)
    (tmp_path / "chat.yaml").write_text(CONFIG + "runner: pooling\nconvert: embed\n")
    assert set(target().checks) != set(target_host.CHAT)


def test_a_worker_answers_nobody_unless_an_address_is_given(target, tmp_path):
    (tmp_path / "chat.yaml").write_text(CONFIG + "headless: true\n")
    assert target(model="m").worker and not target(model="m", url="http://head:8000").worker


def test_the_router_is_asked_too_where_other_hosts_compute_prompts(target, tmp_path):
    (tmp_path / "chat.group.json").write_text(json.dumps({"router": {"host": "127.0.0.1", "port": 8100}}))
    assert target(remote_prefill=True).router.url == "http://127.0.0.1:8100"
    assert target().router is None and target(remote_prefill=True, url="http://x:1").router is None


def test_a_certificate_is_verified_unless_an_instance_is_known_by_its_process(target, tmp_path):
    (tmp_path / "chat.yaml").write_text(CONFIG + "ssl-certfile: /etc/x.pem\nssl-keyfile: /etc/x.key\n")
    own = target()
    assert own.url.startswith("https:") and own.client._tls.verify_mode == ssl.CERT_NONE and own.client._expected
    other = target(url="https://site.example")
    assert other.client._tls.verify_mode == ssl.CERT_REQUIRED and other.client._expected is None
    careless = target(url="https://site.example", validate_certs=False)
    assert careless.client._tls.verify_mode == ssl.CERT_NONE and not careless.client._tls.check_hostname


def test_the_question_is_the_one_of_the_options(target):
    question = target(prompt="a?", completion_prompt="b", expect="c", max_tokens=7).question()
    assert question.models == ("first", "second")
    assert (question.prompt, question.expect, question.max_tokens) == ("a?", "c", 7)
    assert target().question().expect == ""
