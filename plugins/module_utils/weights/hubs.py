# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses on the Hugging Face hub and on ModelScope, and what their answers mean."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from ..common.foreign_text import quote_foreign
from ..common.kinds import name_kind, show_value
from .manifest import WeightsError

HUB = "https://huggingface.co"
MODELSCOPE = "https://www.modelscope.cn"
# ModelScope cuts each listing here and does not report that.
MODELSCOPE_MOST_FILES = 3000
# The characters of a name in a listing.
MAX_NAME = 1000

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')


@dataclass(frozen=True)
class Listed:
    """A file in a source's listing: path, bytes (-1 if unknown), sha256 and git blob id (empty if unknown)."""

    name: str
    size: int = -1
    sha256: str = ""
    blob: str = ""


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit, which cannot move, and neither a branch nor a tag."""
    return bool(_COMMIT.fullmatch(revision))


def is_sha256(text: str) -> bool:
    """Whether ``text`` is a sha256 in hex."""
    return bool(_SHA256.fullmatch(text))


def hub_file(endpoint: str, repository: str, revision: str, name: str) -> str:
    """Return the address of a file of a revision (a commit, branch or tag) on a hub."""
    return f"{endpoint.rstrip('/')}/{repository}/resolve/{_part(revision)}/{urllib.parse.quote(name)}"


def hub_revision(endpoint: str, repository: str, revision: str) -> str:
    """Return the address that returns the commit of a revision."""
    return f"{endpoint.rstrip('/')}/api/models/{repository}/revision/{_part(revision)}"


def hub_tree(endpoint: str, repository: str, revision: str) -> str:
    """Return the address of the first page of the files of a revision."""
    return f"{endpoint.rstrip('/')}/api/models/{repository}/tree/{_part(revision)}?recursive=True&expand=False"


def next_page(link: str) -> str:
    """Return the address that a Link header names as the next page, empty for none."""
    found = _NEXT.search(link)
    return found[1] if found else ""


def hub_commit(data: Any, where: str) -> str:
    """Return the commit in a hub's answer about a revision. Raises WeightsError for another answer."""
    commit = data.get("sha") if isinstance(data, Mapping) else None
    if not isinstance(commit, str) or not is_commit(commit):
        raise WeightsError(f"{where}: found no commit in the answer, expected that of a model hub; check the address")
    return commit


def hub_files(page: Any, where: str) -> list[Listed]:
    """Return the files of one page of a listing; large ones come with their sha256. Raises WeightsError."""
    try:
        return [_hub_file(entry) for entry in page if entry["type"] == "file"]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as exc:
        raise WeightsError(f"{where}: the listing of files cannot be read ({_quoted(exc)}); check the address") from exc


def _hub_file(entry: Mapping[str, Any]) -> Listed:
    large = entry.get("lfs")
    if large:
        return Listed(_name(entry["path"]), int(large["size"]), str(large["oid"]))
    return Listed(_name(entry["path"]), int(entry["size"]), blob=str(entry["oid"]))


def _name(found: Any) -> str:
    """Return the name of a file. Raises ValueError for an impossible name, which no message should show."""
    name = str(found)
    if len(name) > MAX_NAME:
        raise ValueError(f"a name of {len(name)} characters")
    return name


def hub_refusal(model: str, revision: str, status: int, code: str, token: bool) -> str:
    """Return the meaning of a hub's refusal; ``code`` is its X-Error-Code, ``token`` whether one was sent."""
    if code == "RevisionNotFound":
        return f"{model}: the hub has no revision {revision!r}; give a branch, a tag or a commit of the model's history"
    if code == "GatedRepo" and token:
        return f"{model}: the model is gated and the token's account has no access; ask for it on the model's page"
    if code == "GatedRepo":
        return f"{model}: the model is gated and no token was given; name its file in token_file or set HF_TOKEN"
    if status == 403 and token:
        return (
            f"{model}: the hub refuses the token this model (HTTP 403); ask for access on the model's page, and let a "
            "fine-grained token read gated repositories in its settings"
        )
    if code == "EntryNotFound":
        return f"{model}: the hub lists a file of revision {revision!r} that it does not have; try again later"
    if status in (401, 403, 404) and token:
        return f"{model}: the hub has no such model, or the token is wrong or expired, or has no access to it"
    if status in (401, 403, 404):
        return f"{model}: the hub has no such model; a private one needs a token (token_file or HF_TOKEN)"
    return f"{model}: the hub answered HTTP {status}, expected 200"


def modelscope_file(endpoint: str, repository: str, revision: str, name: str) -> str:
    """Return the address of a file of a revision (a commit, branch or tag) on ModelScope."""
    # Its client asks .../repo?FilePath=; messages leave out queries, and so the name.
    return f"{endpoint.rstrip('/')}/models/{repository}/resolve/{_part(revision)}/{urllib.parse.quote(name)}"


