# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables, keys and flags hold secrets, by their names."""

from __future__ import annotations

import re

# A word anywhere in the name (SSH_KEY_B64), unless the name ends as that of a place or a number does.
_SECRET = re.compile(
    r"(?:\A|_)(?:(?:API|ACCESS)?(?:TOKEN|KEY)|KEYS|APIKEYS|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|CREDS|AUTH"
    r"|AUTHORIZATION|BEARER|HEADERS?|COOKIES?|JWT|KEYTAB|WEBHOOK|DSN)[0-9]*(?:_|\Z)"
    r"|(?:\A|_)PASS[0-9]*\Z|_(?:PWD|PAT)[0-9]*(?:_|\Z)|PGPASS\Z|CONNECTION_STRING",
    re.I,
)
_NO_SECRET = re.compile(r"_(?:DIR|FILE|ID|LENGTH|NAME|PATH|SIZE|THRESHOLD|TIMEOUT|TTL|TYPE)\Z", re.I)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")


def is_secret(name: str) -> bool:
    """Return whether a variable, key or flag of this name holds a secret."""
    name = _HUMP.sub("_", name)
    return bool(_SECRET.search(name) and not _NO_SECRET.search(name))
