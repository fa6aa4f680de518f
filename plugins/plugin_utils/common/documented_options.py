# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the options of an action from the documentation of the module of its name: they are written down once."""

from pathlib import Path
from typing import Any

from ...module_utils.common.documented import documented_arguments
from .yaml import load_yaml

PLUGINS = Path(__file__).resolve().parents[2]


def documented_options(name: str) -> dict[str, dict[str, Any]]:
    """Return the argument spec of a module of this collection, as Ansible validates it.

    Its own options take precedence over those of its fragments, as in ansible-doc.
    """
    documentation = _read_documentation("modules", name)
    options: dict[str, dict[str, Any]] = {}
    fragments = load_yaml(documentation).get("extends_documentation_fragment") or ()
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        # COLLECTION.FILE, or COLLECTION.FILE.VARIANT, whose options are those of the file.
        options |= documented_arguments(_read_documentation("doc_fragments", fragment.split(".")[2]))
    return {**options, **documented_arguments(documentation)}


def _read_documentation(kind: str, name: str) -> str:
    # An import would execute the module, which hosts run.
    text = (PLUGINS / kind / f"{name}.py").read_text(encoding="utf-8")
    return text.partition('DOCUMENTATION = r"""')[2].partition('"""')[0]