def modelscope_revisions(endpoint: str, repository: str) -> str:
    """Return the address of the branches and tags of a model on ModelScope."""
    return _modelscope(endpoint, repository, "revisions")


def modelscope_tree(endpoint: str, repository: str, revision: str) -> str:
    """Return the address of the listing of all files of a revision on ModelScope."""
    # Only this spelling of True reaches the files of directories.
    return _modelscope(endpoint, repository, f"repo/files?Revision={_part(revision)}&Recursive=True")


def modelscope_headers(token: str) -> dict[str, str]:
    """Return the headers of a request to ModelScope: older parts of its API need the cookie, newer ones the header."""
    return {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"} if token else {}


def hub_headers(token: str) -> dict[str, str]:
    """Return the headers of a request to a hub."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def modelscope_data(answer: Any, where: str) -> Mapping[str, Any]:
    """Return the content of an answer of ModelScope, which has status 200 for some errors. Raises WeightsError."""
    data = answer.get("Data") if isinstance(answer, Mapping) else None
    if not isinstance(data, Mapping) or answer.get("Success") is False:
        message = answer.get("Message") if isinstance(answer, Mapping) else None
        said = _quoted(str(message or "nothing that can be read"))
        raise WeightsError(f"{where}: ModelScope answered {said}, expected its data")
    return data


def modelscope_commit(data: Mapping[str, Any], model: str, revision: str) -> str:
    """Return the commit of a branch or tag, empty if ModelScope does not state it. Raises WeightsError for another."""
    if is_commit(revision):
        return revision
    try:
        known = data.get("RevisionMap") or {}
        entries = [*(known.get("Branches") or []), *(known.get("Tags") or [])]
        for entry in entries:
            if entry.get("Revision") == revision:
                commit = str(entry.get("CommitId") or "")
                return commit if is_commit(commit) else ""
        names = quote_foreign(", ".join(sorted(str(entry.get("Revision")) for entry in entries)) or "none")
    except (AttributeError, TypeError) as exc:
        raise WeightsError(
            f"{model}: the list of revisions cannot be read ({_quoted(exc)}); check the address"
        ) from exc
    raise WeightsError(f"{model}: ModelScope has no revision {revision!r}; its branches and tags: {names}")


def modelscope_files(data: Mapping[str, Any], where: str) -> list[Listed]:
    """Return the files of a listing, each with its sha256 if ModelScope states it. Raises WeightsError."""
    entries = data.get("Files") or []
    if not isinstance(entries, list):
        raise WeightsError(f"{where}: the listing of files is {name_kind(entries)}, expected a list")
    if len(entries) >= MODELSCOPE_MOST_FILES:
        raise WeightsError(
            f"{where}: ModelScope lists no more than {MODELSCOPE_MOST_FILES} files and this model has as many or more; "
            "pin it from a directory"
        )
    try:
        return [_modelscope_file(entry) for entry in entries if entry.get("Type") != "tree"]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as exc:
        raise WeightsError(f"{where}: the listing of files cannot be read ({_quoted(exc)}); check the address") from exc


def _modelscope_file(entry: Mapping[str, Any]) -> Listed:
    sha256 = str(entry.get("Sha256") or "")
    return Listed(_name(entry["Path"]), int(entry["Size"]), sha256 if is_sha256(sha256) else "")


def modelscope_refusal(model: str, status: int, token: bool) -> str:
    """Return the meaning of ModelScope's refusal; ``token`` is whether one was sent."""
    if status in (401, 403, 404) and token:
        return f"{model}: ModelScope has no such model, or the token is wrong or expired, or has no access to it"
    if status in (401, 403, 404):
        return (
            f"{model}: ModelScope has no such model; a private one needs a token (token_file or MODELSCOPE_API_TOKEN)"
        )
    return f"{model}: ModelScope answered HTTP {status}, expected 200"


def differing_files(files: Iterable[Listed], there: Iterable[Listed]) -> list[str]:
    """Return the names of ``files`` that are missing or different among those of another place."""
    known = {file.name: file for file in there}
    return [
        file.name
        for file in files
        if file.name not in known or (known[file.name].size, known[file.name].sha256) != (file.size, file.sha256)
    ]


def _modelscope(endpoint: str, repository: str, rest: str) -> str:
    return f"{endpoint.rstrip('/')}/api/v1/models/{repository}/{rest}"


def _quoted(found: object) -> str:
    """Return an error, or a text of a server, with its type or quotes around it."""
    return quote_foreign(show_value(found))


def _part(text: str) -> str:
    return urllib.parse.quote(text, safe="")
