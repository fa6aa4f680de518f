# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose and check the lock of wheels that a virtual environment is made from: the one for the host's Python."""

import os
import re
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ..common.versions import satisfies, sort_key
from .inputs import PlanError

DEFAULT_PYTHON = "/usr/bin/python3"
_REQUESTED = re.compile(r"(?P<path>/.*/python)?(?P<version>3\.\d+)\Z")
_TARGET = re.compile(r"^# target: cp(\d)(\d+)-", re.MULTILINE)
_TRITON = re.compile(r"^((?:pytorch-)?triton(?:-rocm|-ascend|-xpu)?|pytorch-triton\S*)==", re.MULTILINE)


def choose_lock(
    stack: Mapping[str, Any], requested: str, pythons: Sequence[str] | None, release: str
) -> dict[str, Any]:
    """Return the stack with one lock, under the keys of a stack with one, and ``interpreter``, a path on the host.

    ``requested`` is the value of vllm_python: a version (3.12), a path whose name ends in one, or empty. ``pythons``
    are the paths of the host's Pythons, its python3 first; None where the host was not asked, and then ``locks`` names
    the locks of every Python that it may have. Raises PlanError if no lock matches a Python.
    """
    locks = _by_python(stack)
    version, path = _read_request(requested)
    if not locks:
        # A site's own lock may have no target; then it is for any Python.
        interpreter = path or _path_of(version, pythons) or DEFAULT_PYTHON
        return {**stack, "interpreter": interpreter, "interpreter_version": version}
    if version and version not in locks:
        raise PlanError(
            f"vllm_python: found {show_value(requested)}, but release {release!r} has locks of wheels for Python "
            f"{', '.join(locks)}; choose one of these, or make a lock with playbooks/lock_release.yml"
        )
    if pythons is None:
        chosen = version or next(reversed(locks))
        interpreter = path or (DEFAULT_PYTHON if len(locks) == 1 else f"/usr/bin/python{chosen}")
    else:
        chosen, interpreter = (version, path) if path else _installed(locks, version, pythons, release)
    candidates = [chosen] if version or pythons is not None else list(locks)
    return {
        **stack,
        **locks[chosen],
        "interpreter": interpreter,
        "interpreter_version": chosen,
        "locks": [locks[each]["requirements"] for each in candidates],
    }


def _by_python(stack: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the stack's locks by Python, oldest first; empty for a single lock without a target."""
    found = stack["requirements"]
    if isinstance(found, Mapping):
        return {version: found[version] for version in sorted(found, key=sort_key)}
    target = _TARGET.search(stack.get("requirements_text") or "")
    keys = ("requirements", "requirements_sha256", "requirements_text")
    return {f"{target[1]}.{target[2]}": {key: stack[key] for key in keys}} if target else {}


def _read_request(requested: str) -> tuple[str, str]:
    """Return version and path of a request, each empty where it has none. Raises PlanError for anything else."""
    match = _REQUESTED.match(requested)
    if requested and match is None:
        raise PlanError(
            f"vllm_python: found {show_value(requested)}, expected a version such as '3.12' in quotes, or a path on "
            "the host such as /opt/python/bin/python3.12"
        )
    return (match["version"], requested if match["path"] else "") if match else ("", "")


def _installed(locks: Mapping[str, Any], wanted: str, pythons: Sequence[str], release: str) -> tuple[str, str]:
    """Return version and path of a Python: the requested one, else the host's python3, else the newest with a lock."""
    own = {_version_of(path): path for path in reversed(pythons)}
    fit = [version for version in ([wanted] if wanted else locks) if version in own]
    if not fit:
        have = f"Python {', '.join(sorted(own, key=sort_key))}" if own else "no Python 3 in /usr/bin or /usr/local/bin"
        package = wanted or next(reversed(dict(locks)))
        raise PlanError(
            f"vllm_python: the host has {have}, but the locks of wheels of release {release!r} are for Python "
            f"{wanted or ', '.join(locks)}; install the package python{package} on it, or set vllm_python to the path "
            "of such a Python, or use the runtime 'container'"
        )
    default = _version_of(pythons[0])
    chosen = default if default in fit else fit[-1]
    return chosen, own[chosen]


def _path_of(version: str, pythons: Sequence[str] | None) -> str:
    return next((path for path in pythons or () if version and _version_of(path) == version), "")


def _version_of(path: str) -> str:
    return os.path.basename(path)[len("python") :]


def check_lock(stack: Mapping[str, Any], release: str) -> None:
    """Raise PlanError for an inconsistent lock of wheels: another Python than the stack's wheels, or two tritons."""
    text = stack.get("requirements_text") or ""
    target = _TARGET.search(text)
    wanted = str(stack.get("python") or "")
    if target and wanted:
        python = f"{target.group(1)}.{target.group(2)}"
        spec = wanted if wanted[:1] in "<>=!" else f"=={wanted}"
        if not _python_fits(python, spec):
            raise PlanError(
                f"{stack['requirements']}: the lock is for Python {python}, the wheels of release {release!r} for this "
                f"stack are for Python {wanted} only; another Python would silently get another vendor's wheel"
            )
    tritons = sorted(set(_TRITON.findall(text)))
    if len(tritons) > 1:
        raise PlanError(
            f"{stack['requirements']}: {' and '.join(tritons)} conflict in one environment (tl.language is not "
            "defined); keep the one that belongs to this torch"
        )


def _python_fits(python: str, spec: str) -> bool:
    """Return whether a Python such as 3.11 satisfies a specification; 3.11 satisfies ``==3.11.9``."""
    exact = re.match(r"==\s*(\d+\.\d+)", spec)
    return satisfies(python, f"=={exact.group(1)}" if exact else spec)
