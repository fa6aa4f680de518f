# SPDX-License-Identifier: GPL-3.0-or-later
"""No verdict of the plan on the recipes that vLLM carries, and on the commands of their guides, changes unseen."""

from __future__ import annotations

from tools import verdicts


def test_no_verdict_on_upstreams_recipes_and_guides_has_changed(upstream_recipes):
    del upstream_recipes
    assert "\n".join(verdicts.differences("upstream")) == "", "where this is meant: tools/verdicts.py upstream"
