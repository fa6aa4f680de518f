# SPDX-License-Identifier: GPL-3.0-or-later
"""The secret with which gateways prove to instances what they are: of the inventory, or of the state directory.

It stays on the controller. Gateways get the keys of their services and instances, and an instance gets its own two.
While it changes there are two: gateways have the keys of the first one, and instances accept those of both.
"""

import os
import secrets
import stat
from typing import Any, Mapping

from ...module_utils.common.files_host import publish_once
from ...module_utils.gateway.servers import server_name
from ...module_utils.instance.scale_door import DOOR
from ...module_utils.usage.record import DIGEST, INSTANCE, SERVICE, digest_of, key_of
from ..common.option_contents import GATEWAY_SECRET, OF_STATE_DIR, check_gateway_secret

OPTION, FILE = GATEWAY_SECRET, "gateway-secret"


class SecretError(ValueError):
    """The secret cannot be used; the message is the whole sentence, without the secret."""


def engine_secret(given: str, path: str, create: bool) -> str:
    """Return one secret, or two with a space between them; empty where there is none.

    ``given`` is the option of the inventory. Without it the file at ``path`` counts, which is made where it is missing
    and ``create`` is true; an empty path stands for no file. Raises SecretError and OSError.
    """
    if given or not path:
        return _checked(given, OPTION)
    if not os.path.lexists(path):
        new = secrets.token_hex(32)
        if not create:
            return new
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        # Hosts are worked on at the same time: the first one makes the secret of all.
        publish_once(path, f"{new}\n", 0o600)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        raise SecretError(f"{path}: found the mode {mode:04o}, expected 0600, because it has a secret; chmod 600 it")
    with open(path, encoding="utf-8", errors="replace") as file:
        return _checked(file.read(1024), path, "move it away, so that a new one is made")


def accepted_by(secret: str, service: str, host: str, instance: str) -> str:
    """Return what an instance accepts: words for the middleware, empty without a secret."""
    server = server_name(host, instance)
    return " ".join(
        word
        for each in secret.split()
        for word in (
            f"{SERVICE}:{key_of(each, SERVICE, service)}",
            f"{INSTANCE}:{key_of(each, INSTANCE, server)}",
            f"{DIGEST}:{digest_of(each)}",
        )
    )


def door_keys(secret: str, host: str) -> str:
    """Return what a host accepts of gateways that start and stop its replicas; empty without a secret."""
    return " ".join(key_of(each, DOOR, host) for each in secret.split())


def map_of_gateway(secret: str, plan: Mapping[str, Any]) -> str:
    """Return the keys of a gateway as a map of HAProxy, from what the gateway serves; empty without a secret."""
    first = secret.split()[:1]
    names = [(SERVICE, service["name"]) for service in plan["services"]]
    names += [(DOOR, host) for host in plan.get("scale", {}).get("doors", ())]
    names += [(INSTANCE, server["name"]) for service in plan["services"] for server in service["servers"]]
    return "".join(f"{kind}:{name} {key_of(secret, kind, name)}\n" for secret in first for kind, name in names)


def _checked(text: str, where: str, otherwise: str = OF_STATE_DIR) -> str:
    try:
        return " ".join(check_gateway_secret(text, where, otherwise))
    except ValueError as exc:
        raise SecretError(str(exc)) from None
