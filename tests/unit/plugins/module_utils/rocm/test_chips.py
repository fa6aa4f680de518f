# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import MODULES, Blacklist, RocmHostState

CONF = "/etc/modprobe.d/x.conf"
STATE = RocmHostState(
    driven=("0000:05:00.0",), has_module=True, disk="6.14.14", rocm="7.2.0",
    blacklists=(Blacklist(CONF, 3, "blacklist amdgpu"), Blacklist("", 0, "modprobe.blacklist=amdgpu")),
    blacklisting={CONF: "blacklist amdgpu\n"}, grub="", numa_balancing="0",
)  # fmt: skip


def test_a_state_returns_from_its_fact_as_it_was():
    fact = json.loads(json.dumps(STATE.as_dict()))
    assert RocmHostState.from_dict(fact) == STATE
    assert RocmHostState.from_dict(json.loads(json.dumps(RocmHostState().as_dict()))) == RocmHostState()


def test_a_line_that_prevents_the_driver_is_named_with_its_place():
    assert [entry.where for entry in STATE.blacklists] == [f"{CONF} line 3", "the kernel's command line"]


def test_modules_are_removed_before_those_that_they_use():
    """As `modinfo -F depends amdgpu` of AMD's driver lists them."""
    order = [MODULES.index(name) for name in ("amdgpu", "amddrm_ttm_helper", "amdttm", "amdkcl")]
    assert order == sorted(order) and len(set(MODULES)) == len(MODULES)
