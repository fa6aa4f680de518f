# SPDX-License-Identifier: GPL-3.0-or-later
"""What a refused plan may say: facts about the request, not that a recipe sets what its release does not have."""

from __future__ import annotations

import re

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_families

# Words of each reason that is a fact about hardware, release or recipe. Anything else is a mistake of ours.
REASONS = {
    "stack": r"does not support stack",
    "release too old": r"needs vLLM \S+ or newer",
    "variant": r"is not for \S+: ",
    "feature": r"does not run on|does not support the strategy|has no mode for",
    "strategy": r"does not list '\w+' for|spans hosts|does not set up|needs the hosts of both sides",
    "software": r"served by vLLM-Omni|needs more than|needs sources beside|upstream has no \w+ for|its own build of",
    "image": r"names no image for",
    "memory": r"does not fit: |too little memory",
    "several hosts": r"needs --nnodes, which vLLM \S+ \(release \S+\) does not have",
    "sizes": r"vLLM cannot start with|is impossible here",
    "permission": r"a recipe alone cannot allow that",
    "files": r"which nothing brings to the place",
    "frontend": r"frontend in Rust refuses",
    "chips": r"more chips requested than the host has",
}


def reason(error, recipe=None):
    """Return the kind of a refusal, None for one that is no fact of the request; ``recipe`` holds guards of its own."""
    text = str(error)
    guards = [*((recipe or {}).get("guards") or []), *load_families()["guards"]]
    if any(guard.get("refuse") and guard["refuse"] in text for guard in guards):
        return "guard"
    return next((kind for kind, words in REASONS.items() if re.search(words, text)), None)
