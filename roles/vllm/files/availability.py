# SPDX-License-Identifier: GPL-3.0-or-later
"""Kept states of instances name availability.Availability: what gateways see of an instance."""

from ansible_collections.baremetal.inference.plugins.module_utils.middleware import availability_host

Availability = availability_host.Availability
