# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the collection's own files are on the controller."""

from __future__ import annotations

from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[3]
CATALOG = COLLECTION / "catalog"
ROLES = COLLECTION / "roles"
