# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of weights as users write them, and the address of each file there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..common.kinds import show_value
from ..common.spelling import nearest
from ..transfer.connections import FetchError
from ..transfer.fetch import check_base, is_url, join_location
from .hubs import HUB, MODELSCOPE, hub_file, hub_headers, modelscope_file, modelscope_headers
from .manifest import Manifest, ManifestFile, WeightsError

# The environment variable of the controller that holds the token of each kind, where the entry names none.
TOKEN_VARIABLES = {"hub": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}
EXPECTED = (
    "an absolute path, file://, http://, https://, hub, hub:URL, modelscope, modelscope:URL, s3://BUCKET/PREFIX or "
    "controller:/PATH"
)
# What a host says that was given none.
NO_SOURCES = "weights_sources is empty"
_TOKEN_KEYS = ("token_file", "token_env")
_KEYS = {
    "tree": _TOKEN_KEYS,
    "hub": _TOKEN_KEYS,
    "modelscope": _TOKEN_KEYS,
    "s3": ("endpoint", "region", "credentials_file", "profile"),
    "controller": (),
}
_ENDPOINTS = {"hub": HUB, "modelscope": MODELSCOPE}


@dataclass(frozen=True)
class Source:
    """One entry of weights_sources.

    ``kind`` is tree (a directory or web server with the layout of a mirror), hub, modelscope, s3 or controller;
    ``base`` the address or path that its files are found by; ``options`` the other keys of the entry.
    """

    text: str
    kind: str
    base: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """What a host gets from the controller for a source: a token, or the signed address of each file by its path."""

    token: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)


def parse_sources(entries: Sequence[Any]) -> tuple[Source, ...]:
    """Return the sources of the option. Raises WeightsError that names the entry."""
    return tuple(_parse(entry) for entry in entries)


def _parse(entry: Any) -> Source:
    options: dict[str, str] = {}
    text = entry
    if isinstance(entry, Mapping):
        if not isinstance(entry.get("source"), str):
            raise WeightsError(
                f"weights_sources: found {_describe_keys(entry)}, expected a text or a mapping with 'source'"
            )
        text = entry["source"]
        options = {key: value for key, value in entry.items() if key != "source"}
    if not isinstance(text, str):
        raise WeightsError(f"weights_sources: found {show_value(text)}, expected {EXPECTED}")
    kind, base = _kind(text)
    for key, value in options.items():
        if key not in _KEYS[kind]:
            known = ("source", *_KEYS[kind])
            raise WeightsError(f"weights_sources: {text}: unknown key {show_value(key)}; {nearest(str(key), known)}")
        if not isinstance(value, str) or not value:
            raise WeightsError(f"weights_sources: {text}: {key}: found {show_value(value)}, expected a text")
        if key == "endpoint" and not _check_address(value).startswith(("http://", "https://")):
            raise WeightsError(
                f"weights_sources: {text}: endpoint: found {show_value(value)}, expected http:// or https://"
            )
    return Source(text, kind, base, options)


def _describe_keys(entry: Mapping[Any, Any]) -> str:
    """Return the keys of an entry, without values, which may be secret."""
    return f"a mapping with {', '.join(sorted(map(str, entry))) or 'nothing'}"


def _kind(text: str) -> tuple[str, str]:
    word, _colon, rest = text.partition(":")
    if word in _ENDPOINTS and (text == word or rest):
        return word, _check_address(rest).rstrip("/") if rest else _ENDPOINTS[word]
    if word == "controller":
        if not rest.startswith("/"):
            raise WeightsError(
                f"weights_sources: {text}: found {show_value(rest)}, expected an absolute path on the controller"
            )
        return word, rest
    if text.startswith("s3://"):
        if not re.match(r"s3://[\w.-]+(/[^?#]*)?\Z", text, re.ASCII):
            raise WeightsError(f"weights_sources: {text}: found no bucket, expected s3://BUCKET/PREFIX")
        return "s3", text
    if not is_url(text) and not text.startswith("/"):
        guess = nearest(text, ("hub", "modelscope")) if ":" not in text and "/" not in text else ""
        raise WeightsError(
            f"weights_sources: found {show_value(text)}, expected {EXPECTED}{'; ' if guess else ''}{guess}"
        )
    return "tree", _check_address(text)


def _check_address(location: str) -> str:
    try:
        check_base(location)
    except FetchError as exc:
        raise WeightsError(f"weights_sources: {exc}") from exc
    return location


def file_address(source: Source, manifest: Manifest, file: ManifestFile, access: Access) -> str:
    """Return the address of a manifest's file at a source."""
    if source.kind == "hub":
        return hub_file(source.base, manifest.repository, manifest.revision, file.name)
    if source.kind == "modelscope":
        revision = manifest.modelscope_revision
        return modelscope_file(source.base, manifest.modelscope_repository, revision, file.name)
    if source.kind == "s3":
        return access.addresses[f"{manifest.path}/{file.name}"]
    return join_location(source.base, *manifest.path.split("/"), *file.name.split("/"))


def request_headers(source: Source, access: Access) -> dict[str, str]:
    """Return the headers of each request to a source."""
    return modelscope_headers(access.token) if source.kind == "modelscope" else hub_headers(access.token)
