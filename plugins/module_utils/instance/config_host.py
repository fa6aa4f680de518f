# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the files of an instance on this host."""

from __future__ import annotations

from .config_file import InstanceError, Listening, listening_of


def listening_in(directory: str, name: str) -> Listening | None:
    """Return where an instance answers, None for a worker. Raises InstanceError that names the file."""
    path = f"{directory}/{name}.yaml"
    try:
        with open(path, encoding="utf-8") as file:
            return listening_of(file.read())
    except (OSError, UnicodeDecodeError) as exc:
        raise InstanceError(f"{path}: cannot be read: {getattr(exc, 'strerror', None) or exc}") from exc
    except InstanceError as exc:
        raise InstanceError(f"{path}: {exc}") from exc
