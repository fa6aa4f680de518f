# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that an instance may be tuned now, and find the kept states to restore afterwards."""

from typing import Any, Mapping, Sequence

from ...module_utils.gateway.servers import server_name
from ...module_utils.slots.state import GOOD
from ...module_utils.vllm.plan_document import PlanDocument
from ..bench.choice import ChoiceError, check_installed
from ..bench.workloads import Workload
from .variants import TuneError


def return_states(
    plans: Mapping[str, PlanDocument], slots: Mapping[str, Any], lock: Mapping[str, Any], tune_id: str
) -> dict[str, str]:
    """Return the digest of the state to restore for each of an instance's units. Raises TuneError.

    ``plans`` are those of the unchanged instance, by unit; ``slots`` is the result of instance_slot, ``lock`` that of
    work_lock. After an interrupted tune the states are those that its lock names.
    """
    if slots.get("turn"):
        raise TuneError(
            f"a rollout ({slots['turn'].get('id')}) is updating this host, or was interrupted; end it first"
        )
    kept = slots["instances"]
    if lock.get("id") == tune_id:
        states = {str(name): str(digest) for name, digest in (lock.get("states") or {}).items()}
        for name, digest in states.items():
            if digest not in {slot["digest"] for slot in (kept.get(name) or {}).get("slots", ())}:
                raise TuneError(
                    f"instance {name}: the state {digest}, which it had before the interrupted tune, is not kept any "
                    "more; run site.yml, and remove /var/lib/vllm/tune.json"
                )
        return states
    for name, plan in plans.items():
        try:
            check_installed(name, plan, kept.get(name))
        except ChoiceError as exc:
            raise TuneError(str(exc)) from exc
        if not kept[name].get("up"):
            raise TuneError(f"instance {name} does not run; start it, or run site.yml first")
    return {name: str(kept[name][GOOD]["digest"]) for name in plans}


def check_lengths(plans: Mapping[str, PlanDocument], workload: Workload) -> None:
    """Raise TuneError where a request of the workload is longer than the max-model-len of a variant.

    ``plans`` are those of the variants by name. A variant without max-model-len uses the model's own, longer one.
    """
    for name, plan in plans.items():
        longest = plan["args"].get("max-model-len")
        if isinstance(longest, int) and 0 < longest < workload.tokens:
            raise TuneError(
                f"tune_goal.workload: {workload.name} has requests of {workload.tokens} tokens, but the variant {name} "
                f"has max-model-len {longest}; name another workload"
            )


def check_drained(host: str, names: Sequence[str], gateways: Sequence[Mapping[str, Any]]) -> None:
    """Raise TuneError where a gateway sends requests to one of the units ``names`` of a host.

    ``gateways`` are results of gateway_server in a loop over the gateways.
    """
    servers = {server_name(host, name) for name in names}
    for result in gateways:
        sending = [name for name, server in result["servers"].items() if name in servers and server["state"] == "ready"]
        if sending:
            raise TuneError(
                f"the gateway {result['item']} sends requests to {', '.join(sorted(sending))}; drain the host first: "
                f"ansible-playbook playbooks/drain.yml -l {host} -e drain_reason=tune"
            )


def check_interrupted(lock: Mapping[str, Any], tune_id: str) -> None:
    """Raise TuneError if the lock of a host is not that of a tune, so that there is nothing to restore."""
    if lock.get("id") != tune_id:
        raise TuneError(
            f"tune_stop: found no interrupted tune of this instance with the results of {tune_id}; the instance stays "
            "as it is"
        )
