# SPDX-License-Identifier: GPL-3.0-or-later
"""An error in a file of variables names the file, line and column; the variables stay what they were."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.release import __version__

TOP = Path(__file__).resolve().parents[4]
GOOD = "greeting: hello\n"
BAD = "chat:\n  recipe: a/b\n port: 8000\n"


@pytest.fixture
def inventory(tmp_path):
    for name in ("group_vars/all.yml", "group_vars/inference.yml", "host_vars/gpu-1.yml"):
        path = tmp_path / "inventory" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GOOD if name.startswith("group_vars/inf") else "other: 1\n", encoding="utf-8")
    (tmp_path / "inventory/hosts.yml").write_text("inference: {hosts: {gpu-1: }}\n", encoding="utf-8")
    return tmp_path / "inventory"


def ask(inventory, **environment):
    """Show a variable of the host with the checkout's configuration; return exit status and output."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible"), "-i", inventory, "gpu-1", "-m", "debug", "-a", "var=greeting"],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_variables_are_what_they_were(inventory):
    rc, told = ask(inventory)
    assert rc == 0 and "hello" in told and "WARNING" not in told, told


@pytest.mark.parametrize("name", ["group_vars/all.yml", "group_vars/inference.yml", "host_vars/gpu-1.yml"])
def test_an_error_names_file_line_and_column(inventory, name):
    (inventory / name).write_text(BAD, encoding="utf-8")
    rc, told = ask(inventory)
    # The second is how ansible-core 2.18 writes a place.
    places = (f"{inventory / name}:3:2", f"'{inventory / name}': line 3, column 2")
    assert rc != 0 and any(place in told for place in places), told


def test_a_file_in_another_encoding_is_named(inventory):
    (inventory / "host_vars/gpu-1.yml").write_bytes('greeting: "für"\n'.encode("latin-1"))
    rc, told = ask(inventory)
    # ansible-core 2.18 says "surrogates not allowed" without the file.
    named = f"the file is not UTF-8; save it as UTF-8\nOrigin: {inventory / 'host_vars/gpu-1.yml'}" in told
    assert (rc != 0 and named) or __version__.startswith("2.18."), told


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (
            "a: 1\nb:\n  - expires: 2027-02-30\n",
            "3:14",
            "b[0].expires: found '2027-02-30', which cannot be read as a date",
        ),
        ("a: " + "9" * 6000, "1:4", "a: found '9999"),
        ("- a\n", "1:1", "found a list, expected a mapping of variables"),
    ],
)
def test_what_ansible_does_not_place_has_a_file_a_line_and_a_key(inventory, text, place, words):
    (inventory / "group_vars/inference.yml").write_text(text, encoding="utf-8")
    rc, told = ask(inventory)
    assert rc != 0 and f"{inventory / 'group_vars/inference.yml'}:{place}: {words}" in told, told


@pytest.mark.parametrize("levels", [101, 900, 3000])
def test_a_variable_with_too_many_levels_has_a_file_and_a_name(inventory, levels):
    file = inventory / "group_vars/inference.yml"
    file.write_text("b: 1\na: " + "[" * levels + "]" * levels, encoding="utf-8")
    rc, told = ask(inventory)
    assert rc != 0 and str(file) in told, told
    # The newest PyYAML has a bound of its own, of 1,000.
    assert re.search("found more than 100 levels of lists and mappings|exceeded maximum nesting depth", told), told


def test_a_key_that_stands_twice_is_an_error(inventory):
    file = inventory / "host_vars/gpu-1.yml"
    file.write_text("other: 1\ngreeting: a\ngreeting: b\n", encoding="utf-8")
    rc, told = ask(inventory)
    assert rc != 0 and f"{file}:3:1: found the key 'greeting' twice, expected it once" in told, told
    # With an installed collection, whose user has another configuration.
    (inventory.parent / "plain.cfg").touch()
    plain = {
        "ANSIBLE_CONFIG": str(inventory.parent / "plain.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"),
        "ANSIBLE_VARS_ENABLED": "baremetal.inference.file_errors,host_group_vars",
    }
    rc, told = ask(inventory, **plain)
    assert rc != 0 and f"{file}:3:1" in told, told
    rc, told = ask(inventory, **plain, ANSIBLE_DUPLICATE_YAML_DICT_KEY="ignore")
    assert rc == 0 and '"greeting": "b"' in told, told
