# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one error of planning."""

from __future__ import annotations


class PlanError(ValueError):
    """The wishes cannot be served; the message is the whole sentence for the user."""
