# SPDX-License-Identifier: GPL-3.0-or-later
"""Models in directories, on a disk or on a web server that lists them: read every byte, to pin them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import urllib.parse
from typing import Callable, NamedTuple, Protocol

from ..common.files_host import open_now
from ..common.foreign_html import read_links
from ..common.foreign_text import quote_foreign
from ..common.kinds import show_value
from ..transfer.connections import redact_url
from ..weights.hubs import MAX_NAME, Listed, is_commit, is_sha256
from ..weights.manifest import WeightsError
from .completeness import CompletenessCheck, content_problem
from .contents import blob_id
from .web import CHUNK, MAX_RESPONSE_BYTES, RetryingClient

# More files than this are not a model, but probably the root of a server.
MAX_ENTRIES = 20_000
MAX_DEPTH = 8
MAX_DIRECTORIES = 2000
# What the hub's client notes beside a file has three short lines.
_MOST_NOTED = 4096


class Entries(NamedTuple):
    """The names of the files and of the directories in a directory."""

    files: list[str]
    directories: list[str]


class Tree(Protocol):
    """Directories with files in them, by paths below their root ("" for the root itself); all raise WeightsError."""

    label: str
    parallel: int

    def entries(self, path: str) -> Entries:
        """Return what is in a directory."""

    def hash(self, path: str, feed: Callable[[memoryview], None]) -> tuple[int, str]:
        """Return bytes and sha256 of a file, and pass its bytes to ``feed``."""

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""

    def promised(self, path: str) -> tuple[str, str]:
        """Return the commit that a file comes from and the name of its content, as the hub's client noted them."""


class DiskTree:
    """A directory of this machine."""

    # As many as keep a disk busy; hashing takes a core for each.
    parallel = 4

    def __init__(self, root: str) -> None:
        self.label, self._root = root, root

    def entries(self, path: str) -> Entries:
        """Return the entries of a directory; links are followed, unless they lead to a directory above."""
        try:
            with os.scandir(os.path.join(self._root, path)) as found:
                there = [entry for entry in found if entry.is_file() or (entry.is_dir() and not _leads_up(entry))]
                entries = sorted((entry.name, entry.is_dir()) for entry in there)
        except OSError as exc:
            raise WeightsError(
                f"{os.path.join(self._root, path).rstrip('/')}: {exc.strerror}; expected a directory"
            ) from exc
        return Entries([name for name, is_dir in entries if not is_dir], [name for name, is_dir in entries if is_dir])

    def hash(self, path: str, feed: Callable[[memoryview], None]) -> tuple[int, str]:
        """Return bytes and sha256 of a file, and pass its bytes to ``feed``."""
        digest, length, buffer = hashlib.sha256(), 0, bytearray(CHUNK)
        view = memoryview(buffer)
        try:
            self._check_link(path)
            with open(os.path.join(self._root, path), "rb", buffering=0) as file:
                for got in iter(lambda: file.readinto(buffer), 0):
                    digest.update(view[:got])
                    feed(view[:got])
                    length += got or 0
        except OSError as exc:
            raise WeightsError(f"{os.path.join(self._root, path)}: cannot be read: {exc.strerror}") from exc
        return length, digest.hexdigest()

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        whole = os.path.join(self._root, path)
        try:
            self._check_link(path)
            with open(whole, "rb") as file:
                content = file.read(MAX_RESPONSE_BYTES + 1)
        except OSError as exc:
            raise WeightsError(f"{whole}: cannot be read: {exc.strerror}") from exc
        if len(content) > MAX_RESPONSE_BYTES:
            raise WeightsError(f"{whole}: found more than {MAX_RESPONSE_BYTES} bytes, expected a small file")
        return content

    def _check_link(self, path: str) -> None:
        """Raise WeightsError for a link out of the tree to what others cannot read: as weights they could.

        A disk may come from anybody. The hub's client links to its blobs beside the tree, people to files of their own.
        """
        whole, root = os.path.join(self._root, path), os.path.realpath(self._root)
        real = os.path.realpath(whole)
        is_own = real.startswith(f"{root}/") or os.path.basename(os.path.dirname(real)) == "blobs"
        if not is_own and not os.stat(real).st_mode & stat.S_IROTH:
            raise WeightsError(
                f"{whole}: found a link to {quote_foreign(real)}, which only its owner can read; expected weights"
            )

    def promised(self, path: str) -> tuple[str, str]:
        """Return commit and content's name from the cache's blob or the note beside a local directory's files."""
        target = os.path.realpath(os.path.join(self._root, path))
        folder, name = os.path.split(target)
        if os.path.basename(folder) == "blobs" and (is_commit(name) or is_sha256(name)):
            return "", name
        parts = path.split("/")
        # The root may lie some directories above the model.
        for above in range(len(parts) - 1, -1, -1):
            base, rest = "/".join(parts[:above]), "/".join(parts[above:])
            note = os.path.join(self._root, base, ".cache/huggingface/download", rest + ".metadata")
            if os.path.isfile(note):
                with open(note, encoding="utf-8", errors="replace", opener=open_now) as file:
                    commit, name = [*file.read(_MOST_NOTED).split("\n"), "", ""][:2]
                return (commit, name) if is_commit(commit) else ("", "")
        return "", ""


