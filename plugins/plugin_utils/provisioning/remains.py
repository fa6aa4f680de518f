# SPDX-License-Identifier: GPL-3.0-or-later
"""What deprovision.yml leaves to people: the lines of the inventory, and secrets that a removed host had."""

import re
from pathlib import Path
from typing import Any, Mapping, Sequence

from ..common.inventory_files import inventory_texts
from .job import Job, World
from .loop import show
from .options import unrendered

MOST_PLACES = 20
# Secrets of the site that its hosts have, or keys that follow from them, where the inventory sets them.
OF_EVERY_HOST = ("gateway_secret", "health_webhook_token")
_COMMENT = re.compile(r"(?:^|\s)#")


def show_remains(jobs: Sequence[Job], variables: Mapping[str, Any], world: World) -> None:
    """Show what is left to do for each removed host."""
    removed = [job for job in jobs if job.outcome == "removed"]
    texts = inventory_texts(variables.get("ansible_inventory_sources") or []) if removed else []
    for job in removed:
        places = ", ".join(_places(job.entry.host, texts)[:MOST_PLACES])
        line = f"remove the host from the inventory ({places or 'no file names it; a range of names may'}), then run "
        show(job, world, line + "gateway.yml: its servers stay drained at the gateways until then")
        root = job.entry.root_serial or job.entry.root_wwn
        if not job.secure or root not in job.disks:
            own = _secrets(unrendered(variables["hostvars"], job.entry.host).get("vllm_secrets"))
            held = ", ".join((*own, *OF_EVERY_HOST))
            show(job, world, f"rotate what its disk {root} may still hold, if it leaves the site: {held}")


def _places(host: str, texts: Sequence[tuple[Path, str]]) -> list[str]:
    """Return the files of the variables of a host, and the lines that name it elsewhere."""
    word = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w)")
    own = [path for path, _text in texts if _is_of(path, host)]
    lines = [
        f"{path}:{number}"
        for path, text in texts
        if host in text and path not in own
        for number, line in enumerate(text.splitlines(), 1)
        if word.search(_COMMENT.split(line)[0])
    ]
    return [*map(str, own), *lines]


def _is_of(path: Path, host: str) -> bool:
    alone = path.parent.name == "host_vars" and host in (path.name, path.stem)
    return alone or path.parts[-3:-1] == ("host_vars", host)


def _secrets(secrets: Any) -> list[str]:
    """Return the names of a host's secrets, each with its instance."""
    if not isinstance(secrets, Mapping):
        return []
    return [f"{name} of {instance}" for instance, held in secrets.items() if isinstance(held, Mapping) for name in held]
