# SPDX-License-Identifier: GPL-3.0-or-later
"""Give the ramdisk its static network, before systemd-networkd starts."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.agent_network_host import main

if __name__ == "__main__":
    main()
