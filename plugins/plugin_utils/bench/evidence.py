# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of a benchmark: what was measured, on what, and with which plan."""

import json
from typing import Any, Mapping, Sequence

from ...module_utils.vllm.plan_document import PlanDocument
from ..common.places import collection_version
from ..common.yaml import dump_yaml
from ..evidence.citation import chip_count, chip_name
from ..evidence.document import MEASURED, PLACE, RANDOM, UNKNOWN, plan_digest
from .summary import Record, raw_digest, results_of, slowed_notes

NAME = "baremetal.inference"


def evidence(
    plan: PlanDocument, info: Mapping[str, Any], driver: str, records: Sequence[Record], date: str
) -> dict[str, Any]:
    """Return the evidence of the records.

    ``plan`` is that of the instance, ``info`` the result of instance_bench_info, ``date`` YYYY-MM-DD. Keys whose
    value is not known are left out.
    """
    optional = {
        "note": ". ".join(slowed_notes(records)),
        "preset": plan.get("preset"),
        "driver": driver,
        "power_limit_watts": _whole(info.get("power_limit_watts")),
        "start_seconds": info.get("start_seconds"),
    }
    known = {key: value for key, value in optional.items() if value}
    document = {
        "status": MEASURED,
        "source": f"{NAME} {collection_version()}",
        "date": date,
        "note": None,
        "model": plan["model"],
        "weights": RANDOM if plan["args"].get("load-format") == "dummy" else plan.get("revision") or UNKNOWN,
        "release": plan["vllm_version"],
        "accelerator": chip_name(plan),
        "count": chip_count(plan),
        "preset": None,
        "plan": plan_digest(plan),
        "argv": list(plan["argv"]),
        "env": dict(plan["env"]),
        "driver": None,
        "power_limit_watts": None,
        "start_seconds": None,
        "results": results_of(records),
        "scores": {},
        "raw_sha256": raw_digest(records),
    }
    return {key: known.get(key, value) for key, value in document.items() if key in known or value is not None}


def evidence_path(document: Mapping[str, Any]) -> str:
    """Return where in ``catalog/evidence`` the document belongs."""
    return f"{PLACE.format(**document)}.yml"


def evidence_text(document: Mapping[str, Any]) -> str:
    """Return the document as YAML, in the order of its keys."""
    return dump_yaml(json.loads(json.dumps(document)))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
