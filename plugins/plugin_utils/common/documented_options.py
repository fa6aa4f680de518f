# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the options of an action from the documentation of the module of its name: they are written down once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from .yaml import load_yaml

PLUGINS = Path(__file__).resolve().parents[2]
# What the documentation says for people only.
_PROSE = ("description", "version_added")


def documented_options(name: str) -> dict[str, dict[str, Any]]:
    """Return the argument spec of a module of this collection, as Ansible validates it.

    Its own options take precedence over those of its fragments, as in ansible-doc.
    """
    documentation = _read_documentation("modules", name)
    options: dict[str, Any] = {}
    fragments = documentation.get("extends_documentation_fragment") or ()
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        # COLLECTION.FILE, or COLLECTION.FILE.VARIANT, whose options are those of the file.
        options |= _read_documentation("doc_fragments", fragment.split(".")[2]).get("options") or {}
    return _specs({**options, **(documentation.get("options") or {})})


def _read_documentation(kind: str, name: str) -> Mapping[str, Any]:
    # An import would execute the module, which hosts run.
    text = (PLUGINS / kind / f"{name}.py").read_text(encoding="utf-8")
    found: Mapping[str, Any] = load_yaml(text.partition('DOCUMENTATION = r"""')[2].partition('"""')[0])
    return found


def _specs(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    specs = {}
    for name, option in options.items():
        specs[name] = {key: value for key, value in option.items() if key not in (*_PROSE, "suboptions")}
        if "suboptions" in option:
            specs[name]["options"] = _specs(option["suboptions"])
    return specs
