# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of provision.yml in the inventory: they are judged before the provisioner is asked."""

import re
from typing import Any, Callable, Mapping

from ...module_utils.common.kinds import name_kind, show_value
from ..common.playbook_options import PlaybookOptionError, check_values, refuse_misspelt
from ..common.role_options import has_template
from .entry import ProvisionError
from .states import DeadlineError, read_deadlines

_BEGIN = "provision_"
_KEY = re.compile(r"(?:ssh-|ecdsa-|sk-)[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+(?: [^\r\n]*)?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def read_keys(value: Any) -> tuple[str, ...]:
    """Return the public keys of a list, or of a text with one. Raises ProvisionError, which shows none of them."""
    where, expected = "provision_ssh_keys", "expected public keys as in a file id_ed25519.pub, one an entry"
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)):
        raise ProvisionError(f"{where}: found {name_kind(value)}, {expected}")
    keys = [key.strip() if isinstance(key, str) else key for key in found]
    for key in filter(None, keys):
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            # Even the wrong file's first line must not be shown.
            private = isinstance(key, str) and "PRIVATE KEY" in key
            raise ProvisionError(f"{where}: found {'a private key' if private else 'something else'}, {expected}")
    if not any(keys):
        raise ProvisionError(f"{where}: found none; without a key nobody could log in to the new hosts")
    return tuple(filter(None, keys))


def read_user(value: Any) -> str:
    """Return the name of the user of the new hosts. Raises ProvisionError."""
    if not isinstance(value, str) or not _USER.fullmatch(value):
        raise ProvisionError(f"provision_user: found {show_value(value)}, expected the name of a user")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "provision_deadlines": read_deadlines, "provision_ssh_keys": read_keys, "provision_user": read_user,
}  # fmt: skip


def check_site_options(variables: Mapping[str, Any]) -> None:
    """Raise ProvisionError for an option that is misspelt, or that no run could use; templates are not judged."""
    try:
        refuse_misspelt(variables, _BEGIN)
        own = {name: value for name, value in variables.items() if name.startswith(_BEGIN) and not has_template(value)}
        check_values(own)
        for name in own.keys() & _READERS.keys():
            _READERS[name](own[name])
    except (DeadlineError, PlaybookOptionError) as exc:
        raise ProvisionError(str(exc)) from exc
