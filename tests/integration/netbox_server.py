# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HTTP server that answers as the REST API of NetBox 4.4 does, for what an inventory asks of it.

NetBox itself is a Django site with PostgreSQL and Redis and on no Python index. The documents here have the shapes of
its API: nested objects with id, url and display, choices as value and label, pages with count, next and previous, 403
with a detail for a token that is none. Tokens come as "Token KEY" or, as from 4.5 on, as "Bearer nbt_KEY.SECRET".
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Iterator
from urllib.parse import parse_qsl, urlencode, urlsplit

TOKEN = "0123456789abcdef0123456789abcdef01234567"
TOKEN_V2 = "nbt_4F9DAouzURLb.zjebxBPzICiPbWz0Wtx0fTL7bCKXKGTYhNzkgC2S"
# Of the query parameters that NetBox's schema lists for devices, those that people filter hosts with.
PARAMETERS = ("id", "name", "q", "role", "role_id", "status", "site", "site_id", "tag", "device_type", "cluster",
              "has_primary_ip", "limit", "offset")  # fmt: skip
CREATED = {"created": "2026-03-02T09:12:44.501233Z", "last_updated": "2026-11-19T16:03:10.118204Z"}
# What decides whether a device belongs to the answer, by the name of the parameter.
FILTERS = {
    "name": lambda device: device["name"],
    "role": lambda device: device["role"]["slug"],
    "site": lambda device: device["site"]["slug"],
    "status": lambda device: device["status"]["value"],
    "device_type": lambda device: device["device_type"]["slug"],
}

# slug: manufacturer, model
TYPES = {
    "sys-821ge-tnhr": ("Supermicro", "SYS-821GE-TNHR"),
    "as-8125gs-tnmr2": ("Supermicro", "AS-8125GS-TNMR2"),
    "dcs-7060x6-64pe": ("Arista", "DCS-7060X6-64PE"),
}
# name: role, type, site, cluster, address, status, custom fields
DEVICES: dict[str, tuple[str, str, str, str | None, str | None, str, dict[str, Any]]] = {
    "gpu-a-01": ("inference", "sys-821ge-tnhr", "frankfurt", "fra1", "10.1.1.1/24", "active",
                 {"accelerator": "h200", "accelerator_count": 8}),
    "gpu-a-02": ("inference", "sys-821ge-tnhr", "frankfurt", "fra1", "10.1.1.2/24", "active",
                 {"accelerator": "h200", "accelerator_count": 8}),
    # The field left empty: what it has follows from its device type.
    "amd-a-01": ("inference", "as-8125gs-tnmr2", "helsinki", "hel1", "10.2.1.1/24", "active",
                 {"accelerator": None, "accelerator_count": 8}),
    "amd-a-02": ("inference", "as-8125gs-tnmr2", "helsinki", "hel1", "10.2.1.2/24", "active",
                 {"accelerator": None, "accelerator_count": 8}),
    "gpu-b-01": ("inference", "sys-821ge-tnhr", "frankfurt", "fra1", None, "planned",
                 {"accelerator": "h200", "accelerator_count": 8}),
    "leaf-fra-01": ("leaf", "dcs-7060x6-64pe", "frankfurt", None, "10.1.0.1/24", "active",
                    {"accelerator": None, "accelerator_count": None}),
}  # fmt: skip


