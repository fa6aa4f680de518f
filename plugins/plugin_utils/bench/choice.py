# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the instance to measure, and check that the host serves it as planned."""

from typing import Any, Mapping

from ...module_utils.common.spelling import nearest
from ...module_utils.slots.state import GOOD, summarize_plan
from ...module_utils.vllm.plan_document import PlanDocument
from ..planning.strategies import MULTI_NODE

Plans = Mapping[str, PlanDocument]


class ChoiceError(ValueError):
    """The instance cannot be measured; the message is the whole sentence without the host."""


def choose_instance(plans: Plans, name: str) -> str:
    """Return the instance with this name, or the only one of the host without a name. Raises ChoiceError."""
    if name:
        if name not in plans:
            raise ChoiceError(f"bench_instance: this host has no instance {name!r}; {nearest(name, plans)}")
        return name
    if len(plans) != 1:
        found = f"{len(plans)} instances ({', '.join(plans)})" if plans else "no instance"
        raise ChoiceError(
            f"bench_instance: this host has {found}; name one with -e bench_instance=NAME (--instance NAME)"
        )
    return next(iter(plans))


def check_installed(name: str, plan: PlanDocument, slot: Mapping[str, Any] | None) -> None:
    """Check that the host runs the instance with this plan. Raises ChoiceError.

    ``slot`` is what the module instance_slot returns of the instance, None where the host does not have it.
    """
    advice = "run playbooks/site.yml first, so that the figures belong to the plan of the inventory"
    if not slot or not slot.get("installed"):
        raise ChoiceError(f"instance {name} is not installed on this host; {advice}")
    good = slot.get(GOOD)
    if not good or good["digest"] != slot.get("digest"):
        raise ChoiceError(f"instance {name} is installed with files that were never verified; {advice}")
    wanted = summarize_plan(plan)
    different = [key for key, value in wanted.items() if good["plan"].get(key) != value]
    if different:
        raise ChoiceError(
            f"instance {name} serves with other settings than the inventory has ({', '.join(different)}); {advice}"
        )
    if slot.get("stale"):
        raise ChoiceError(f"instance {name} runs with older files than those installed; {advice}")


def chips_of(plan: PlanDocument) -> list[int]:
    """Return the chips whose power counts for the instance; none if it also uses chips of other hosts.

    They have the numbers of the vendor's tool.
    """
    return [] if plan["strategy"] in MULTI_NODE else list(plan.get("numbers") or plan["chips"])
