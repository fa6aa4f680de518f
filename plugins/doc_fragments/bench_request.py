# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """What is requested of a benchmark: checked before a host is contacted, and measured on each host."""

    DOCUMENTATION = r"""
options:
  workloads:
    description: Names of workloads of C(catalog/workloads.yml) or O(workload_definitions), all of them without a name.
    type: list
    elements: str
    default: []
  workload_definitions:
    description:
      - A site's own workloads by name, in the form of C(catalog/workloads.yml). They replace those of the same name.
    type: dict
    default: {}
  concurrency:
    description: How many requests run at a time, in steps. By default 1, 8, 64 and 256, on a CPU 1 and 4.
    type: list
    elements: str
    default: []
  repeats:
    description: How often each step is measured.
    type: int
    default: 3
  requests_per_stream:
    description: How many requests a measurement has for each of those that run at a time.
    type: int
    default: 4
  requests_min:
    description: How many requests a measurement has at least.
    type: int
    default: 8
  seed:
    description: Base of the seeds of the prompts. Without it each measurement has a new seed.
    type: str
    default: ""
  timeout:
    description: Seconds until a measurement must be finished.
    type: float
    default: 1800
  compare:
    description: Directory with the results of another run, which the page shows beside these.
    type: path
    default: ""
"""
