# SPDX-License-Identifier: GPL-3.0-or-later
"""Models on the Hugging Face hub and on ModelScope: read the commit, the files and their hashes, to pin them."""

from __future__ import annotations

import hashlib
from typing import Protocol

from ..common.foreign_text import quote_foreign
from ..common.kinds import show_value
from ..weights import hubs as _hubs
from ..weights.hubs import Listed
from ..weights.manifest import WeightsError
from .completeness import CompletenessCheck, content_problem
from .contents import blob_id
from .web import Response, RetryingClient

# A page has up to 1000 files.
MAX_PAGES = 100


class Source(Protocol):
    """A model somewhere. ``revision`` is its commit, empty where it has none; ``files`` are all of its files.

    ``parallel`` is the number of concurrent calls of complete(). All methods raise WeightsError.
    """

    revision: str
    files: list[Listed]
    parallel: int

    def complete(self, file: Listed) -> Listed:
        """Return a file with its size and its sha256, which are computed unless the source states them."""

    def read(self, file: Listed) -> bytes:
        """Return the content of a small file."""


class Hub:
    """A revision of a model on a hub; ``token`` may be empty."""

    parallel = 8

    def __init__(self, web: RetryingClient, endpoint: str, model: str, revision: str, token: bool) -> None:
        self._web, self._endpoint, self._model, self._token = web, endpoint, model, token
        self._asked = revision
        reply = self._get(_hubs.hub_revision(endpoint, model, revision))
        self.revision = _hubs.hub_commit(reply.json(), f"{model} on {endpoint}")
        self._check_name(reply)
        self.files = self._list()

    def complete(self, file: Listed) -> Listed:
        """Return a file with its sha256: large files have it in the listing, small ones are fetched and checked."""
        if file.sha256:
            return file
        return Listed(file.name, file.size, hashlib.sha256(self.read(file)).hexdigest(), file.blob)

    def read(self, file: Listed) -> bytes:
        """Return the content of a small file, checked against the listing. Raises WeightsError."""
        content = self._get(_hubs.hub_file(self._endpoint, self._model, self.revision, file.name)).body
        right = blob_id(content) == file.blob if file.blob else _is_right(content, file)
        if len(content) != file.size or not right:
            raise WeightsError(
                f"{self._model}: {file.name} does not match the hub's listing "
                f"({len(content)} bytes, {file.size} expected); try again, and check the proxies on the way"
            )
        _check_content(self._model, file, content_problem(file.name, content))
        return content

    def _list(self) -> list[Listed]:
        files: list[Listed] = []
        url = _hubs.hub_tree(self._endpoint, self._model, self.revision)
        for _page in range(MAX_PAGES):
            if not url:
                return files
            reply = self._get(url)
            files += _hubs.hub_files(reply.json(), f"{self._model} on {self._endpoint}")
            url = _hubs.next_page(reply.headers.get("Link") or "")
        raise WeightsError(
            f"{self._model} on {self._endpoint}: found more than {MAX_PAGES} pages of files in its listing"
        )

    def _check_name(self, reply: Response) -> None:
        """Refuse an old or differently spelt name: a hub redirects it, but on hosts it would be another directory."""
        name = reply.json().get("id")
        if isinstance(name, str) and name != self._model:
            raise WeightsError(
                f"model: found {show_value(self._model)}, which the hub calls {quote_foreign(show_value(name))}; use "
                "that name"
            )

    def _get(self, url: str) -> Response:
        reply = self._web.get(url)
        if reply.status != 200:
            code = reply.headers.get("X-Error-Code") or ""
            raise WeightsError(_hubs.hub_refusal(self._model, self._asked, reply.status, code, self._token))
        return reply


class ModelScope:
    """A revision of a model on ModelScope."""

    parallel = 8

    def __init__(self, web: RetryingClient, endpoint: str, model: str, revision: str, token: bool) -> None:
        self._web, self._endpoint, self._model, self._token = web, endpoint, model, token
        self._asked, where = revision, f"{model} on {endpoint}"
        known = _hubs.modelscope_data(self._get(_hubs.modelscope_revisions(endpoint, model)).json(), where)
        self.revision = _hubs.modelscope_commit(known, model, revision)
        listing = self._web.get(_hubs.modelscope_tree(endpoint, model, revision))
        if listing.status == 404:
            # The model exists, otherwise its revisions would have been refused.
            raise WeightsError(f"{model}: ModelScope has no revision {revision!r}; give a branch, a tag or a commit")
        data = _hubs.modelscope_data(self._checked(listing).json(), where)
        self.files = _hubs.modelscope_files(data, where)

    def complete(self, file: Listed) -> Listed:
        """Return a file with its sha256, which the listing has of nearly all."""
        if file.sha256:
            return file
        check = CompletenessCheck(file.name)
        url = _hubs.modelscope_file(self._endpoint, self._model, self._asked, file.name)
        size, sha256 = self._web.hash(url, check.feed)
        if size != file.size:
            raise WeightsError(f"{self._model}: {file.name} has {size} bytes, ModelScope lists {file.size}; try again")
        _check_content(self._model, file, check.problem())
        return Listed(file.name, size, sha256)

    def read(self, file: Listed) -> bytes:
        """Return the content of a small file, checked against the listing. Raises WeightsError."""
        content = self._get(_hubs.modelscope_file(self._endpoint, self._model, self._asked, file.name)).body
        if not _is_right(content, file):
            raise WeightsError(
                f"{self._model}: {file.name} does not match ModelScope's listing; try "
                "again, and check the proxies on the way"
            )
        _check_content(self._model, file, content_problem(file.name, content))
        return content

    def _get(self, url: str) -> Response:
        return self._checked(self._web.get(url))

    def _checked(self, reply: Response) -> Response:
        if reply.status != 200:
            raise WeightsError(_hubs.modelscope_refusal(self._model, reply.status, self._token))
        return reply


def _check_content(model: str, file: Listed, problem: str) -> None:
    """Raise WeightsError for a file that was damaged before it came to the hub."""
    if problem:
        raise WeightsError(f"{model}: {file.name} {problem}")


def _is_right(content: bytes, file: Listed) -> bool:
    return not file.sha256 or hashlib.sha256(content).hexdigest() == file.sha256
