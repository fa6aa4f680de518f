# SPDX-License-Identifier: GPL-3.0-or-later
"""Read on this host what an installed instance serves."""

from __future__ import annotations

import os
from typing import Any, Mapping

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from ..instance.config_host import NotInstalledError, config_in
from .model_kind import ModelFiles

# A tokenizer_config.json with thousands of special tokens has some megabytes.
_MOST_BYTES = 32 * 1024 * 1024
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")


def options_in(config_dir: str, instance: str) -> dict[str, Any]:
    """Return the arguments of an instance as texts, from its file; empty without one. Raises InstanceError."""
    try:
        return dict(config_in(config_dir, instance))
    except NotInstalledError:
        return {}


def model_files(directory: str) -> ModelFiles:
    """Return what a model's directory says; a missing or damaged file counts as empty, and so does a model by name."""
    if not os.path.isabs(directory):
        return ModelFiles()
    modules = _read(directory, "modules.json")
    return ModelFiles(
        config=_mapping(_read(directory, "config.json")),
        mistral=_mapping(_read(directory, "params.json")),
        tokenizer=_mapping(_read(directory, "tokenizer_config.json")),
        modules=modules if isinstance(modules, list) else (),
        template=any(os.path.exists(os.path.join(directory, name)) for name in _TEMPLATES),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read(directory: str, name: str) -> Any:
    try:
        return load_json(ForeignDirectory(os.path.realpath(directory)).read(name, _MOST_BYTES))
    except (OSError, ValueError):
        return None