class NetBox(ThreadingHTTPServer):
    """``asked``: (path with query, status) of every request. A page has at most ``page`` objects, also for limit=0."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.page = 2
        self.asked: list[tuple[str, int]] = []
        self.objects = _objects(self.url)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def document(self, path: str, query: list[tuple[str, str]]) -> Any:
        """Return the body for a path below /api/, or None where there is nothing."""
        if path == "/api/status/":
            return {"django-version": "5.2.6", "installed-apps": {}, "netbox-version": "4.4.1",
                    "netbox-full-version": "4.4.1-Docker-3.4.1", "plugins": {}, "python-version": "3.12.3",
                    "rq-workers-running": 1}  # fmt: skip
        if path == "/api/schema/":
            return _schema()
        listed = self.objects.get(path)
        return None if listed is None else self._page(path, listed, query)

    def _page(self, path: str, listed: list[dict[str, Any]], query: list[tuple[str, str]]) -> dict[str, Any]:
        asked = dict(query)
        found = [item for item in listed if _wanted(item, query)]
        if asked.get("exclude") == "config_context":
            found = [{key: value for key, value in item.items() if key != "config_context"} for item in found]
        start, limit = int(asked.get("offset", 0)), int(asked.get("limit", 50)) or self.page
        end = start + min(limit, self.page)
        following = [(key, value) for key, value in query if key not in ("limit", "offset")]

        def link(offset: int) -> str:
            return f"{self.url}{path}?{urlencode([*following, ('limit', limit), ('offset', offset)])}"

        return {"count": len(found), "next": link(end) if end < len(found) else None,
                "previous": link(max(0, start - limit)) if start else None, "results": found[start:end]}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    server: NetBox
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        status, body = self.answer(target.path, parse_qsl(target.query))
        self.server.asked.append((self.path, status))
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("API-Version", "4.4")
        self.end_headers()
        self.wfile.write(data)

    def answer(self, path: str, query: list[tuple[str, str]]) -> tuple[int, Any]:
        given = self.headers.get("Authorization")
        if given is None:
            return 403, {"detail": "Authentication credentials were not provided."}
        if given not in (f"Token {TOKEN}", f"Bearer {TOKEN_V2}"):
            return 403, {"detail": "Invalid token"}
        document = self.server.document(path, query)
        return (404, {"detail": "Not found."}) if document is None else (200, document)

    def log_message(self, *_args: object) -> None:
        """Quiet: what was asked is in ``asked``."""


@contextlib.contextmanager
def serving() -> Iterator[NetBox]:
    """Serve until the block ends."""
    server = NetBox()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _wanted(item: dict[str, Any], query: list[tuple[str, str]]) -> bool:
    """Values of one parameter are alternatives, parameters hold together; NetBox ignores what it does not know."""
    asked: dict[str, set[str]] = {}
    for key, value in query:
        asked.setdefault(key, set()).add(value)
    fields = {key[3:]: values for key, values in asked.items() if key.startswith("cf_")}
    if any(str(item["custom_fields"].get(key)) not in values for key, values in fields.items()):
        return False
    return all(FILTERS[key](item) in values for key, values in asked.items() if key in FILTERS and "role" in item)


def _schema() -> dict[str, Any]:
    """Return as much of the OpenAPI document as says which parameters there are."""
    parameters = [{"in": "query", "name": name, "schema": {"type": "string"}} for name in PARAMETERS]
    paths = ("/api/dcim/devices/", "/api/virtualization/virtual-machines/")
    return {"openapi": "3.0.3", "info": {"title": "NetBox REST API", "version": "4.4.1"},
            "paths": {path: {"get": {"parameters": parameters}} for path in paths}}  # fmt: skip


def _objects(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return every list of the API that an inventory asks for, by path."""
    api = f"{url}/api"

    def nested(path: str, number: int, name: str, **more: Any) -> dict[str, Any]:
        slug = name.lower().replace(" ", "-")
        return {"id": number, "url": f"{api}/{path}/{number}/", "display": name, "name": name, "slug": slug,
                "description": "", **more}  # fmt: skip

    def full(item: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**item, **more, "tags": [], "custom_fields": {}, **CREATED}

    def several(path: str, *names: str) -> dict[str, dict[str, Any]]:
        return {name: nested(path, number, name.title()) for number, name in enumerate(names, 1)}

    region = nested("dcim/regions", 1, "Europe", _depth=0)
    sites = several("dcim/sites", "frankfurt", "helsinki")
    roles = several("dcim/device-roles", "inference", "leaf")
    makers = several("dcim/manufacturers", "Supermicro", "Arista")
    types = {slug: {"id": number, "url": f"{api}/dcim/device-types/{number}/", "display": model, "model": model,
                    "manufacturer": makers[maker], "slug": slug, "description": ""}
             for number, (slug, (maker, model)) in enumerate(TYPES.items(), 1)}  # fmt: skip
    # A cluster has no slug.
    clusters = {name: {"id": number, "url": f"{api}/virtualization/clusters/{number}/", "display": name, "name": name,
                       "description": ""} for number, name in enumerate(("fra1", "hel1"), 1)}  # fmt: skip
    racks = {site: nested("dcim/racks", number, f"{site[:3]}-r1") for number, site in enumerate(sites, 1)}
    kind = nested("virtualization/cluster-types", 1, "Bare metal")
    lists = {
        "dcim/regions": [full(region, parent=None)],
        "dcim/sites": [full(site, status={"value": "active", "label": "Active"}, region=region, group=None, tenant=None,
                            facility="", time_zone="Europe/Berlin", prefix_count=0) for site in sites.values()],
        "dcim/device-roles": [full(role, color="2196f3", vm_role=False) for role in roles.values()],
        "dcim/manufacturers": [full(maker) for maker in makers.values()],
        "dcim/device-types": [full(item, u_height=8.0, part_number="") for item in types.values()],
        "dcim/racks": [full(rack, site=sites[site], role=None, location=None) for site, rack in racks.items()],
        "virtualization/clusters": [full(cluster, type=kind, group=None) for cluster in clusters.values()],
        **{path: [] for path in ("dcim/inventory-items", "extras/tags", "dcim/site-groups", "dcim/locations",
                                 "dcim/platforms", "tenancy/tenants", "virtualization/virtual-machines",
                                 "ipam/services")},
    }  # fmt: skip
    devices = []
    for number, (name, (role, slug, site, cluster, address, status, fields)) in enumerate(DEVICES.items(), 101):
        ip = address and {"id": number, "url": f"{api}/ipam/ip-addresses/{number}/", "display": address,
                          "family": {"value": 4, "label": "IPv4"}, "address": address, "description": ""}  # fmt: skip
        devices.append({
            "id": number, "url": f"{api}/dcim/devices/{number}/", "display_url": f"{url}/dcim/devices/{number}/",
            "display": name, "name": name, "device_type": types[slug], "role": roles[role], "tenant": None,
            "platform": None, "serial": f"S{number}X", "asset_tag": None, "site": sites[site], "location": None,
            "rack": racks[site], "position": float(number - 100), "face": {"value": "front", "label": "Front"},
            "parent_device": None, "status": {"value": status, "label": status.title()}, "airflow": None,
            "primary_ip": ip, "primary_ip4": ip, "primary_ip6": None, "oob_ip": None,
            "cluster": clusters[cluster] if cluster else None, "virtual_chassis": None, "vc_position": None,
            "description": "", "comments": "", "config_template": None, "config_context": {"ntp": ["10.0.0.1"]},
            "local_context_data": None, "tags": [], "custom_fields": fields, **CREATED,
        })  # fmt: skip
    return {f"/api/{path}/": items for path, items in {**lists, "dcim/devices": devices}.items()}