def _leads_up(entry: os.DirEntry[str]) -> bool:
    """Whether a directory is a link to one that it lies in."""
    if not entry.is_symlink():
        return False
    target = os.path.realpath(entry.path)
    return os.path.commonpath([target, os.path.realpath(os.path.dirname(entry.path))]) == target


class MirrorTree:
    """A directory of a web server: nginx with autoindex (HTML or JSON), Apache's, ``python3 -m http.server``."""

    parallel = 4

    def __init__(self, web: RetryingClient, url: str) -> None:
        self.label = redact_url(url)
        self._web, self._root = web, url.rstrip("/") + "/"

    def entries(self, path: str) -> Entries:
        """Return what the server lists in a directory."""
        url = self._address(path) + ("/" if path else "")
        reply = self._web.get(url)
        if reply.status != 200:
            raise WeightsError(
                f"{redact_url(url)}: HTTP {reply.status}, expected a listing of the directory; check the address, and "
                "that the server lists directories (nginx: autoindex on)"
            )
        names = listed_names(reply.body, reply.headers.get("Content-Type") or "", reply.url)
        if any(len(name) > MAX_NAME for name in names):
            raise WeightsError(f"{redact_url(url)}: found a name of more than {MAX_NAME} characters in the listing")
        return Entries(
            sorted(name for name in names if not name.endswith("/")),
            sorted(name[:-1] for name in names if name.endswith("/")),
        )

    def hash(self, path: str, feed: Callable[[memoryview], None]) -> tuple[int, str]:
        """Return bytes and sha256 of a file, and pass its bytes to ``feed``."""
        return self._web.hash(self._address(path), feed)

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        reply = self._web.get(self._address(path))
        if reply.status != 200:
            raise WeightsError(f"{redact_url(self._address(path))}: HTTP {reply.status}")
        return reply.body

    def promised(self, path: str) -> tuple[str, str]:  # noqa: ARG002 (a server keeps no notes)
        """Return nothing."""
        return "", ""

    def _address(self, path: str) -> str:
        return self._root + urllib.parse.quote(path)


def listed_names(body: bytes, content_type: str, url: str) -> set[str]:
    """Return the names in a server's listing of the directory ``url``, directories with a slash at the end."""
    text = body.decode("utf-8", "replace")
    if "json" in content_type:
        try:
            return {str(entry["name"]) + ("/" if entry["type"] == "directory" else "") for entry in json.loads(text)}
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise WeightsError(f"{redact_url(url)}: found other JSON than nginx's listing of a directory") from exc
    base = urllib.parse.urlsplit(url)
    names = set()
    for href in read_links(text):
        try:
            target = urllib.parse.urlsplit(urllib.parse.urljoin(url, href))
        except ValueError:
            # Not an address; a listing leads to its files by their names.
            continue
        if target.query or target[:2] != base[:2] or not target.path.startswith(base.path):
            continue
        name = target.path[len(base.path) :]
        if name and "/" not in name[:-1] and name != "/":
            names.add(urllib.parse.unquote(name))
    return names


