# SPDX-License-Identifier: GPL-3.0-or-later
"""Ironic's REST interface, as far as a deployment needs it, with the standard library.

Nothing here repeats a request: the next poll asks again.
"""

import base64
import contextlib
import http.client
import json
import re
import ssl
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence
from urllib.parse import SplitResult, quote, urlsplit

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.foreign_text import quote_foreign
from ...module_utils.instance.api_host import read_body, within

# The first version in which a deployment that waits for its agent can be aborted.
API_VERSION = "1.110"
MOST_BYTES = 16 * 1024 * 1024
FIELDS = "uuid,name,provision_state,power_state,last_error,maintenance,maintenance_reason,deploy_step,extra"
# Why forget() sets a node aside: Ironic deletes a written one only in maintenance.
HANDED_OVER = "handed over"
PAGE = 500
MOST_PAGES = 20


class IronicError(ValueError):
    """Ironic refused a request, or did not answer; the message is one sentence without secrets."""


class BusyError(IronicError):
    """Ironic works at the node (409), or cannot work at all for now: the request can be repeated."""


class GoneError(IronicError):
    """Ironic has no such node (404)."""


@dataclass(frozen=True)
class Ironic:
    """One Ironic. ``certificate`` is PEM that its certificate is checked against; empty: the system's authorities."""

    url: str
    username: str
    password: str = field(repr=False)
    certificate: str = ""
    timeout: float = 30

    def nodes(self) -> dict[str, Mapping[str, Any]]:
        """Return the nodes by name, with FIELDS."""
        found: dict[str, Mapping[str, Any]] = {}
        marker = ""
        for _page in range(MOST_PAGES):
            answer = self._ask("GET", f"/v1/nodes?limit={PAGE}&fields={FIELDS}{marker}")
            listed = answer.get("nodes") if isinstance(answer, Mapping) else None
            if not isinstance(listed, list) or not all(isinstance(node, Mapping) for node in listed):
                raise IronicError(f"{self.url} does not answer as Ironic does")
            found.update({str(node.get("name")): node for node in listed})
            if len(listed) < PAGE:
                return found
            marker = f"&marker={quote(str(listed[-1].get('uuid')), safe='')}"
        raise IronicError(f"{self.url} lists more than {PAGE * MOST_PAGES} nodes")

    def create(self, node: Mapping[str, Any], mac: str) -> None:
        """Create a node with its port; a port makes Ironic recognise the agent of the server."""
        self._ask("POST", "/v1/nodes", node)
        self.add_port(str(node["name"]), mac)

    def add_port(self, name: str, mac: str) -> None:
        """Add a port to a node."""
        node = self._ask("GET", f"/v1/nodes/{quote(name, safe='')}?fields=uuid")
        uuid = node.get("uuid") if isinstance(node, Mapping) else None
        self._ask("POST", "/v1/ports", {"node_uuid": uuid, "address": mac})

    def ports(self, name: str) -> list[str]:
        """Return the MAC addresses of a node's ports."""
        answer = self._ask("GET", f"/v1/ports?node={quote(name, safe='')}&fields=address")
        listed = answer.get("ports") if isinstance(answer, Mapping) else None
        ports = listed if isinstance(listed, list) else []
        return [str(port.get("address")).lower() for port in ports if isinstance(port, Mapping)]

    def change(self, name: str, patch: Sequence[Mapping[str, Any]]) -> None:
        """Change fields of a node."""
        self._ask("PATCH", f"/v1/nodes/{quote(name, safe='')}", patch)

    def clean(self, name: str, steps: Sequence[Mapping[str, Any]]) -> None:
        """Order a manageable node to boot the ramdisk and carry out these steps, and no others."""
        self._ask(
            "PUT", f"/v1/nodes/{quote(name, safe='')}/states/provision", {"target": "clean", "clean_steps": steps}
        )

    def power(self, name: str, target: str, timeout: int) -> None:
        """Order another power state: power off, soft power off. ``timeout`` is how long the change may take."""
        self._ask("PUT", f"/v1/nodes/{quote(name, safe='')}/states/power", {"target": target, "timeout": timeout})

    def order(
        self,
        name: str,
        target: str,
        config_drive: Mapping[str, Any] | None = None,
        steps: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Order a node into another state: manage, provide, active, abort, deleted.

        ``steps`` are deploy steps beside those that write.
        """
        more = {"configdrive": config_drive, "deploy_steps": list(steps)}
        body = {"target": target, **{key: value for key, value in more.items() if value}}
        self._ask("PUT", f"/v1/nodes/{quote(name, safe='')}/states/provision", body)

    def forget(self, name: str) -> None:
        """Remove a node without touching its server; one that is gone is no error."""
        place = f"/v1/nodes/{quote(name, safe='')}"
        with contextlib.suppress(GoneError):
            self._ask("PUT", f"{place}/maintenance", {"reason": HANDED_OVER})
            self._ask("DELETE", place)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        account = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        headers = {
            "Authorization": f"Basic {account}", "Content-Type": "application/json", "Connection": "close",
            "X-OpenStack-Ironic-API-Version": API_VERSION,
        }  # fmt: skip
        address, data = urlsplit(self.url), None if body is None else json.dumps(body).encode()
        try:
            with contextlib.closing(self._connection(address)) as connection, within(self.timeout, connection):
                connection.request(method, address.path + path, data, headers)
                answer = connection.getresponse()
                status, text = answer.status, read_body(answer, MOST_BYTES + 1)
        except (OSError, ValueError, http.client.HTTPException) as exc:
            # A text of the library never contains the headers, but its cause may be long.
            raise BusyError(f"Ironic at {self.url} does not answer: {quote_foreign(exc)}") from None
        # A redirect would take the account to another server.
        if not 200 <= status < 300:
            raise self._refused(status, text[: 64 * 1024], f"{method} {path.partition('?')[0]}")
        return _document(text, self.url)

    def _connection(self, address: SplitResult) -> http.client.HTTPConnection:
        host, port = address.hostname or "", address.port
        if address.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=self.timeout)
        context = ssl.create_default_context(cadata=self.certificate or None)
        return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=context)

    def _refused(self, status: int, text: bytes, order: str) -> IronicError:
        if status in (401, 403):
            return IronicError(f"Ironic at {self.url} refused user {self.username!r} ({status})")
        # 500 is also what a database that is locked for a moment becomes.
        busy = status == 409 or status >= 500
        kind = BusyError if busy else GoneError if status == 404 else IronicError
        return kind(f"Ironic answered {order} with HTTP {status}: {_fault(text)}")


def _document(body: bytes, url: str) -> Any:
    if len(body) > MOST_BYTES:
        raise IronicError(f"an answer of Ironic at {url} is larger than {MOST_BYTES // 1024 // 1024} MiB")
    try:
        return load_json(body) if body.strip() else {}
    except ValueError:
        raise IronicError(f"{url} does not answer as Ironic does") from None


def _fault(body: bytes) -> str:
    """Return the message of an error, which Ironic wraps once or twice, in one line."""
    text = body.decode("utf-8", "replace")
    for _wrap in range(2):
        try:
            document = load_json(text)
        except ValueError:
            break
        inner = document.get("error_message", document) if isinstance(document, Mapping) else document
        if isinstance(inner, Mapping):
            return quote_foreign(re.sub(r"\s+", " ", str(inner.get("faultstring", "no message"))), 300)
        text = str(inner)
    return quote_foreign(re.sub(r"\s+", " ", text), 300)
