# SPDX-License-Identifier: GPL-3.0-or-later
"""Where files are on the controller: the collection's own, and directories that a site names."""

import json
from pathlib import Path
from typing import Any, Iterable, Mapping

from .yaml import read_yaml

COLLECTION = Path(__file__).resolve().parents[3]
CATALOG = COLLECTION / "catalog"
ROLES = COLLECTION / "roles"
# Every copy of this collection has this file.
_MARK = "plugins/plugin_utils/common/places.py"

# Variables that name directories of YAML files that are not inventories.
DIRECTORIES = (
    "vllm_recipe_path",
    "vllm_release_path",
    "vllm_weights_manifest_path",
    "accelerator_catalog_path",
    "evidence_path",
)


def collection_version(root: Path = COLLECTION) -> str:
    """Return the version of this collection: of MANIFEST.json where it is installed, else of galaxy.yml."""
    manifest = root / "MANIFEST.json"
    if manifest.is_file():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return str(read_yaml(root / "galaxy.yml")["version"])


def collection_of(path: Path) -> Path:
    """Return the copy of this collection in which a file lies, else the copy of this module.

    The playbooks of a checkout can run with the roles and plugins of an installed collection.
    """
    return next((root for root in path.resolve().parents if (root / _MARK).is_file()), COLLECTION)


def misplaced(variables: Mapping[str, Any], sources: Iterable[Any]) -> list[str]:
    """Return a warning for each of a site's directories that lies in a directory which Ansible reads as an inventory.

    ``sources`` are Ansible's inventory sources.
    """
    inventories = [Path(str(source)).resolve() for source in sources if Path(str(source)).is_dir()]
    found = []
    # The variable that a site sets; the other one is that of the role vllm.
    names = {"vllm_weights_manifest_path": "weights_manifest_path"}
    for name, directory in ((names.get(key, key), each) for key in DIRECTORIES for each in listed(variables.get(key))):
        place = Path(str(directory)).resolve()
        around = next((inventory for inventory in inventories if inventory in place.parents), None)
        if around:
            found.append(
                f"{name}: {directory} lies in the inventory {around}, so Ansible reads its files as inventories; "
                "move it beside that directory: {{ inventory_dir | dirname }}/" + place.name
            )
    return found


def listed(value: Any) -> list[Any]:
    """Return a list of an option; a text counts as a list of one."""
    return [value] if isinstance(value, str) else list(value or [])
