# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout over hosts that serve from containers, and the way back."""

from __future__ import annotations

import json

import pytest
from serving_host import SECRETS

ANSWER = "The fleet is ready."
CONFIG = "/etc/vllm/chat.yaml"


def rolled(playbook, name, directory, **variables):
    """Run one of the two playbooks, one host after the other, and return what it says."""
    given = {
        "rollout_state_dir": str(directory),
        "rollout_waves": [1],
        "rollout_min_available": 0,
        "rollout_prompts": [{"prompt": "Is the fleet ready?", "expect": ANSWER}],
        "rollout_measure": {"streams": 1, "prompts": 2, "max_tokens": 16},
        # Another lab may have the processors meanwhile.
        "rollout_throughput_share": 0.05,
        "rollout_first_token_share": 0.05,
        **variables,
    }
    done = playbook(f"playbooks/{name}.yml", "-e", json.dumps(given))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
def test_a_rollout_changes_containers_and_a_rollback_brings_them_back(serving, playbook, tmp_path):
    docker, podman, neighbour = serving
    starts = [instance.starts() for instance in serving]
    files = [instance.host.file(CONFIG).content_string for instance in (docker, podman)]
    images = [instance.inspect()["Image"] for instance in (docker, podman)]
    args = {"kv-cache-memory-bytes": "192M", "distributed-executor-backend": "uni", "max-num-seqs": 7}
    smoke = {
        "recipe": "baremetal/gpt-oss-smoke",
        "host": "0.0.0.0",
        "env": {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    }
    # The same secrets without those of the instance that is left out, which would be refused.
    secrets = {"chat": {"VLLM_API_KEY": "canary-api-key-5f1d0c", "HF_TOKEN": "hf_canaryHubToken7b2e"}}
    instances = {"chat": {**smoke, "args": args}}
    said = rolled(playbook, "rollout", tmp_path, vllm_instances=instances, vllm_secrets=secrets)
    assert [instance.starts() - count for instance, count in zip(serving, starts, strict=True)] == [1, 1, 0]
    assert all("max-num-seqs: 7" in instance.host.file(CONFIG).content_string for instance in (docker, podman))
    assert [instance.chat() for instance in serving] == [ANSWER] * 3
    said += rolled(playbook, "rollback", tmp_path, rollout_undo="last")
    assert [instance.starts() - count for instance, count in zip(serving, starts, strict=True)] == [2, 2, 0]
    assert [instance.host.file(CONFIG).content_string for instance in (docker, podman)] == files
    assert [instance.inspect()["Image"] for instance in (docker, podman)] == images
    assert neighbour.chat() == docker.chat() == podman.chat() == ANSWER
    assert [secret for secret in SECRETS if secret in said] == []
