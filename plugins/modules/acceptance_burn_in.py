#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_burn_in
short_description: (internal) Work all chips of a host for a while, and read their error counters
description:
  - Runs a program with a Python that has torch, from a virtual environment of vLLM or in a new container of its image,
    and kills it after a deadline. Reads error counters, throttling, temperatures and PCIe links with the vendor's tool.
  - A program that fails, hangs or is killed is not an error of the module. C(problem) says what happened.
  - Leaves nothing on the host. In check mode it only reads the counters.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  stack:
    description: Stack of the host's accelerators, V(cuda), V(rocm), V(cann) or V(cpu).
    type: str
    required: true
  seconds:
    description: How long the program works.
    type: float
    required: true
  deadline:
    description: Seconds after which the program is killed. Its start counts.
    type: float
    required: true
  python:
    description: A Python on the host that has torch. By default one is searched for.
    type: str
    default: ""
  image:
    description: An image of vLLM on the host to take Python from.
    type: str
    default: ""
  venv_root:
    description: Directory of the virtual environments.
    type: path
    default: /opt/vllm
  devices:
    description: Device nodes and CDI names that a container gets.
    type: list
    elements: str
    default: []
  mounts:
    description: Paths of the host that a container sees.
    type: list
    elements: str
    default: []
  visible:
    description: Variables that restrict the program to some chips of the host. By default it works all.
    type: dict
    default: {}
  size:
    description: Rows of the square matrices. V(0) for 8192 on accelerators and 512 on processors.
    type: int
    default: 0
"""

EXAMPLES = "\n# playbooks/accept.yml\n"

import inspect
import json
from typing import Any

from ..module_utils.acceptance import burn_in_program_host
from ..module_utils.acceptance.burn_in_host import Limits, run_burn_in
from ..module_utils.acceptance.python_host import Interpreter, NoPythonError, Search, find_python, stop_container
from ..module_utils.acceptance.readings import BurnIn
from ..module_utils.acceptance.signals import exit_on_signals
from ..module_utils.chip_counters.read_host import read_counters
from ..module_utils.common.door import AnsibleModule, start_module

SEARCHED = ("python", "image", "venv_root", "stack")
# The program ends itself before it is killed, so that it can report its phase.
GRACE_SECONDS = 20.0
# Between two readings of the counters.
SAMPLE_SECONDS = 10.0
CHECK_MODE = "check mode runs nothing"


def main() -> None:
    module = start_module(DOCUMENTATION)
    options = module.params
    exit_on_signals()
    before = read_counters(options["stack"])
    samples: list[dict[str, Any]] = []
    found, burn_in = ("", BurnIn({})) if module.check_mode else run(module, samples)
    after = read_counters(options["stack"])
    module.exit_json(
        changed=False,
        problem=burn_in.problem,
        measured=burn_in.measured,
        python=found,
        not_tried=CHECK_MODE if module.check_mode else "",
        counters={
            "before": [chip.as_dict() for chip in before.chips],
            "samples": samples,
            "after": [chip.as_dict() for chip in after.chips],
            "problem": before.problem or after.problem,
        },
    )


def run(module: AnsibleModule, samples: list[dict[str, Any]]) -> tuple[str, BurnIn]:
    """Return the Python or image of the program and its measurements; readings during the run are added to samples."""
    options = module.params

    def command(words: list[str]) -> tuple[int, str, str]:
        result: tuple[int, str, str] = module.run_command(words, handle_exceptions=True)
        return result

    search = Search(
        **{name: options[name] for name in SEARCHED},
        devices=tuple(options["devices"]),
        mounts=tuple(options["mounts"]),
        visible=options["visible"],
    )
    try:
        interpreter = find_python(search, command, module.get_bin_path)
    except NoPythonError as exc:
        return "", BurnIn({}, str(exc))
    return interpreter.where, _measure(interpreter, options, command, samples)


def _measure(interpreter: Interpreter, options: dict[str, Any], command: Any, samples: list[dict[str, Any]]) -> BurnIn:
    deadline = options["deadline"]
    words = {name: options[name] for name in ("stack", "seconds", "size")}
    argument = json.dumps({**words, "deadline": deadline})

    def sample() -> None:
        samples.extend(chip.as_dict() for chip in read_counters(options["stack"]).chips)

    limits = Limits(deadline + GRACE_SECONDS, SAMPLE_SECONDS)
    try:
        return run_burn_in(
            [*interpreter.argv, argument],
            inspect.getsource(burn_in_program_host),
            limits,
            sample,
            lambda: stop_container(interpreter, command),
            options["visible"],
        )
    except OSError as exc:
        return BurnIn({}, f"{interpreter.where} cannot be started: {exc.strerror}")


if __name__ == "__main__":
    main()
