#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify a fleet and print exactly one JSON document; the exit status is 0 when it is ok and 1 when it is not.

    tools/verify.py -i inventories/SITE [-l HOSTS] [any other option of ansible-playbook]

docs/reference/verify-document.md describes the document. Warnings and errors of Ansible go to the error output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    if not sys.argv[1:] or {"-h", "--help"} & set(sys.argv[1:]):
        sys.exit(__doc__)
    # Prefer the ansible-playbook beside this Python: cron has a short PATH.
    beside = Path(sys.executable).with_name("ansible-playbook")
    command = [
        str(beside) if beside.exists() else "ansible-playbook",
        *sys.argv[1:],
        str(ROOT / "playbooks/verify.yml"),
    ]
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        **os.environ,
        "ANSIBLE_STDOUT_CALLBACK": "baremetal.inference.verify_json",
    }
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        document = read(done.stdout, done.returncode)
    except OSError as exc:
        document = problem(f"{command[0]} cannot be run: {exc.strerror}")
    print(json.dumps(document, indent=2))
    sys.exit(0 if document["ok"] else 1)


def read(output: bytes, status: int) -> dict[str, Any]:
    """Return the document in output. A run without a document, or one that failed for another reason, is not ok."""
    try:
        document: dict[str, Any] = json.loads(output)
    except ValueError:
        return problem(f"ansible-playbook ended with status {status} before it verified anything; see its errors")
    if status and document["ok"]:
        return {**document, **problem(f"ansible-playbook ended with status {status}"), "checks": document["checks"]}
    return document


def problem(text: str) -> dict[str, Any]:
    return {"ok": False, "checks": [], "instances": [], "problem": text}


if __name__ == "__main__":
    main()
