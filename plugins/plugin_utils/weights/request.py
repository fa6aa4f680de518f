# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task of the module weights asks for: models, sources and the order in which they are tried."""

from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.weights.manifest import WeightsError
from ...module_utils.weights.progress import format_summary
from ...module_utils.weights.sources import NO_SOURCES, Source


def list_of(option: str, value: Any) -> list[Any]:
    """Return an option as a list: a text counts as the words between its commas, a mapping as a list of itself.

    Raises WeightsError that names the role's variable.
    """
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, Mapping):
        return [value]
    if value is None and option != "models":
        return []
    if not isinstance(value, list):
        raise WeightsError(f"weights_{option}: found {show_value(value)}, expected a list")
    return value


def number(value: Any, default: int) -> int:
    """Return an option's number, or the default if the value is one that the module refuses."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


def attempts(sources: Sequence[Source]) -> Iterator[tuple[list[int], Source | None]]:
    """Yield the places of the sources that a host can read itself, and the one of the controller to push after them."""
    numbers: list[int] = []
    for number, source in enumerate(sources):
        if source.kind == "controller":
            yield list(numbers), source
        else:
            numbers.append(number)
    yield numbers, None


def add_reasons(result: dict[str, Any], reasons: Sequence[str]) -> None:
    """Add why sources on the controller failed to the message of the module, which knows nothing of them."""
    result["msg"] = "; ".join([result["msg"], *reasons]).replace(f"{NO_SOURCES}; ", "")
    # ansible-core shows it above the result, with the former message.
    result.pop("exception", None)


def format_fetched(models: Sequence[Mapping[str, Any]]) -> str:
    """Return the summary of what was fetched, an empty text for nothing."""
    models = [model for model in models if model["bytes"]]
    if not models:
        return ""
    files = sum(len(model["files_fetched"]) for model in models)
    sources = sorted({model["source"] for model in models})
    return format_summary(
        sum(model["bytes"] for model in models), sum(model["seconds"] for model in models), files, sources
    )


def host_of(task_vars: Mapping[str, Any]) -> str:
    """Return what the inventory calls the host."""
    return str(task_vars.get("inventory_hostname", "localhost"))
