# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.common.run_file import Installer

from tests.unit.test_layout import TOP

FILE = Installer(
    "x.run", "https://site/x.run", "/var/lib/x.run", "ab" * 32, ("/var/lib/x.run", "--quiet"), "the driver"
)


def test_a_file_asks_nothing_and_has_no_log_unless_its_vendor_says_so():
    assert (FILE.log, FILE.stdin) == ("", "")
    with pytest.raises(dataclasses.FrozenInstanceError):
        FILE.argv = ("/bin/sh",)


@pytest.mark.parametrize("role", ["vendor_stack", "container_runtime"])
def test_tasks_use_what_an_installer_has_and_verify_before_they_run(role):
    """The roles get it as a mapping: a name that is none of its fields would be an error on the host."""
    texts = [path.read_text() for path in (TOP / "roles" / role / "tasks").glob("*installer*.yml")]
    words = [word for text in texts for word in text.replace(".", " ").replace("}", " ").split()]
    fields = {field.name for field in dataclasses.fields(Installer)}
    assert texts and all(yaml.safe_load(text) for text in texts)
    assert {"argv", "sha256"} <= fields & set(words)
