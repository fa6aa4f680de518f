# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What awx/ holds, and the form that Semaphore's project restore wants of the same templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader

AWX = Path(__file__).resolve().parents[2] / "awx"
PROJECT = "baremetal.inference"
SITE = "Inference fleet"
_TYPES = {"text": "", "integer": "int", "multiplechoice": "enum"}


def load(name: str) -> Any:
    """Return a file of awx/, with !unsafe texts as texts."""
    return DataLoader().load_from_file(str(AWX / name))


def semaphore_template(template: dict[str, Any]) -> dict[str, Any]:
    """Return a job template of AWX as a template of Semaphore."""
    arguments = ["--check"] if template.get("job_type") == "check" else []
    arguments += ["--diff"] if template.get("diff_mode") else []
    arguments += ["--tags", template["job_tags"]] if template.get("job_tags") else []
    for name, value in template.get("extra_vars", {}).items():
        shown = "{{ semaphore_vars.task_details.username }}" if name == "drain_user" else value
        arguments += ["--extra-vars", f"{name}={json.dumps(shown) if isinstance(shown, bool) else shown}"]
    return {
        "name": template["name"].removeprefix("Inference: "),
        "description": template["description"],
        "app": "ansible",
        "type": "",
        "playbook": template["playbook"],
        "repository": PROJECT,
        "inventory": SITE,
        "environment": SITE,
        "arguments": json.dumps(arguments),
        "allow_override_args_in_task": False,
        "autorun": False,
        "suppress_success_alerts": False,
        "survey_vars": [_question(question) for question in template["survey"]],
        "vaults": [],
    }


def _question(question: dict[str, Any]) -> dict[str, Any]:
    default = question.get("default", "")
    hint = f"Usually {default}" if default != "" and question["type"] != "multiplechoice" else ""
    return {
        "name": question["variable"],
        "title": question["question_name"],
        "description": ". ".join(text for text in (question["question_description"], hint) if text),
        "type": _TYPES[question["type"]],
        "required": question["required"],
        "values": [{"name": choice, "value": choice} for choice in question.get("choices", [])],
    }
