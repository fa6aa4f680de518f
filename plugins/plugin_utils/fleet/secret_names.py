# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the names in ``vllm_secrets`` with the instances: an instance with a misspelt name would have no key."""

from __future__ import annotations

from typing import Iterable

from ...module_utils.common.spelling import nearest
from .host_reader import SECRETS, FleetError, HostReader


def check_secret_names(secrets: Iterable[str], instances: Iterable[str], reader: HostReader, hosts: list[str]) -> None:
    """Raise FleetError for a name in vllm_secrets that is not an instance of this host or of another one of ``hosts``.

    Group variables may hold the secrets of instances that only other hosts have.
    """
    own = {str(name) for name in instances}
    stray = {str(name) for name in secrets} - own
    missing, seen = reader.names_elsewhere(stray, hosts) if stray else (set(), set())
    if missing:
        name = min(missing)
        raise FleetError(
            f"{SECRETS}.{name}: no host has an instance {name!r}, so that nothing would use these secrets; "
            f"{nearest(name, own | seen)}"
        )
