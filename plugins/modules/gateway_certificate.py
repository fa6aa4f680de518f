#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_certificate
short_description: (internal) Check or issue the certificate of a gateway
description:
  - Checks a certificate and a key of the site, or issues both from a small CA that the module creates for the site.
  - Fails with the dates for an expired certificate, and for a key that does not belong to the certificate.
  - The CA and its key stay in O(ca_dir); give C(ca.crt) to the clients. Certificates are renewed 30 days before
    they expire, and when their names change.
  - Runs on the controller, where these files are, and needs the program openssl.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  source:
    description: V(own) issues from the CA in O(ca_dir), V(files) checks O(certificate) and O(key).
    type: str
    choices: ["own", "files"]
    default: own
  ca_dir:
    description: Directory of the CA.
    type: path
  host:
    description: Name of the gateway, and of its files in O(ca_dir).
    type: str
    required: true
  names:
    description: Names and addresses that clients use for the gateway.
    type: list
    elements: str
    required: true
  certificate:
    description: A certificate in PEM, followed by its intermediate certificates.
    type: path
  key:
    description: The private key in PEM, not encrypted.
    type: path
  present:
    description:
      - The certificate in PEM that the gateway has now.
      - The module fails if the CA in O(ca_dir) is not the CA of the site that issued it.
      - Unset or empty accepts any CA.
    type: str
"""

EXAMPLES = "\n# roles/gateway/tasks/configure.yml\n"

import time

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.gateway.certificate_host import (
    MAX_DAYS,
    RENEW_DAYS,
    CertificateOutcome,
    check_site_certificate,
    issue_from_site_ca,
    refuse_other_authority,
)


@door(
    DOCUMENTATION,
    OSError,
    required_if=[("source", "own", ["ca_dir"]), ("source", "files", ["certificate", "key"])],
)
def main(module: AnsibleModule) -> Result:
    found = _certificate(module)
    for text in found.warnings:
        module.warn(text)
    return {
        "changed": bool(found.reason),
        "certificate": found.certificate,
        "key": found.key,
        "not_after": found.not_after,
        "reason": found.reason,
        # For the clients.
        "authority": f"{module.params['ca_dir']}/ca.crt" if module.params["source"] == "own" else "",
    }


def _certificate(module: AnsibleModule) -> CertificateOutcome:
    options = module.params
    if options["source"] == "files":
        return check_site_certificate(options["certificate"], options["key"], options["names"], RENEW_DAYS, time.time())
    refuse_other_authority(options["ca_dir"], options["host"], options["present"] or "")
    names, check = options["names"], module.check_mode
    return issue_from_site_ca(options["ca_dir"], options["host"], names, MAX_DAYS, RENEW_DAYS, check)


if __name__ == "__main__":
    main()
