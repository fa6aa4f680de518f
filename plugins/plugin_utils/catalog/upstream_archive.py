# SPDX-License-Identifier: GPL-3.0-or-later
"""Get the recipes of a vLLM release from its source distribution, and write them into a site's directory."""

import re
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Mapping, Sequence

from ...module_utils.common.files_host import publish
from ...module_utils.transfer.connections import FetchError, redact_url
from ...module_utils.transfer.fetch import Settings, fetch_file, is_url, join_location, read_small_file
from ...module_utils.wheels.index import parse_links
from .upstream_recipes import LICENCE, MODELS, RECORD, Directory, Pins, UpstreamError, record_of, sha256_of

INDEX = "https://pypi.org/simple"
_PAGE_BYTES = 8 * 1024 * 1024
_FILE_BYTES = 1024 * 1024
_RECIPE = re.compile(rf"{MODELS}[\w.-]+/[\w.-]+\.yaml", re.ASCII)


def read_archive(archive: Path, version: str) -> dict[str, bytes]:
    """Return the recipes and the licence of a source distribution by their paths in it. Raises UpstreamError."""
    found = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name[len(f"vllm-{version}/") :]
                wanted = member.isfile() and member.size <= _FILE_BYTES
                if wanted and (name == LICENCE or _RECIPE.fullmatch(name)):
                    stream = tar.extractfile(member)
                    found[name] = stream.read() if stream else b""
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as exc:
        raise UpstreamError(f"{archive}: not a source distribution: {exc}") from exc
    return found


def fetch_recipes(pins: Pins, source: str, ca_file: str | None) -> dict[str, bytes]:
    """Return path in a site's directory -> content of all files, each verified. Raises UpstreamError.

    ``source`` is the address of an index of Python packages (``index`` or ``index:URL``), an address or a path of the
    archive, or a directory with the archive's files.
    """
    with tempfile.TemporaryDirectory(prefix="recipes-") as scratch:
        if not is_url(source) and Path(source).is_dir():
            contents = {path: _read_below(Path(source), path) for path in pins.files}
        else:
            archive = Path(scratch) / pins.archive.name
            try:
                settings = Settings(ca_file=ca_file)
                fetch_file(
                    _location(pins, source, settings), str(archive), pins.archive.size, pins.archive.sha256, settings
                )
            except FetchError as exc:
                raise UpstreamError(f"fetch_source: {exc}") from exc
            contents = read_archive(archive, pins.vllm)
    for path, sha256 in pins.files.items():
        if path not in contents or sha256_of(contents[path]) != sha256:
            raise UpstreamError(f"{redact_url(source)}: {path} is missing or not that of vLLM {pins.vllm}")
    return {path[len(MODELS) :] if path.startswith(MODELS) else path: data for path, data in contents.items()}


def _location(pins: Pins, source: str, settings: Settings) -> str:
    kind, _colon, address = source.partition(":")
    if kind != "index":
        return source
    page = join_location(address or INDEX, "vllm", "")
    text = read_small_file(page, _PAGE_BYTES, settings).decode(errors="replace")
    link = next((link for link in parse_links(text, page) if link.filename == pins.archive.name), None)
    if link is None:
        raise UpstreamError(
            f"fetch_source: the index {redact_url(page)} has no {pins.archive.name}; set fetch_source to an "
            "address or a path of that file"
        )
    return link.url


def _read_below(directory: Path, path: str) -> bytes:
    try:
        return (directory / path).read_bytes()
    except OSError as exc:
        raise UpstreamError(f"fetch_source: {directory / path}: {exc.strerror}") from exc


def write_recipes(
    target: Path, pins: Pins, directory: Directory, contents: Mapping[str, bytes], wanted: Mapping[str, str]
) -> None:
    """Write the missing files, each by one rename, and the record last. Raises UpstreamError."""
    paths: Sequence[str] = directory.missing(wanted)
    try:
        for path in paths:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            publish(str(target / path), contents[path], durable=False)
        publish(str(target / RECORD), record_of(pins, directory, paths, wanted))
    except OSError as exc:
        raise UpstreamError(f"fetch_dest: {exc.filename or target}: {exc.strerror}") from exc
