#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: serve_plan
short_description: (internal) Decide what every vLLM instance of a host is started with
description:
  - Combines recipe, release, accelerator and the requested instances into one plan for each instance.
  - Every argument and every C(VLLM_*) variable is checked against what the release accepts (C(catalog/options/)). One
    that it does not know is an error; another variable that no library is known to read is a warning.
  - Runs on the controller and contacts no host. An instance that cannot be served is an error, and nothing changes.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.catalogue_paths
options:
  instances:
    description:
      - Instances by name, as in the variable C(vllm_instances) of the role P(baremetal.inference.vllm#role).
      - One with several replicas becomes C(NAME), C(NAME-2), C(NAME-3) on the ports that follow its own.
    type: raw
    required: true
  release:
    description:
      - Name of a file in C(catalog/releases/) or in O(release_path).
      - When empty, the collection's release for the stack.
    type: str
    required: true
  accelerator:
    description:
      - The detected hardware, the fact C(accelerator_detected) that M(baremetal.inference.accelerator_info) returns.
    type: dict
    required: true
  facts:
    description: Facts of the host that replace those of O(accelerator). The keys are C(driver_version),
      C(cuda_version), C(mec_firmware) and C(partition).
    type: dict
    default: {}
  runtime:
    description: How vLLM runs. The release decides by default.
    type: str
    choices: ["", container, venv]
    default: ""
  python:
    description: The Python of virtual environments, a version like V(3.12) or a path on the host. When empty, the
      host's own C(python3) where the release has a lock of wheels for it, else the newest of the host's that has one.
    type: str
    default: ""
  strict:
    description:
      - Whether flags, JSON keys and C(VLLM_*) variables that the release's table does not have are errors. Otherwise
        they are warnings, and a release without a table uses the newest one. For nightlies.
      - The same holds for hardware that a recipe does not list, and for software that it needs besides the release.
    type: bool
    default: true
  image:
    description: Reference of an image to use instead of the release's.
    type: str
    default: ""
  registry:
    description: Registry of the site, with a path if it has one, that holds the release's images under their own names.
    type: str
    default: ""
  secret_names:
    description: By instance, the name of each secret and what is wrong with its value, which is empty for a valid one.
    type: dict
    default: {}
  fabric:
    description: RDMA devices between the hosts of an instance that spans several, C(hca) and C(gid_index).
    type: dict
    default: {}
  site:
    description: Paths on the host and times that apply to all instances.
    type: dict
    required: true
    suboptions:
      weights_root:
        description: Directory of the weights on the host.
        type: path
        required: true
      encodings_dir:
        description: Directory of the tiktoken encodings on the host.
        type: path
        required: true
      cache_root:
        description: Directory that holds the caches of every instance.
        type: path
        required: true
      venv_root:
        description: Directory of the virtual environments.
        type: path
        required: true
      drain_timeout:
        description: Seconds that running requests get to finish when an instance stops.
        type: int
        required: true
"""

EXAMPLES = "\n# roles/vllm/tasks/plan.yml\n"
