# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare versions on the controller, by ``packaging``, which ansible-core depends on."""

import contextlib

from ...module_utils.common.kinds import show_value
from ...module_utils.common.versions import in_spec, version_key

# ansible-core depends on it; only the environment in which ansible-test imports plugins lacks it.
with contextlib.suppress(ImportError):
    from packaging.version import InvalidVersion, Version


def satisfies(version: str, spec: str) -> bool:
    """Return whether a version lies in ``>=0.24,<0.33`` or is ``0.33.0``. Raises ValueError for another form.

    Pre-releases come before their release: 0.20.2rc1 lies in ``<0.20.2``. A version that packaging does not know, such
    as that of a kernel, is compared by its numbers.
    """
    try:
        Version(version)
    except InvalidVersion:
        return in_spec(version, spec, version_key)
    return in_spec(version, spec, sort_key)


def sort_key(version: str) -> "Version":
    """Return what releases are sorted by, without a build such as ``+cpu``. Raises ValueError for a non-version."""
    try:
        return Version(Version(version).public)
    except InvalidVersion as exc:
        raise ValueError(f"found {show_value(version)}, expected a version such as 0.33.0") from exc
