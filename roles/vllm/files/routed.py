# SPDX-License-Identifier: GPL-3.0-or-later
"""Kept states of instances name routed.Routed: where a KV cache may be from."""

from ansible_collections.baremetal.inference.plugins.module_utils.middleware import routed_host

Routed = routed_host.Routed
