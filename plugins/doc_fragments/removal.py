# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """The directories of a host that the modules of a removal take from the roles' options."""

    DOCUMENTATION = r"""
options:
  weights_root:
    description: Directory of the models.
    type: path
    default: /srv/models
  venv_root:
    description: Directory of the virtual environments.
    type: path
    default: /opt/vllm
  encodings_dir:
    description: Directory of the encodings.
    type: path
    default: /srv/encodings
  user:
    description: System user that vLLM runs as.
    type: str
    default: vllm
  root:
    description: Root of the host's files; for tests.
    type: path
    default: /
"""
