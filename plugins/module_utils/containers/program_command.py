# SPDX-License-Identifier: GPL-3.0-or-later
"""The command that runs a Python program where an instance runs: in its virtual environment or in its image."""

from __future__ import annotations

import os
from typing import Any, Mapping

from ..vllm.plan_document import PlanDocument
from .image_names import reference
from .run_command import DROPPED, command_of, device_words, groups_of, limits, user_of

# Images for Ascend set up their libraries in the shell.
ASCEND_START = 'for f in /usr/local/Ascend/*/set_env.sh; do . "$f"; done; exec python3 - "$0"'


def program_run(plan: PlanDocument, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``argv`` (a program is read from standard input), ``stop``, ``environment`` and ``user``.

    ``settings`` is the role's ``__vllm_container``. The program gets the instance's variables and none of its secrets.
    """
    environment = dict(plan["env"])
    container = plan["container"]
    if not container:
        python = os.path.join(os.path.dirname(plan["launch"][0]), "python")
        return {"argv": [python, "-"], "stop": [], "environment": environment, "user": settings["user"]}
    command, name = command_of(settings), f"vllm-{plan['instance']}-check"
    start = ["--entrypoint", "python3", reference(container["image"]), "-"]
    if plan["stack"] == "cann":
        start = ["--entrypoint", "bash", reference(container["image"]), "-c", ASCEND_START]
    # Mounts of the plan with an option are the vendor's files, read-only; the others are the instance's own.
    mounts = [mount for mount in container["mounts"] if mount.endswith(":ro")]
    argv = [
        command, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--network", "host",
        "--ipc", "private", "--shm-size", container["shm_size"], "--user", user_of(container, settings),
        *(word for group in groups_of(container, settings) for word in ("--group-add", group)),
        "--security-opt", "label=disable", *(word for name in DROPPED for word in ("--cap-drop", name)),
        *(word for words in limits(container, settings) for word in words),
        *(word for words in device_words(container["devices"], settings) for word in words),
        *(word for mount in mounts for word in ("--volume", mount)),
        *(word for pair in sorted(environment.items()) for word in ("--env", "=".join(pair))),
        *start,
    ]  # fmt: skip
    # The engine itself needs nothing of the instance, and runs as root.
    return {"argv": argv, "stop": [command, "rm", "--force", name], "environment": {}, "user": ""}
