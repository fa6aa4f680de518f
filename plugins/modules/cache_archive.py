#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: cache_archive
short_description: (internal) Keep a fetched archive of compiled caches under its key, and write its manifest
description:
  - Computes the key and writes the manifest on the controller, so that a host chooses no name and replaces no archive
    of another host.
  - An archive of another host with the same key stays, with a warning.
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.unsupported
options:
  directory:
    description: Directory of the archives and manifests.
    type: path
    required: true
  fetched:
    description: The fetched archive. It is moved to its name, or removed.
    type: path
    required: true
  plan:
    description: The instance's plan as M(baremetal.inference.serve_plan) returns it.
    type: dict
    required: true
  packed:
    description: What M(baremetal.inference.instance_cache) returned for the instance.
    type: dict
    required: true
"""

EXAMPLES = "\n# playbooks/caches.yml\n"
