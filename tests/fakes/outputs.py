# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares what Ansible prints with words, in every supported ansible-core."""

from __future__ import annotations


def squeezed(text: str) -> str:
    """Return a text without white space: 2.18 breaks lines within words, and doubles quotes in results as YAML does."""
    return "".join(text.split()).replace("''", "'")
