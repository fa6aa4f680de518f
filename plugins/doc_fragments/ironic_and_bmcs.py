# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """The hosts, Ironic and the BMCs of the modules that provision and deprovision servers."""

    DOCUMENTATION = r"""
options:
  hosts:
    description: The hosts of the play. Those without the variable C(provision) are left out.
    type: list
    elements: str
    required: true
  provisioner:
    description: Text of C(site.json), which the role provisioner writes on its host; it names Ironic and the images.
    type: str
    required: true
  username:
    description: User of Ironic.
    type: str
    required: true
  password:
    description: Password of that user.
    type: str
    required: true
  bmc_username:
    description: User of the BMCs; C(accelerator_bmc_username) of a host takes precedence.
    type: str
    default: ""
  bmc_password:
    description: Password of the BMCs; C(accelerator_bmc_password) of a host takes precedence.
    type: str
    default: ""
  bmc_verify:
    description: Whether the controller checks the certificates of the BMCs.
    type: bool
    default: true
  bmc_ca_file:
    description: File on the controller with the authority of these certificates; the system's own when empty.
    type: path
    default: ""
"""
