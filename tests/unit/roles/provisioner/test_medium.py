# SPDX-License-Identifier: GPL-3.0-or-later
"""The medium that Ironic makes boots only if the boot loader finds what Ironic writes."""

from __future__ import annotations

import re

from tests.fakes.inventory_plugin import TOP

ROLE = TOP / "roles/provisioner"


def test_ironic_writes_the_menu_where_the_boot_loader_looks_for_it():
    written = re.findall(r"^grub_config_path = (\S+)$", (ROLE / "templates/ironic.conf.j2").read_text(), re.M)
    loader = (ROLE / "files/build.sh").read_text()
    assert written == re.findall(r"search --no-floppy --set=root --file (\S+?)\\n", loader)
    assert f"configfile ($root){written[0]}" in loader
