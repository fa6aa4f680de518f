# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests of the models that a task of the module weights names."""

from typing import Any, Mapping, Sequence

from ...module_utils.weights.manifest import WeightsError, parse_manifest
from ..planning.inputs import PlanError
from ..weights.request import list_of
from .files import find, read


def requested_models(models: Any, manifest_path: Any) -> list[Mapping[str, Any]]:
    """Return the manifest of each model of the option. Raises WeightsError that names the role's variable."""
    directories = [str(one) for one in list_of("manifest_path", manifest_path)]
    wanted = list_of("models", models)
    try:
        return resolve(wanted, directories)
    except (PlanError, WeightsError) as exc:
        raise WeightsError(f"weights_models: {exc}") from exc


def resolve(models: Sequence[Any], directories: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return each model's manifest: the given one, or that of its name. Raises PlanError or WeightsError."""
    return [model if isinstance(model, Mapping) else load(str(model), directories) for model in models]


def load(name: str, directories: Sequence[str]) -> Mapping[str, Any]:
    """Return the manifest called ``name``; it is checked here, where an error can name its file."""
    path = find("weights", name, (".yml", ".yaml"), directories)
    manifest = read(path)
    try:
        parse_manifest(manifest)
    except WeightsError as exc:
        raise WeightsError(f"{path}: {exc}") from exc
    return manifest