class Directory:
    """A model in a tree, at its root or where caches and mirrors put it: <organisation>/<name>/<revision>."""

    def __init__(self, tree: Tree, model: str, revision: str) -> None:
        self._tree, self._model = tree, model
        self.parallel = tree.parallel
        self._base = _locate(tree, model, revision)
        self._directories = 0
        self.files = [Listed(name) for name in self._walk("", 0)]
        if not self.files:
            raise WeightsError(f"{tree.label}: the directory is empty; expected the files of {model}")
        self._commits = {self._tree.promised(self._base + file.name)[0] for file in self.files if _is_weight(file)}
        self.revision = self._revision(revision)

    def complete(self, file: Listed) -> Listed:
        """Return a file with its bytes and sha256, which are what the hub's client noted of it.

        Raises WeightsError for what a broken download left.
        """
        path, check = self._base + file.name, CompletenessCheck(file.name)
        size, sha256 = self._tree.hash(path, check.feed)
        if check.problem():
            raise WeightsError(f"{self._tree.label}: {path} {check.problem()}")
        promised = self._tree.promised(path)[1]
        if is_sha256(promised):
            right = promised == sha256
        else:
            right = not is_commit(promised) or blob_id(self._tree.read(path)) == promised
        if not right:
            raise WeightsError(
                f"{self._tree.label}: {path} is not what the hub's client downloaded ({promised}): it is damaged "
                "or was edited; download it again"
            )
        return Listed(file.name, size, sha256)

    def read(self, file: Listed) -> bytes:
        """Return the content of a small file. Raises WeightsError for what a broken download left."""
        content = self._tree.read(self._base + file.name)
        problem = content_problem(file.name, content)
        if problem:
            raise WeightsError(f"{self._tree.label}: {self._base}{file.name} {problem}")
        return content

    def _revision(self, asked: str) -> str:
        """Return the commit: that of the directory's name, else the one of the client's notes, else the asked one."""
        name = self._base.rstrip("/").rpartition("/")[2] or self._tree.label.rstrip("/").rpartition("/")[2]
        notes = self._commits.pop() if len(self._commits) == 1 else ""
        commit = name if is_commit(name) else notes
        if is_commit(asked) and commit not in ("", asked):
            raise WeightsError(f"revision: found {asked}, but {self._tree.label} holds revision {commit}")
        led_by_branch = is_commit(self._base.rstrip("/").rpartition("/")[2])
        if asked and not is_commit(asked) and not led_by_branch:
            raise WeightsError(
                f"revision: found {show_value(asked)}, but a directory has no branches and tags; give a commit, or "
                "leave it out to get a revision that is made from the files"
            )
        return commit or asked

    def _walk(self, path: str, depth: int) -> list[str]:
        self._directories += 1
        if self._directories > MAX_DIRECTORIES:
            raise WeightsError(f"{self._tree.label}: found more than {MAX_DIRECTORIES} directories, expected one model")
        found = self._tree.entries((self._base + path).rstrip("/"))
        names = [path + name for name in found.files]
        for name in found.directories:
            if not name.startswith(".") and depth < MAX_DEPTH:
                names += self._walk(f"{path}{name}/", depth + 1)
            if len(names) > MAX_ENTRIES:
                raise WeightsError(f"{self._tree.label}: found more than {MAX_ENTRIES} files, expected one model")
        return names


def _is_weight(file: Listed) -> bool:
    return file.name.endswith(".safetensors")


def _locate(tree: Tree, model: str, revision: str) -> str:
    """Return where below the root the model's files are: empty, or a path that ends in a slash."""
    organisation, name = model.split("/")
    steps = (organisation, name, f"models--{organisation}--{name}", "snapshots")
    base = ""
    for _depth in range(5):
        found = tree.entries(base.rstrip("/"))
        if any(file == "config.json" or file.endswith(".safetensors") for file in found.files):
            return base
        commits = [directory for directory in found.directories if is_commit(directory)]
        step = next((step for step in steps if step in found.directories), "")
        if commits:
            step = _commit(tree, base, commits, revision)
        elif not step:
            return base
        base += f"{step}/"
    return base


def _commit(tree: Tree, base: str, commits: list[str], revision: str) -> str:
    """Return the directory of a revision among several."""
    if revision in commits:
        return revision
    wanted = ""
    if base.endswith("snapshots/") and not is_commit(revision):
        references = base[: -len("snapshots/")] + "refs"
        if "refs" in tree.entries(references.rpartition("/")[0]).directories:
            names = tree.entries(references).files
            wanted = revision or ("main" if "main" in names else "")
            wanted = tree.read(f"{references}/{wanted}").decode("utf-8", "replace").strip() if wanted in names else ""
    if wanted in commits:
        return wanted
    if len(commits) == 1 and not revision:
        return commits[0]
    found = ", ".join(sorted(commits)[:20])
    raise WeightsError(
        f"{tree.label}: found the revisions {found} and not {revision or 'one alone'}; give one of them as revision"
    )
