# SPDX-License-Identifier: GPL-3.0-or-later

import os
import tempfile
from dataclasses import asdict
from typing import Any, Mapping, Sequence

from ..plugin_utils.acceptance.options import (
    AcceptanceError,
    check_names,
    check_peer,
    check_port,
    expected_figures,
    not_negative,
    positive,
    seconds_of,
)
from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.fleet.hardware import accelerator_of
from ..plugin_utils.planning.runtime import devices_of, visible_env

# The largest size of a result and its page.
ROOM = 1 << 20


class ActionModule(ControllerAction):
    """Check the options of an acceptance, and return the figures that a host is compared with."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        check_names(variables)
        host, everyone = str(variables.get("inventory_hostname", "")), list(variables.get("groups", {}).get("all", ()))
        names = ("storage_gb_per_s", "network_gbit_per_s", "bench_tokens_per_s")
        limits = {name: not_negative(f"accept_{name}", options[name]) for name in names}
        facing = list(variables.get("ansible_play_hosts_all", ()))
        check_peer(options["peer"], host, everyone, facing, limits["network_gbit_per_s"])
        seconds = asdict(seconds_of(options["minutes"]))
        plan = {
            "seconds": seconds,
            "port": check_port(options["port"]),
            "storage_bytes": int(positive("accept_storage_bytes", options["storage_bytes"])),
            "limits": limits,
            "dir": os.path.abspath(options["dir"]) if self._task.check_mode else check_directory(options["dir"]),
        }
        return {**plan, **hardware_of(options["detected"], options["catalog_path"])}


def hardware_of(detected: Mapping[str, Any], catalog_path: Sequence[str]) -> dict[str, Any]:
    """Return the figures of a host's chips, and what a container needs to reach them. Raises AcceleratorError."""
    catalogue = load_catalogue(catalog_path)
    model = catalogue.models.get(detected.get("model", ""))
    numbers = range(detected.get("count", 0))
    nodes = [node.format(index=number) for node in (model.devices if model else ()) for number in numbers]
    visible = {}
    if model and model.key in (detected.get("numbers") or {}):
        # Beside chips of other models: one process of CUDA cannot have a GB300 and a display at once.
        accelerator = accelerator_of(detected, catalogue)
        nodes = devices_of(accelerator, range(accelerator.count))
        visible = visible_env(accelerator, range(accelerator.count), "venv", {})
        own = [device for device in detected["devices"] if device["model"] == model.key]
        detected = {**detected, "devices": own}
    return {
        "expected": expected_figures(detected, catalogue),
        "devices": list(dict.fromkeys(nodes)),
        "mounts": list(model.mounts) if model else [],
        "visible": visible,
    }


def check_directory(path: str) -> str:
    """Make the directory of the results and write to it once; return its full path. Raises AcceptanceError."""
    full = os.path.abspath(path)
    try:
        os.makedirs(full, exist_ok=True)
        with tempfile.TemporaryFile(dir=full) as file:
            file.write(bytes(ROOM))
            file.flush()
    except OSError as exc:
        raise AcceptanceError(
            f"accept_dir: no result can be written to {full} on the controller: {exc.strerror}; name another directory"
        ) from exc
    return full
