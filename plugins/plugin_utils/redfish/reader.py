# SPDX-License-Identifier: GPL-3.0-or-later
"""Read documents of a Redfish service within limits: the one reader of chips (survey.py) and of servers to write.

A reader is a set of generators: they yield the documents that they need next and receive their content.
"""

from dataclasses import dataclass
from typing import Any, Generator, Iterable, List, Mapping, Optional, Sequence, TypeVar

from .chips import RedfishError
from .documents import KEYS, MAX_LEVELS, MAX_MEMBERS, Document, embedded, links_to, path_of

ROOT = "/redfish/v1/"

# Correct services stay far below: a DGX H100 lists 133 PCI devices.
MAX_DOCUMENTS = 500


@dataclass(frozen=True)
class Wanted:
    """A document to fetch: its path, and the levels of ``$expand`` that the service supports (0: none)."""

    path: str
    levels: int = 0


# Yields the documents that it needs; receives their content by path (None or absent: no such document).
Answers = Mapping[str, Optional[Any]]
T = TypeVar("T")
Steps = Generator[List[Wanted], Answers, T]


class Reader:
    """The documents received so far, with these keys; an embedded document needs no request of its own."""

    def __init__(self, keys: Sequence[str] = KEYS) -> None:
        self.keys = keys
        self.known: dict[str, Document] = {}
        self.levels = 0
        self.asked = 0
        self.devices = 0  # PCI devices or functions found so far

    def get(self, paths: Iterable[str], levels: int = 0) -> Steps[list[Document]]:
        """Return the documents of ``paths``; a document that the service lacks is empty."""
        paths = list(paths)
        missing = [path for path in dict.fromkeys(paths) if _key(path) not in self.known]
        self.asked += len(missing)
        if self.asked > MAX_DOCUMENTS:
            raise RedfishError(f"its lists lead to more than {MAX_DOCUMENTS} documents")
        if missing:
            answers = yield [Wanted(path, min(levels, self.levels)) for path in missing]
            for path in missing:
                self._keep(path, answers.get(path), MAX_LEVELS + 1)
        return [self.known[_key(path)] for path in paths]

    def members(self, collections: Iterable[str], levels: int = 1) -> Steps[list[Document]]:
        """Return the documents that collections list, over all pages; all collections are read at once."""
        links: list[str] = []
        pages = list(dict.fromkeys(collections))
        turned: set[str] = set()
        while pages:
            turned.update(pages)
            following = []
            for path, page in zip(pages, (yield from self.get(pages, levels))):
                links += links_to(page, "Members", path)
                more = page.get("Members@odata.nextLink")
                following += [path_of(more, path)] if more else []
            if len(links) > MAX_MEMBERS:
                raise RedfishError(f"{pages[0]} and others list more than {MAX_MEMBERS} members")
            pages = [path for path in dict.fromkeys(following) if path not in turned]
        return (yield from self.get(dict.fromkeys(links)))

    def _keep(self, path: str, document: Any, depth: int) -> None:
        if document is None:
            document = {}
        if not isinstance(document, dict):
            raise RedfishError(f"{path} is not a JSON object")
        self.known[_key(path)] = kept = {key: document[key] for key in self.keys if key in document}
        kept["@odata.id"] = path
        if not depth:
            return
        for child in embedded(kept):
            place = child.get("@odata.id")
            if isinstance(place, str) and len(self.known) <= MAX_MEMBERS * 5:
                self._keep(path_of(place, path), child, depth - 1)


def _key(path: str) -> str:
    return path.rstrip("/")
