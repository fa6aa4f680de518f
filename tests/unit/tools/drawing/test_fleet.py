# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet in the picture of the docs."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.chips import STATES

from tools.drawing import fleet


def test_the_picture_shows_every_state() -> None:
    """A state is new: add a host with it to tools/drawing/fleet.py, run it, and commit docs/images/fleet.png."""
    assert {line.state for line in fleet.fleet()} == set(STATES)
    assert fleet.PICTURE.read_bytes().startswith(b"\x89PNG")
    assert "fra1-05" in fleet.html()
