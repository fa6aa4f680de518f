# SPDX-License-Identifier: GPL-3.0-or-later
"""Check names and values of ``vllm_secrets``: with a misspelt name or an empty value an instance would have no key."""

from typing import Iterable, Mapping

from ...module_utils.common.spelling import nearest
from .host_reader import SECRETS, FleetError, HostReader


def check_secret_names(
    secrets: Mapping[str, Mapping[str, str]], instances: Iterable[str], reader: HostReader, hosts: list[str]
) -> None:
    """Raise FleetError for an invalid value, and for a name that is not an instance of this host or one of ``hosts``.

    Group variables may hold the secrets of instances that only other hosts have.
    """
    for instance, entries in secrets.items():
        for name, problem in entries.items():
            if problem:
                raise FleetError(f"{SECRETS}.{instance}.{name}: {problem}, expected a text of one line")
    own = {str(name) for name in instances}
    stray = {str(name) for name in secrets} - own
    missing, seen = reader.names_elsewhere(stray, hosts) if stray else (set(), set())
    if missing:
        name = min(missing)
        # The instances of another host are the farther ones.
        near = nearest(name, own)
        near = near if near.startswith("nearest") else nearest(name, own | seen)
        raise FleetError(
            f"{SECRETS}.{name}: no host has an instance {name!r}, so that nothing would use these secrets; {near}"
        )
