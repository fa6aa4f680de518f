# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """The user of the modules that run a benchmark on the host."""

    DOCUMENTATION = r"""
options:
  user:
    description: The user that the benchmark runs as, where the instance runs in a virtual environment.
    type: str
    default: vllm
"""
