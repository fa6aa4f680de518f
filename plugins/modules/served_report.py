#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: served_report
short_description: (internal) Show where the models are served
description:
  - Shows the addresses of the gateways of the play with their models, what clients need, and the next command. In a
    play without gateways it shows the addresses of the instances themselves.
  - Runs on the controller without a connection to hosts, once for all of them. Reads C(gateway_served)
    of the role gateway and C(vllm_plan) of the role vllm for each, and shows no secret.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options: {}
"""

EXAMPLES = "\n# playbooks/gateway.yml\n"
