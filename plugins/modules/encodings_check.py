#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encodings_check
short_description: (internal) Check that the Harmony library of each release loads the encodings of a host
description:
  - Asks the library that vLLM will load, in its virtual environment or its image, to load C(HarmonyGptOss) from the
    directory that E(TIKTOKEN_ENCODINGS_BASE) will name. It is asked as the user that vLLM runs as, in an image without
    a network.
  - Fails where the library refuses, and names the file, the release and what to do. A library that is missing or does
    not answer is a warning.
  - A library that has accepted the files is not asked again until one of the files, the environment, the image or the
    user changes. Remembering the answer is not reported as a change.
extends_documentation_fragment: baremetal.inference.attributes
attributes:
  check_mode:
    support: partial
    details: Returns in C(due) the libraries that would be asked, and asks none.
  diff_mode:
    support: none
options:
  uses:
    description: Who reads which encodings, as M(baremetal.inference.serve_plan) returns it in C(encodings).
    type: list
    elements: dict
    required: true
    suboptions:
      directory:
        description: Directory of the encodings on the host.
        type: path
        required: true
      release:
        description: Name of the release, for messages.
        type: str
        required: true
      python:
        description: Python of the virtual environment; empty where there is an O(uses[].image).
        type: str
        default: ""
      image:
        description: Reference of the image; empty where there is a O(uses[].python).
        type: str
        default: ""
      user:
        description: V(root) for an image that serves as root only.
        type: str
        choices: ["", root]
        default: ""
      instances:
        description: The instances that it is about, for messages.
        type: list
        elements: str
        default: []
  engine:
    description: Path of the engine's command, docker or podman; needed for images.
    type: str
    default: ""
  user:
    description: System user that vLLM runs as.
    type: str
    default: vllm
  state_file:
    description: File that remembers what was accepted.
    type: path
    default: /var/lib/baremetal-inference/encodings-check.json
seealso:
  - module: baremetal.inference.encodings
"""

EXAMPLES = "\n# roles/vllm/tasks/encodings.yml\n"

from typing import Any

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.encodings.library import Use
from ..module_utils.encodings.library_host import ask_library, read_accepted, read_state, write_accepted


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    uses = [Use.from_dict(entry) for entry in module.params["uses"]]
    for use in uses:
        if bool(use.python) == bool(use.image) or (use.image and not module.params["engine"]):
            module.fail_json(
                msg=f"uses of {use.directory}: expected either python, or image and an engine; found python "
                f"{use.python!r}, image {use.image!r}, engine {module.params['engine']!r}"
            )
    return run(module, uses)


def run(module: AnsibleModule, uses: list[Use]) -> dict[str, Any]:
    """Ask every library whose answer is not known, and remember which ones accepted. Raises RefusedError."""
    engine, user, state_file = (module.params[name] for name in ("engine", "user", "state_file"))
    before = read_accepted(state_file)
    states = {use: read_state(use, engine, user) for use in uses}
    due = [use for use in uses if before.get(use.key) != states[use]]
    accepted: dict[str, str] = {}
    good = {use.key: states[use] for use in uses if use not in due}
    for use in [] if module.check_mode else due:
        library, warning = ask_library(use, engine, user)
        if warning:
            module.warn(warning)
            continue
        accepted[use.place] = library
        good[use.key] = states[use]
    if not module.check_mode and good != before:
        write_accepted(state_file, good)
    return {"due": [use.place for use in due], "accepted": accepted}


if __name__ == "__main__":
    main()
