# SPDX-License-Identifier: GPL-3.0-or-later
"""Which modules and plugins are public: the others begin with "(internal)" in ansible-doc -l."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
# A change here is a change that users notice: it needs a fragment in changelogs/fragments.
PUBLIC = {
    "modules": {
        "accelerator_info", "chip_identity", "container_runtime", "encodings", "endpoint", "gateway_server",
        "gateways_info", "instance_idle", "instance_slot", "weights",
    },
    "callback": {"run_json", "verify_json"},
    "filter": {"plan_table"},
    "inventory": {"accelerators"},
    "lookup": set(),
    "vars": {"file_errors"},
}  # fmt: skip
USE = re.compile(r'^EXAMPLES = "\\n# (\S+)\\n"$', re.MULTILINE)
DESCRIPTION = re.compile(r"^\s*short_description: [\"']?(.+)$", re.MULTILINE)


@pytest.mark.parametrize("kind", PUBLIC)
def test_what_is_not_public_says_so_first(kind):
    described = {}
    for path in sorted((TOP / "plugins" / kind).iterdir()):
        if path.suffix in (".py", ".yml") and (found := DESCRIPTION.search(path.read_text(encoding="utf-8"))):
            described[path.stem] = found[1]
    assert {name for name, text in described.items() if not text.startswith("(internal) ")} == PUBLIC[kind]


@pytest.mark.parametrize("name", sorted(path.stem for path in (TOP / "plugins/modules").glob("*.py")))
def test_the_example_of_an_internal_module_is_a_file_that_uses_it(name):
    """An internal module has no example of its own, which nobody would run: EXAMPLES names a file that uses it.

    Nor has it a table of its results: the class or function that makes them describes them.
    """
    source = (TOP / f"plugins/modules/{name}.py").read_text(encoding="utf-8")
    used_in = USE.search(source)
    assert bool(used_in) == (name not in PUBLIC["modules"]) == ("\nRETURN = " not in source)
    assert used_in is None or re.search(rf"\b{name}\b", (TOP / used_in[1]).read_text(encoding="utf-8"))


def test_every_kind_of_plugin_is_known():
    kinds = {path.name for path in (TOP / "plugins").iterdir() if path.is_dir() and not path.name.startswith("__")}
    # An action has the documentation of the module of its name.
    assert kinds - {"action", "doc_fragments", "module_utils", "plugin_utils"} == set(PUBLIC)


def test_the_index_lists_the_public_modules():
    text = (TOP / "docs/README.md").read_text(encoding="utf-8")
    listed = text.partition("Ten modules are public")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == PUBLIC["modules"]
