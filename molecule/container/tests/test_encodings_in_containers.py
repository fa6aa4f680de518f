# SPDX-License-Identifier: GPL-3.0-or-later
"""The Harmony library in the image is asked about the encodings, under docker and under podman."""

from __future__ import annotations

import json
import re

import pytest

STATE = "/var/lib/baremetal-inference/encodings-check.json"
FILE = "/srv/encodings/o200k_base.tiktoken"
# site.yml would bring the right file first.
VLLM_ALONE = """
- hosts: inference
  gather_facts: false
  roles: [baremetal.inference.vllm]
"""


def test_the_library_in_the_image_has_accepted_the_encodings(chat_instance):
    good = json.loads(chat_instance.host.file(STATE).content_string)["good"]
    (key,) = good
    assert key.startswith("/srv/encodings mirror:5000/lab/vllm-cpu")
    assert good[key]["library"] == chat_instance.inspect()["Image"] or chat_instance.inspect()["Image"].endswith(
        good[key]["library"]
    )


@pytest.mark.parametrize("chat_instance", [1], indirect=True, ids=["podman"])
def test_an_altered_file_ends_the_run_and_what_serves_goes_on(chat_instance, playbook, tmp_path):
    alone = tmp_path / "alone.yml"
    alone.write_text(VLLM_ALONE)
    before, host = chat_instance.inspect()["Id"], chat_instance.host
    host.check_output("cp --preserve=all %s %s.right", FILE, FILE)
    host.check_output("printf X | dd of=%s conv=notrunc status=none", FILE)
    done = playbook(str(alone), "--limit", "cpu-13", "-e", json.dumps({"vllm_drain_timeout": 29}))
    host.check_output("mv %s.right %s", FILE, FILE)
    output = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert done.returncode != 0, output
    assert f"{FILE}: oss-harmony 0." in output
    assert "of release 0.32.0 (mirror:5000/lab/vllm-cpu:0.32.0) does not load HarmonyGptOss with it" in output
    assert chat_instance.inspect()["Id"] == before
    assert chat_instance.chat() == "The fleet is ready."
