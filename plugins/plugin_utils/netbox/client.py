# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The REST API of NetBox, as far as inventory items need it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Iterator, Sequence
from urllib.parse import urlencode, urlsplit

from ...module_utils.common.credentials import redact_credentials
from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.foreign_numbers import read_count
from ...module_utils.common.foreign_text import quote_foreign
from ...module_utils.common.kinds import show_value
from .items import NetBoxError

_SECONDS = 60
# An answer has a page of objects; a larger one is not from NetBox.
_MOST_BYTES = 64 << 20
_PAGE = 200
# Names or ids in one query: the address of a request must stay shorter than what web servers accept.
_AT_ONCE = 50


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another server."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


class NetBox:
    """A NetBox at an address. Every method raises NetBoxError."""

    def __init__(self, url: str, token: str, ca_file: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
            raise NetBoxError(
                f"netbox_url: found {show_value(redact_credentials(url))}, expected an address such as https://netbox.example.com"
            )
        if not token or not token.isprintable() or " " in token:
            raise NetBoxError("no token for NetBox: set NETBOX_TOKEN in the environment, or netbox_token in a vault")
        self.url = url.rstrip("/").removesuffix("/api")
        # Tokens of version 2 have a prefix, and another word in the header.
        self._authorization = f"{'Bearer' if token.startswith('nbt_') else 'Token'} {token}"
        try:
            context = ssl.create_default_context()
            if ca_file:
                context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as exc:
            raise NetBoxError(f"netbox_ca_file: {ca_file}: not a PEM file of authorities ({exc})") from exc
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))

    def find(self, path: str, key: str, values: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list whose ``key`` has one of the values."""
        for start in range(0, len(values), _AT_ONCE):
            query = [(key, value) for value in values[start : start + _AT_ONCE]]
            yield from self._pages(path, query)

    def _pages(self, path: str, query: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            # The address of the next page may be that of another server, so it is not used.
            asked = urlencode([*query, ("limit", _PAGE), ("offset", offset)])
            found = self._ask("GET", f"{path}?{asked}")
            results = found.get("results") if isinstance(found, dict) else None
            count = read_count(found.get("count")) if isinstance(found, dict) else None
            if not isinstance(results, list) or count is None or not all(isinstance(one, dict) for one in results):
                raise NetBoxError(f"{self.url}/api/{path}: not a list of NetBox; is netbox_url right?")
            yield from results
            offset += len(results)
            if not results or offset >= count:
                return

    def write(self, method: str, path: str, data: Any) -> Any:
        """Create (POST), change (PATCH) or remove (DELETE) objects; return the answer, None for an empty one."""
        return self._ask(method, path, data)

    def _ask(self, method: str, path: str, data: Any = None) -> Any:
        address = f"{self.url}/api/{path}"
        shown = address.partition("?")[0]
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        body = None
        if data is not None:
            body, headers["Content-Type"] = json.dumps(data).encode(), "application/json"
        request = urllib.request.Request(address, body, headers, method=method)  # noqa: S310  # __init__ checked it
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                text = answer.read(_MOST_BYTES)
            return load_json(text) if text else None
        except urllib.error.HTTPError as exc:
            raise NetBoxError(f"{method} {shown}: {_explain(exc)}") from None
        except OSError as exc:
            reason = getattr(exc, "reason", None) or exc
            raise NetBoxError(f"{method} {shown}: no answer: {quote_foreign(reason)}") from None
        except ValueError as exc:
            raise NetBoxError(f"{method} {shown}: not an answer of NetBox ({quote_foreign(exc)})") from None


def _explain(error: urllib.error.HTTPError) -> str:
    """Return the status, and what NetBox says about it."""
    if 300 <= error.code < 400:
        target = error.headers.get("Location", "")
        return f"status {error.code}: redirected to {quote_foreign(target)}; set netbox_url to the address there"
    try:
        said = load_json(error.read(1 << 16))
    except (OSError, ValueError):
        said = ""
    detail = said.get("detail", said) if isinstance(said, dict) else said
    advice = "; the token needs the right to view devices and to add, change and delete inventory items"
    return f"status {error.code}: {quote_foreign(detail)}{advice if error.code in (401, 403) else ''}"
