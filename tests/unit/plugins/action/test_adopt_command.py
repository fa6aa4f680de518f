# SPDX-License-Identifier: GPL-3.0-or-later
"""The action behind adopt.yml."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail

from tests.fakes.actions import run_action


def test_the_entry_is_returned_and_printed(capsys):
    command = "docker run -p 1:8000 vllm/vllm-openai --model openai/gpt-oss-20b --api-key s3cr3tw0rd --seed 1"
    found = run_action("adopt_command", {"command": command, "name": "mine"}, {})
    assert found["instances"]["mine"]["args"] == {"seed": 1, "tensor-parallel-size": 1} and not found["changed"]
    assert found["secrets"] == ["VLLM_API_KEY"] and "s3cr3tw0rd" not in str(found)
    printed = capsys.readouterr().out
    assert "vllm_instances:\n  mine:\n" in printed and "s3cr3tw0rd" not in printed


def test_an_error_holds_no_secret():
    command = "docker run -e MY_TOKEN=s3cr3tw0rd s3cr3tw0rd/image x"
    with pytest.raises(AnsibleActionFail) as caught:
        run_action("adopt_command", {"command": command}, {})
    assert "the image: found" in str(caught.value) and "s3cr3tw0rd" not in str(caught.value)


def test_a_note_about_the_entry_has_its_name(capsys):
    command = "docker run -p 8000:8000 vllm/vllm-openai --model openai/gpt-oss-20b"
    run_action("adopt_command", {"command": command, "name": "mine"}, {})
    printed = " ".join(capsys.readouterr().out.split())
    assert "- host: listens on 0.0.0.0" in printed and "set vllm_secrets.mine.VLLM_API_KEY" in printed


def test_a_name_that_no_instance_can_have_is_refused():
    command = "vllm serve openai/gpt-oss-20b"
    with pytest.raises(
        AnsibleActionFail, match=r"^vllm_instances\.a b: found the name 'a b', expected a text of letters"
    ):
        run_action("adopt_command", {"command": command, "name": "a b"}, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": "0.33"}, r"^adopt_release: no release '0\.33' in .*nearest: '0\.33\.0'"),
        ({"accelerator": "h200:0"}, "^adopt_accelerator: found 'h200:0', expected MODEL or MODEL:COUNT"),
        ({"accelerator": "h20o"}, "^adopt_accelerator: unknown accelerator 'h20o'; nearest: 'h20'"),
        ({"command": "", "file": "/accelerators: h200"}, "^adopt_file: /accelerators: h200 cannot be read"),
    ],
)
def test_an_error_names_the_option_of_the_playbook(options, message):
    with pytest.raises(AnsibleActionFail, match=message):
        run_action("adopt_command", {"command": "vllm serve openai/gpt-oss-20b", **options}, {})


def test_a_misspelt_model_has_the_nearest_recipe(capsys):
    run_action("adopt_command", {"command": "vllm serve openai/gpt-oss-2b"}, {})
    assert "No recipe here is for openai/gpt-oss-2b; nearest: 'openai/gpt-oss-20b'." in capsys.readouterr().out
