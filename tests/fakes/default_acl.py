# SPDX-License-Identifier: GPL-3.0-or-later
"""A default ACL, as ``setfacl -d -m u:4242:rwx`` sets it: what is made below is another user's too."""

from __future__ import annotations

import os
import struct

import pytest

NAME = "system.posix_acl_default"
_NOBODY = 0xFFFFFFFF


def set_default_acl(path):
    """Give a user all rights to what is made in a directory; skip the test where its file system has no ACLs."""
    # Of linux/posix_acl_xattr.h: owner, user 4242, group, mask, others.
    entries = ((1, 7, _NOBODY), (2, 7, 4242), (4, 5, _NOBODY), (0x10, 7, _NOBODY), (0x20, 5, _NOBODY))
    try:
        os.setxattr(path, NAME, struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries))
    except OSError:
        pytest.skip("this file system has no ACLs")


def modes_below(top):
    """Return the permissions of each directory below ``top``."""
    found = {path.relative_to(top).as_posix(): path.stat().st_mode & 0o777 for path in top.rglob("*") if path.is_dir()}
    return dict(sorted(found.items()))


def has_default_acl(path):
    """Return whether a directory hands its ACL on."""
    return NAME in os.listxattr(path)
