# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the manifest of a model from its source, and write it."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..common.files_host import make_directories, publish
from ..common.kinds import show_value
from ..weights import hubs as _hubs
from ..weights.hubs import Listed
from ..weights.manifest import Manifest, WeightsError
from .completeness import check_numbers, check_unfinished
from .contents import (
    check_chosen,
    check_model,
    check_revision,
    check_shards,
    choose_files,
    derived_revision,
    index_names,
    manifest_of,
    modelscope_of,
    precision_of,
    render_manifest,
)
from .hubs import Hub, ModelScope, Source
from .model_config import excerpt_of
from .trees_host import Directory, DiskTree, MirrorTree, Tree
from .web import RetryingClient

# The environment variables that each hub's own client reads its token from, and the default branch there.
_TOKENS = {"hub": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
_BRANCHES = {"hub": "main", "modelscope": "master"}
_ENDPOINTS = {"hub": _hubs.HUB, "modelscope": _hubs.MODELSCOPE}


@dataclass(frozen=True)
class Request:
    """What to pin; only ``model``, ``source`` and ``load_format`` (auto, mistral, both) must not be empty.

    source: ``hub``, ``hub:URL``, ``modelscope``, ``modelscope:URL``, an address or a path. modelscope_model: what
    ModelScope calls the model.
    """

    model: str
    source: str = "hub"
    revision: str = ""
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    modelscope_model: str = ""
    modelscope_revision: str = ""
    modelscope_endpoint: str = _hubs.MODELSCOPE
    token_file: str = ""
    ca_file: str | None = None
    load_format: str = "auto"


@dataclass(frozen=True)
class Pinned:
    """A manifest, the number format of its weights (empty for a plain one), the names of the files that it leaves out,
    whether its revision was made from the files, and the excerpt of its config.json."""

    manifest: Manifest
    precision: str
    left_out: tuple[str, ...]
    derived: bool
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """A manifest's file: where it is, its text before (empty for none) and after."""

    path: str
    before: str
    after: str
    pinned: Pinned

    @property
    def changed(self) -> bool:
        """Whether the file is to be written."""
        return self.before != self.after

    @property
    def lost_modelscope(self) -> bool:
        """Whether the new text lacks the ModelScope name that the old one had."""
        return modelscope_of(self.before) is not None and modelscope_of(self.after) is None


def pin_model(request: Request, environment: Mapping[str, str]) -> Pinned:
    """Read a model and return its manifest. Raises WeightsError."""
    check_model(request.model)
    if request.modelscope_model:
        check_model(request.modelscope_model, "modelscope_model")
    for option, name in (("revision", request.revision), ("modelscope_revision", request.modelscope_revision)):
        if name:
            check_revision(name, option)
    source = _open_source(request, environment)
    chosen = choose_files(source.files, request.include, request.exclude, request.load_format)
    check_chosen(request.model, source.files, chosen, request.include, request.load_format)
    check_unfinished(request.model, [file.name for file in source.files], {file.name for file in chosen})
    _check_shards(request, source, chosen)
    files = _complete_files(source, chosen)
    revision = source.revision or derived_revision(files)
    names = {file.name for file in files}
    config = _config(source, chosen)
    return Pinned(
        manifest_of(request.model, revision, files, _modelscope(request, files, environment)),
        precision_of(config) if config else "",
        tuple(sorted(file.name for file in source.files if file.name not in names)),
        not source.revision,
        excerpt_of(config),
    )


def compare_manifest(pinned: Pinned, dest: str, beside: bool = False) -> Written:
    """Return the present and the new text of the manifest's file below ``dest``. Raises WeightsError, OSError.

    ``beside`` puts the revision into the file's name, so that manifests of several revisions lie beside each other.
    """
    name = pinned.manifest.repository
    path = os.path.join(dest, f"{name}@{pinned.manifest.revision}.yml" if beside else f"{name}.yml")
    before = ""
    if os.path.lexists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            before = file.read()
    after, known = render_manifest(pinned.manifest, pinned.precision, pinned.config), modelscope_of(before)
    if known and not modelscope_of(after):
        # This run did not ask ModelScope. For the same files the earlier entries still hold.
        same = render_manifest(_with_modelscope(pinned.manifest, known), pinned.precision, pinned.config)
        after = same if same == before else after
    return Written(path, before, after, pinned)


def write_manifest(written: Written) -> None:
    """Write the file, by one rename. Raises OSError."""
    make_directories(os.path.dirname(written.path))
    publish(written.path, written.after)


def _open_source(request: Request, environment: Mapping[str, str]) -> Source:
    """Return the source, with the list of its files read. Raises WeightsError."""
    kind, _colon, endpoint = request.source.partition(":")
    if kind in _ENDPOINTS and (not endpoint or "://" in endpoint):
        model = request.modelscope_model if kind == "modelscope" else ""
        return _hub(kind, endpoint, request, environment, model or request.model, request.revision)
    return Directory(_open_tree(request), request.model, request.revision)


def _hub(
    kind: str, endpoint: str, request: Request, environment: Mapping[str, str], model: str, revision: str
) -> Source:
    endpoint = (endpoint or _ENDPOINTS[kind]).rstrip("/")
    _check_address(endpoint)
    token = _token(request, kind, environment)
    headers = _hubs.hub_headers(token) if kind == "hub" else _hubs.modelscope_headers(token)
    web, revision = RetryingClient(endpoint, headers, request.ca_file), revision or _BRANCHES[kind]
    hub = Hub if kind == "hub" else ModelScope
    return hub(web, endpoint, model, revision, bool(token))


def _open_tree(request: Request) -> Tree:
    source = request.source
    if source.startswith(("http://", "https://")):
        _check_address(source)
        return MirrorTree(RetryingClient(source, {}, request.ca_file), source)
    path = source[len("file://") :] if source.startswith("file://") else os.path.expanduser(source)
    if not os.path.isabs(path):
        raise WeightsError(
            f"source: found {show_value(source)}, expected hub, modelscope, either with ':' and an address, the "
            "address of a directory (http, https, file) or an absolute path"
        )
    return DiskTree(path)


def _check_address(url: str) -> None:
    if not re.match(r"https?://[^/@?#]+(/[^@?#]*)?\Z", url):
        # The message omits it: it may hold a password, and the message is logged.
        raise WeightsError(
            "source: found an address with a user, a query or no host, expected http(s)://HOST[/PATH]; tokens come "
            "from token_file or the environment"
        )


def _token(request: Request, kind: str, environment: Mapping[str, str]) -> str:
    """Return the token, empty for none: of the file for the source, of the environment else. Raises WeightsError."""
    where, token = _TOKENS[kind], environment.get(_TOKENS[kind], "")
    if request.token_file and request.source.partition(":")[0] == kind:
        where = f"token_file {request.token_file}"
        try:
            with open(request.token_file, encoding="utf-8") as file:
                token = file.read()
        except (OSError, UnicodeDecodeError) as exc:
            raise WeightsError(
                f"{where}: cannot be read: {getattr(exc, 'strerror', None) or 'it is not text'}"
            ) from exc
        if not token.strip():
            raise WeightsError(f"{where}: the file is empty, expected a token")
    token = token.strip()
    if token and not re.match(r"[\x21-\x3a\x3c-\x7e]+\Z", token):
        raise WeightsError(f"{where}: holds a blank, a line break, a semicolon or a character outside ASCII")
    return token


def _check_shards(request: Request, source: Source, chosen: Sequence[Listed]) -> None:
    """Raise WeightsError for an incomplete model, before tens of gigabytes are read. With ``include``, users decide."""
    by_name = {file.name: file for file in chosen}
    for name in index_names(chosen):
        check_shards(request.model, name, source.read(by_name[name]), chosen)
    if not index_names(chosen) and not request.include:
        check_numbers(request.model, set(by_name))


def _config(source: Source, chosen: Sequence[Listed]) -> bytes:
    """Return the content of config.json, empty where the model has none."""
    config = next((file for file in chosen if file.name == "config.json"), None)
    return source.read(config) if config else b""


def _complete_files(source: Source, chosen: Sequence[Listed]) -> list[Listed]:
    with ThreadPoolExecutor(source.parallel) as pool:
        answers = [pool.submit(source.complete, file) for file in chosen]
        try:
            return [answer.result() for answer in answers]
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise


def _modelscope(request: Request, files: Sequence[Listed], environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name of the model on ModelScope, after a check that it has the same files there."""
    if request.source.partition(":")[0] == "modelscope":
        return request.modelscope_model or request.model, request.revision or _BRANCHES["modelscope"]
    if not request.modelscope_model:
        return None
    name, revision = request.modelscope_model, request.modelscope_revision or _BRANCHES["modelscope"]
    there = _hub("modelscope", request.modelscope_endpoint, request, environment, name, revision)
    by_name = {file.name: file for file in files}
    wrong = _hubs.differing_files(files, [there.complete(file) for file in there.files if file.name in by_name])
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise WeightsError(
            f"modelscope_model {name}: revision {revision} there has not the same {wrong[0]}{more} as {request.model}; "
            "give the revision that has (modelscope_revision), or leave modelscope_model out"
        )
    return name, revision


def _with_modelscope(manifest: Manifest, known: tuple[str, str]) -> Manifest:
    return Manifest(manifest.repository, manifest.revision, manifest.files, *known)
