# SPDX-License-Identifier: GPL-3.0-or-later
"""Sort the variables of a command: what vLLM reads, what the plan sets itself, what is a secret, what nothing reads."""

import re
from typing import Mapping, NamedTuple, Sequence

from ..options.table import Foreign, OptionTable, Unknown
from ..planning.own_place import ADDRESSES, VISIBLE
from .redaction import may_be_secret
from .shell import unreadable

_HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HF_HUB_TOKEN", "MODELSCOPE_API_TOKEN")
CHIPS = {name for names in VISIBLE.values() for name in names}
_PLACES = (
    "HF_DATASETS_CACHE", "HF_HOME", "HF_HUB_CACHE", "HOME", "HUGGINGFACE_HUB_CACHE", "MODELSCOPE_CACHE", "PATH",
    "PYTHONPYCACHEPREFIX", "TORCHINDUCTOR_CACHE_DIR", "TRANSFORMERS_CACHE", "TRITON_CACHE_DIR", "USER", "VIRTUAL_ENV",
    "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "XDG_CACHE_HOME",
)  # fmt: skip
_HUB = re.compile(
    r"HF_HUB_\w+|HF_XET_\w+|HF_ENDPOINT|TRANSFORMERS_OFFLINE|VLLM_USE_MODELSCOPE|(?:(?:https?|ftp|no|all)_proxy)\Z",
    re.I,
)
_ALWAYS = (
    "DO_NOT_TRACK",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_DISABLE_REQUIRE",
    "VLLM_NO_USAGE_STATS",
    "VLLM_DO_NOT_TRACK",
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGIN = re.compile(r"://[^/\s]*@")


class Sorted(NamedTuple):
    """The variables of an instance, the names of its secrets, name and reason of each that is left out, and remarks."""

    env: dict[str, str]
    secrets: list[str]
    left_out: list[tuple[str, str]]
    notes: list[tuple[str, str]]


def sort_variables(
    env: Mapping[str, str | None],
    table: OptionTable,
    foreign: Foreign,
    others: Sequence[OptionTable],
    replaced: Mapping[str, Mapping[str, str]],
) -> Sorted:
    """Return what becomes of each variable."""
    found = Sorted({}, [], [], [])
    for name, value in env.items():
        # The text that is printed has it within a template of ours.
        if not _NAME.fullmatch(name):
            begin = re.split(r"\W", name, maxsplit=1)[0]
            found.left_out.append((f"{begin}..." if may_be_secret(begin) else name, "no name of a variable"))
            continue
        problems = [text.removeprefix(f"{name}: ") for text in table.check_env([name], foreign, others, replaced)]
        dead = any(isinstance(text, Unknown) for text in table.check_env([name], foreign))
        loaded = foreign.plugin and name == "LD_PRELOAD" and "jemalloc" in str(value)
        reason = "the images of vllm-ascend load jemalloc themselves" if loaded else _reason(name)
        secret = may_be_secret(name, value)
        reason = reason or (problems[0] if dead else "")
        reason = reason or ("" if secret else _unset(name, value))
        if reason:
            found.left_out.append((name, reason))
            continue
        found.notes.extend((name, text) for text in problems)
        if secret:
            found.secrets.append(name)
        else:
            found.env[name] = str(value)
            if re.match("~?/", str(value)):
                found.notes.append((name, f"names {value}, a path of that machine; hosts need it there too"))
    return found


def _unset(name: str, value: str | None) -> str:
    """Return why the value of a variable cannot be taken, empty where it can."""
    if value is None or unreadable(value):
        part = f"found {unreadable(value)}, which" if value else "its value"
        return f"{part} only that machine has; set it in env"
    return f"its address holds a password; set it in vllm_secrets.NAME.{name}" if _LOGIN.search(value) else ""


def _reason(name: str) -> str:
    """Return why an instance does not set a variable itself, empty where it does."""
    if name in _HUB_TOKENS:
        return "a secret; hosts ask no hub, so give the token to pin_weights.yml"
    if name in CHIPS:
        return "the plan gives the instance its chips; `chips` names them"
    if name in _PLACES:
        return "the plan sets it: caches are kept in a directory of each instance"
    if name in ADDRESSES:
        return "the plan sets it for instances that span hosts"
    if _HUB.match(name):
        return (
            "hosts ask no hub at a start: pin_weights.yml pins the weights, also of ModelScope (pin_source=modelscope)"
        )
    return "the collection sets it" if name in _ALWAYS else ""
