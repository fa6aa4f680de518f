# SPDX-License-Identifier: GPL-3.0-or-later
"""The Harmony library of the real vLLM is asked about the encodings before anything is restarted."""

from __future__ import annotations

import json
import re

import pytest
from serving_host import chat, playbook

STATE = "/var/lib/baremetal-inference/encodings-check.json"
FILE = "/srv/encodings/o200k_base.tiktoken"
# site.yml would bring the right file first.
VLLM_ALONE = """
- hosts: inference
  gather_facts: false
  roles: [baremetal.inference.vllm]
"""


def test_the_library_of_the_environment_has_accepted_the_encodings(serving):
    good = json.loads(serving.file(STATE).content_string)["good"]
    (key,) = good
    assert re.fullmatch(r"/srv/encodings /opt/vllm/0\.32\.0-cpu-\w+/bin/python", key)
    assert good[key]["user"] == "vllm"


@pytest.mark.long
def test_a_truncated_file_ends_the_run_and_what_serves_goes_on(serving, tmp_path):
    alone = tmp_path / "alone.yml"
    alone.write_text(VLLM_ALONE)
    pid = serving.check_output("systemctl show -P MainPID vllm@chat")
    serving.check_output("truncate --size=-1 %s", FILE)
    # A change that would restart the instance.
    done = playbook(str(alone), "-e", json.dumps({"vllm_drain_timeout": 29}))
    output = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert done.returncode != 0, output
    assert f"{FILE}: oss-harmony 0." in output
    assert "of release 0.32.0 (/opt/vllm/0.32.0-cpu-" in output
    assert "found 3613921 bytes, expected 3613922; run the role encodings on this host" in output
    assert serving.check_output("systemctl show -P MainPID vllm@chat") == pid
    assert chat() == "The fleet is ready."
    done = playbook("site.yml", "--limit", "cpu-12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert serving.check_output("systemctl show -P MainPID vllm@chat") == pid
