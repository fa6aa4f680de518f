# SPDX-License-Identifier: GPL-3.0-or-later
"""What provision.yml goes on with."""

from __future__ import annotations

import pytest

from tests.fakes.inventory_plugin import command

INVENTORY = "all: {children: {inference: {hosts: {gpu-1: {}}}, provisioner: {hosts: {prov-1: {}}}}}"


@pytest.mark.parametrize(
    ("words", "expected", "missing"),
    [
        ((), "Name the next step", "Serve the models"),
        (("-e", "provision_then_site=false"), "Name the next step", "Serve the models"),
        (("-e", "provision_then_site=true"), "Serve the models", "Name the next step"),
        (("-e", "provision_then_site=maybe"), "provision_then_site: found 'maybe', expected true or false", "play #1"),
    ],
)
def test_site_follows_where_that_is_asked_for(tmp_path, words, expected, missing):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    listed = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/provision.yml", "--list-tasks")
    done = command(tmp_path, *listed, *words)
    told = done.stdout + done.stderr
    assert expected in told
    assert missing not in told
