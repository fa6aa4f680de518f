# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for AWX's API: objects of any kind by name, credentials of templates, surveys checked as AWX checks them.

It accepts every field, so it shows that the modules of awx.awx accept the data and that a second run changes nothing.
It does not show that AWX has these fields.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

API = "/api/v2/"
TOKEN = "awx-token"
QUESTION_TYPES = {"text": str, "textarea": str, "password": str, "multiplechoice": str, "integer": int, "float": float}


def survey_problem(spec: dict[str, Any]) -> str:
    """Return why AWX would refuse a survey, or nothing."""
    if not all(
        isinstance(spec.get(field), kind) for field, kind in (("name", str), ("description", str), ("spec", list))
    ):
        return "name, description and spec are required"
    seen: set[str] = set()
    for number, question in enumerate(spec["spec"]):
        where = f"survey question {number}"
        for field, kind in (("type", str), ("question_name", str), ("variable", str), ("required", bool)):
            if not isinstance(question.get(field), kind):
                return f"{field!r} missing from {where}"
        if question["variable"] in seen:
            return f"'variable' {question['variable']!r} duplicated in {where}"
        seen.add(question["variable"])
        kind = QUESTION_TYPES.get(question["type"])
        if kind is None:
            return f"{question['type']!r} in {where} is not an allowed question type"
        default = question.get("default", "")
        if default != "" and not isinstance(default, kind):
            return f"Default value {default!r} in {where} expected to be {question['type']}"
        if question["type"] == "multiplechoice" and default not in ("", *question.get("choices", [])):
            return "Default choice must be answered from the choices listed."
        if any(not isinstance(question.get(limit, 0), int) for limit in ("min", "max")):
            return f"The limits in {where} expected to be integer"
    return ""


class AWX:
    """The server; ``objects`` holds all kinds by name of the kind, then by number."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[int, dict[str, Any]]] = {}
        self.links: dict[tuple[str, int, str], list[int]] = {}
        self.surveys: dict[int, dict[str, Any]] = {}
        self.writes: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> AWX:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        rows = self.objects.setdefault(kind, {})
        number = len(rows) + 1
        url = f"{API}{kind}/{number}/"
        rows[number] = {
            "id": number,
            "url": url,
            "type": kind.rstrip("s"),
            "status": "successful",
            "scm_revision": "",
            **fields,
        }
        rows[number].update(related={"survey_spec": f"{url}survey_spec/", "update": f"{url}update/"}, summary_fields={})
        return rows[number]

    def named(self, kind: str) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.objects.get(kind, {}).values()}

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if method != "GET":
            self.writes.append(f"{method} {path}")
        words = path[len(API) :].strip("/").split("/")
        kind, number = words[0], int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if not number:
            return (201, self.add(kind, **body)) if method == "POST" else (200, _page(self._found(kind, query)))
        row = self.objects[kind][number]
        if words[2:] == ["survey_spec"]:
            if method == "GET":
                return 200, self.surveys.get(number, {})
            problem = survey_problem(body)
            if not problem:
                self.surveys[number] = body
            return (400, {"error": problem}) if problem else (200, {})
        if len(words) > 2:
            linked = self.links.setdefault((kind, number, words[2]), [])
            if method == "POST":
                linked.append(body["id"])
                return 204, None
            return 200, _page([self.objects[words[2]][one] for one in linked])
        row.update(body)
        return 200, row

    def _found(self, kind: str, query: dict[str, str]) -> list[dict[str, Any]]:
        asked = {name: value for name, value in query.items() if name not in ("page_size", "page", "order_by")}
        rows = self.objects.get(kind, {}).values()
        return [row for row in rows if all(str(row.get(name)) == value for name, value in asked.items())]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        awx = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                address = urlsplit(self.path)
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, found = 401, {"detail": "Authentication credentials were not provided."}
                else:
                    status, found = awx.answer(self.command, address.path, dict(parse_qsl(address.query)), body)
                content = b"" if found is None else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = _serve  # noqa: N815

            def log_message(self, *_words: object) -> None:
                pass

        return Handler


def _page(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"count": len(rows), "next": None, "results": rows}
