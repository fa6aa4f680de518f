# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HTTP server that answers as the Hugging Face hub and as ModelScope do, for the models that a test gives it.

Large files (LFS) lead to a signed address on another port, which is the store that both hubs keep them in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = (".safetensors", ".bin", ".gguf", "tokenizer.json")


@dataclass
class Model:
    """A repository: the files (name -> bytes) of each commit, and the commit of each branch and tag.

    ``gated``: its files need a token, ``private``: all of it does. ``renamed`` is what the hub calls it by now.
    """

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    renamed: str = ""

    def commit(self, revision: str) -> str:
        """Return the commit of a revision, empty for none."""
        return self.branches.get(revision) or self.tags.get(revision) or (revision if revision in self.commits else "")


def large(name: str) -> bool:
    """Whether a file lies in the store, and its sha256 in the listing."""
    return name.endswith(LARGE)


def sha256(content: bytes) -> str:
    """Return the hash that the listing has of a large file."""
    return hashlib.sha256(content).hexdigest()


def blob(content: bytes) -> str:
    """Return git's id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubServer:
    """Both hubs and their store.

    hub, modelscope: the models of each by name. tokens: those that open gated and private models. readers: those of
    them without access to gated ones. page: entries of one page of a listing. altered: name -> other bytes than the
    listing says. commits_hidden: ModelScope tells branches without commits. log: (server, method, path with query,
    headers) of each request; server is "hub" or "store".
    """

    def __init__(self) -> None:
        self.hub: dict[str, Model] = {}
        self.modelscope: dict[str, Model] = {}
        self.tokens: set[str] = set()
        self.readers: set[str] = set()
        self.page = 1000
        self.altered: dict[str, bytes] = {}
        self.commits_hidden = False
        self.log: list[tuple[str, str, str, dict[str, str]]] = []
        self.store = _Server(self, _Store)
        self.front = _Server(self, _Front)

    @property
    def url(self) -> str:
        """The endpoint of both hubs; their paths differ."""
        return self.front.url

    def asked(self, server: str) -> list[str]:
        """Return the paths that one server was asked for."""
        return [path for where, _method, path, _headers in self.log if where == server]

    def content(self, digest: str) -> bytes | None:
        """Return a large file by its hash."""
        for models in (self.hub, self.modelscope):
            for model in models.values():
                for files in model.commits.values():
                    for name, content in files.items():
                        if sha256(content) == digest:
                            return self.altered.get(name, content)
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hubs: HubServer, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.hubs = hubs

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_args: object) -> None:
        """A client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    kind = ""

    def do_GET(self) -> None:
        self.handle_one(body=True)

    def do_HEAD(self) -> None:
        self.handle_one(body=False)

    def handle_one(self, body: bool) -> None:
        self.server.hubs.log.append((self.kind, self.command, self.path, dict(self.headers.items())))
        self.body = body
        url = urllib.parse.urlsplit(self.path)
        self.route(
            urllib.parse.unquote(url.path), {key: value[0] for key, value in urllib.parse.parse_qs(url.query).items()}
        )

    def route(self, path: str, query: dict[str, str]) -> None:
        raise NotImplementedError

    def send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.body:
            self.wfile.write(content)

    def send_json(self, status: int, values: object, **headers: str) -> None:
        self.send(status, json.dumps(values).encode(), Content_Type="application/json", **headers)

    def send_file(self, content: bytes, etag: str, **headers: str) -> None:
        """Send a file, or the part of it that Range asks for."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        headers = {"ETag": f'"{etag}"', "Accept_Ranges": "bytes", **headers}
        if not found:
            self.send(200, content, **headers)
            return
        first, last = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
        if first >= len(content):
            self.send(416, b"", Content_Range=f"bytes */{len(content)}")
            return
        self.send(206, content[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(content)}", **headers)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


class _Store(_Handler):
    """Large files by their hash; the signature is the permission."""

    kind = "store"

    def route(self, path: str, query: dict[str, str]) -> None:
        content = self.server.hubs.content(path.strip("/"))
        if content is None or query.get("X-Signature") != "valid":
            self.send(403, b"no permission")
        else:
            self.send_file(content, path.strip("/"))


class _Front(_Handler):
    kind = "hub"

    def route(self, path: str, query: dict[str, str]) -> None:
        modelscope = re.fullmatch(r"/api/v1/models/([^/]+/[^/]+)/(revisions|repo/files|repo)", path)
        if modelscope:
            self.answer_modelscope(modelscope[1], modelscope[2], query)
            return
        # Asked as it was sent: a branch may have a slash, as %2F.
        raw = urllib.parse.urlsplit(self.path).path
        modelscope = re.fullmatch(r"/models/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", raw)
        if modelscope:
            name, revision, file = (urllib.parse.unquote(part) for part in modelscope.groups())
            self.answer_modelscope(name, "repo", {"Revision": revision, "FilePath": file})
            return
        for pattern, answer in (
            (r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", self.answer_revision),
            (r"/api/models/([^/]+/[^/]+)()", self.answer_revision),
            (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self.answer_tree),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.answer_file),
        ):
            found = re.fullmatch(pattern, raw)
            if found:
                name, revision, *rest = (urllib.parse.unquote(part) for part in found.groups())
                parts = [name, revision or "main", *rest]
                self.refuse_or(parts, query, answer)
                return
        self.send(404, b"Not Found")

    # ---- the hub

    def refuse_or(self, parts: list[str], query: dict[str, str], answer: object) -> None:
        name, revision, *_rest = parts
        model, token = self.server.hubs.hub.get(name), self.headers.get("Authorization", "").removeprefix("Bearer ")
        known = token in self.server.hubs.tokens
        if token and not known:
            self.send(401, b"", X_Error_Message="Invalid credentials in Authorization header")
        elif model is None or (model.private and not known):
            # The hub does not tell strangers which models there are.
            self.send(404 if known else 401, b"", X_Error_Code="RepoNotFound")
        elif not model.commit(revision):
            self.send(404, b"", X_Error_Code="RevisionNotFound")
        elif model.gated and answer == self.answer_file and (not known or token in self.server.hubs.readers):
            self.send(403 if known else 401, b"", X_Error_Code="GatedRepo")
        else:
            answer(model, *parts, query=query)  # type: ignore[operator]

    def answer_revision(self, model: Model, name: str, revision: str, query: dict[str, str]) -> None:
        commit = model.commit(revision)
        siblings = [{"rfilename": file} for file in model.commits[commit]]
        self.send_json(200, {"id": model.renamed or name, "sha": commit, "gated": model.gated, "siblings": siblings})

    def answer_tree(self, model: Model, name: str, revision: str, query: dict[str, str]) -> None:
        files = model.commits[model.commit(revision)]
        folders = {file.rpartition("/")[0] for file in files} - {""}
        entries: list[dict[str, object]] = [
            {"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in folders
        ]
        for file, content in files.items():
            entry = {"type": "file", "oid": blob(content), "size": len(content), "path": file}
            if large(file):
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        start = int(query.get("cursor", 0))
        end = start + self.server.hubs.page
        more = {}
        if end < len(entries):
            address = f"{self.server.url}/api/models/{name}/tree/{revision}?recursive=True&expand=False&cursor={end}"
            more = {"Link": f'<{address}>; rel="next"'}
        self.send_json(200, sorted(entries, key=lambda entry: str(entry["path"]))[start:end], **more)

    def answer_file(self, model: Model, name: str, revision: str, file: str, query: dict[str, str]) -> None:
        commit = model.commit(revision)
        content = model.commits[commit].get(file)
        if content is None:
            self.send(404, b"", X_Error_Code="EntryNotFound")
        elif large(file):
            digest = sha256(content)
            self.send(
                302,
                b"",
                Location=f"{self.server.hubs.store.url}/{digest}?X-Signature=valid&Expires=3600",
                X_Repo_Commit=commit,
                X_Linked_Size=str(len(content)),
                X_Linked_Etag=f'"{digest}"',
            )
        else:
            self.send_file(self.server.hubs.altered.get(file, content), blob(content), X_Repo_Commit=commit)

    # ---- ModelScope

    def answer_modelscope(self, name: str, what: str, query: dict[str, str]) -> None:
        hubs, model = self.server.hubs, self.server.hubs.modelscope.get(name)
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        token = self.headers.get("Cookie", "").removeprefix("m_session_id=")
        if model is None or (model.private and (token not in hubs.tokens or bearer != token)):
            self.send_json(404, {"Code": 10010205001, "Success": False, "Message": "record not found"})
        elif what == "revisions":
            known = {"Branches": model.branches, "Tags": model.tags}
            self.send_data(
                {"RevisionMap": {key: [self.named(*one) for one in value.items()] for key, value in known.items()}}
            )
        elif not model.commit(query.get("Revision", "master")):
            self.send_json(404, {"Code": 10010205002, "Success": False, "Message": "namespace or revision not found"})
        elif what == "repo/files":
            self.answer_modelscope_files(model.commits[model.commit(query["Revision"])], query)
        else:
            self.answer_modelscope_file(model.commits[model.commit(query["Revision"])], query["FilePath"])

    def named(self, name: str, commit: str) -> dict[str, str]:
        return {"Revision": name, **({} if self.server.hubs.commits_hidden else {"CommitId": commit})}

    def answer_modelscope_files(self, files: dict[str, bytes], query: dict[str, str]) -> None:
        entries: list[dict[str, object]] = [
            {"Path": file, "Name": file.rpartition("/")[2], "Type": "blob", "Size": len(content), "IsLFS": large(file)}
            | {"Sha256": sha256(content), "Revision": "0" * 40}
            for file, content in files.items()
        ]
        folders = {file.rpartition("/")[0] for file in files} - {""}
        entries += [{"Path": folder, "Name": folder, "Type": "tree", "Size": 0, "Sha256": ""} for folder in folders]
        if query.get("Recursive") != "True":
            entries = [entry for entry in entries if "/" not in str(entry["Path"])]
        self.send_data({"Files": entries})

    def answer_modelscope_file(self, files: dict[str, bytes], file: str) -> None:
        content = files.get(file)
        if content is None:
            self.send_json(404, {"Code": 10990101007, "Success": False, "Message": "file not found"})
        elif large(file):
            self.send(302, b"", Location=f"{self.server.hubs.store.url}/{sha256(content)}?X-Signature=valid")
        else:
            self.send_file(self.server.hubs.altered.get(file, content), blob(content))

    def send_data(self, data: object) -> None:
        self.send_json(200, {"Code": 200, "Success": True, "Message": "success", "Data": data})


@contextlib.contextmanager
def hubs_running() -> Iterator[HubServer]:
    """Run both servers for the length of a with block."""
    hubs = HubServer()
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        for server in (hubs.front, hubs.store)
    ]
    for thread in threads:
        thread.start()
    try:
        yield hubs
    finally:
        for server, thread in zip((hubs.front, hubs.store), threads):
            server.shutdown()
            thread.join()
            server.server_close()
