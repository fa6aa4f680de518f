# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables, keys and flags hold secrets, by their names."""

import re
from typing import Any

# A word anywhere in the name (SSH_KEY_B64), some also as the end of a word (PGPASSWORD), unless the name ends as that
# of a place or a number does.
_SECRET = re.compile(
    r"(?:(?:\A|_)(?:KEY|KEYS|CREDENTIALS?|CREDS|AUTH|AUTHORIZATION|BEARER|HEADERS?|COOKIES?|JWT|KEYTAB|WEBHOOK|DSN|PASS)"
    r"|(?:(?<!TIK)TOKEN|(?:API|ACCESS|SECRET|PRIVATE)KEYS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PGPASS|_PWD|_PAT)"
    r")[0-9]*(?:_|\Z)|CONNECTION_STRING",
    re.I,
)
_NO_SECRET = re.compile(
    r"_(?:DIR|FILE|ID|IDS|INDEX|LEN|LENGTH|MODE|NAME|PATH|PREFIX|SIZE|SOCK|THRESHOLD|TIMEOUT|TTL|TYPE)\Z", re.I
)
# A switch or a number: these words or its value tell it, and only both where other words tell the secret surely.
_SETTING = re.compile(r"(?:\A|_)(?:ADAPTIVE|ALLOW|ALLOWED|DISABLED?|ENABLED?|MAX|RETURN)(?:_|\Z)", re.I)
_SURE = re.compile(r"API_?KEY|PASS|_PWD|SECRET", re.I)
_SWITCH = re.compile(r"[01]|true|false|yes|no|on|off", re.I)
# A path begins with a lower-case directory, which a key in base64 hardly does.
_PLAIN = re.compile(r"[+-]?\d+(?:\.\d+)?|/[a-z][a-z0-9_.-]*(?:/[\w.@-]+)+", re.A)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")


def is_secret(name: str, value: Any = None) -> bool:
    """Return whether a variable, key or flag of this name, and of this value where it is known, holds a secret."""
    name, text = _HUMP.sub("_", name), "" if value is None else str(value)
    if not _SECRET.search(name) or _NO_SECRET.search(name):
        return False
    is_setting, is_switch = bool(_SETTING.search(name)), bool(_SWITCH.fullmatch(text))
    if _SURE.search(name):
        return not (is_setting and is_switch)
    return not (is_setting or is_switch or _PLAIN.fullmatch(text))
