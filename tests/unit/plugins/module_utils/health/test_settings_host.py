# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of the health service: what is missing has a default, and what is unknown is refused."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.settings_host import Settings

LEAST = {"host": "gpu-01", "stack": "cuda", "vendor": "nvidia", "model": "h200", "faults": {}}


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a configuration."""

    def found(content):
        path = tmp_path / "health.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return Settings.read(str(path))

    return found


def test_what_the_role_writes_is_what_the_service_reads(read):
    chips = {"chat": ["0000:5d:00.0"]}
    settings = read({**LEAST, "chips": chips, "restart": False, "poll": 5})
    assert (settings.host, settings.chips, settings.restart, settings.poll) == ("gpu-01", chips, False, 5)


def test_a_host_without_options_watches_the_places_of_the_roles(read):
    settings = read(LEAST)
    assert (settings.config_dir, settings.run_dir, settings.kernel_log) == ("/etc/vllm", "/run/vllm", "/dev/kmsg")
    # No webhook and no metrics: nothing is sent or written that nobody asked for.
    assert (settings.webhook, settings.metrics, settings.addresses, settings.chips) == ("", "", (), {})
    assert settings.restart


def test_two_hosts_share_no_default(read):
    read(LEAST).chips["chat"] = ["0000:5d:00.0"]
    assert read(LEAST).chips == {}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({**LEAST, "pol": 5}, TypeError),
        ({"host": "gpu-01"}, TypeError),
        ([], TypeError),
        ("", ValueError),
        ('{"host": ', ValueError),
    ],
    ids=["an unknown key", "a missing key", "no mapping", "empty", "cut off"],
)
def test_a_configuration_that_is_none_is_refused(read, content, error):
    """A key that is written wrong must not leave its default in force in silence."""
    with pytest.raises(error):
        read(content)


def test_a_missing_configuration_is_an_error_of_its_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Settings.read(str(tmp_path / "health.json"))
