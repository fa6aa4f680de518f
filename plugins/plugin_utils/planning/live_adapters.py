# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances load and unload adapters while they run, and the variables that they need for it."""

from typing import Any, Mapping

from ...module_utils.vllm.adapters import GUARDED, UPDATING
from .choices import Chosen
from .compose import Composed

# Releases whose prefix cache tells apart two adapters that have had the same name (vllm-project/vllm#42125). In an
# earlier one, an adapter at another path would answer from what its predecessor has computed.
SUPPORT = "runtime-lora"
BECAUSE = "adapters are loaded and unloaded without a restart, by root on the host only"
# With one of these, requests load adapters by names that no plan has.
_RESOLVERS = "VLLM_LORA_RESOLVER_"


def live_env(entry: Chosen, composed: Composed) -> dict[str, str]:
    """Return the variables with which an instance takes over a change of its adapters, none where it cannot.

    A choice of the recipe or the site stays unchanged, also where it removes the variable.
    """
    if not _is_able(entry, composed.args) or f"env.{UPDATING}" in composed.history:
        return {}
    if any(name.startswith(_RESOLVERS) for name in composed.env):
        return {}
    return {UPDATING: "1", GUARDED: "1"}


def _is_able(entry: Chosen, args: Mapping[str, Any]) -> bool:
    """Return whether the release has it, and one API server of this host has all adapters."""
    if SUPPORT not in (entry.release.get("supports") or ()) or args.get("enable-lora") is not True:
        return False
    # vLLM starts an API server for each rank, and refuses to start several with this variable.
    spread = [value for name, value in args.items() if name.startswith("data-parallel")]
    return entry.group is None and all(str(value) == "1" for value in [args.get("api-server-count", 1), *spread])
