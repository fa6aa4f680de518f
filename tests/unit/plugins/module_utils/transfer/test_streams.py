# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of files from a disk and from a played server: no byte of another file or version is ever taken."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import streams
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.connections import FetchError, TransferError
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.scheduler import Job, Part, WholeOnlyError
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.streams import (
    DiskStream,
    HttpStream,
    disk_path,
)

DATA = bytes(range(100))
URL = "https://user:secret@mirror/a.bin?token=x"


class Target:
    """A file that is being written."""

    def __init__(self):
        self.data = b""

    @property
    def length(self):
        return len(self.data)

    def append(self, chunk):
        self.data += bytes(chunk)


def part_of(location, offset=0, length=100, size=100, **more):
    job = Job(location, size, Target(), **more)
    return Part(job, offset, length, bytearray(length))


class Server:
    """The connections of a stream to a server with ``data``; ``ends`` cuts answers, ``ranges``: whether it has them."""

    def __init__(self):
        self.data, self.ranges, self.version, self.states_size = DATA, True, "", True
        self.moved, self.ends, self.broken, self.asked, self.closed = "", None, {}, [], []

    def request_range(self, url, first, last, origin):
        self.asked.append((url, first, last))
        if url in self.broken:
            raise self.broken[url]
        partial = self.ranges and (first or last is not None)
        body = self.data[first : None if last is None else last + 1] if partial else self.data
        left = bytearray(body[: self.ends])

        def read_into(view):
            piece = left[: len(view)]
            view[: len(piece)] = piece
            del left[: len(piece)]
            return len(piece)

        return SimpleNamespace(
            response=SimpleNamespace(status=206 if partial else 200), url=self.moved or url,
            offset=first if partial else 0, size=len(self.data) if self.states_size else None, version=self.version,
            read_into=read_into,
        )  # fmt: skip

    def close_connection(self, url):
        self.closed.append(url)

    def close(self):
        self.closed.append("all")


@pytest.fixture
def server(monkeypatch):
    found = Server()
    monkeypatch.setattr(streams, "RangeConnections", lambda _site: found)
    return found


@pytest.fixture
def stream(server):
    return HttpStream(None)


def read(stream, part):
    counted = []
    stream.read_part(part, counted.append)
    assert sum(counted) == part.got == part.length
    return bytes(part.buffer)


def test_a_part_is_the_bytes_of_its_place(server, stream):
    assert read(stream, part_of(URL, 10, 20)) == DATA[10:30]
    assert server.asked == [(URL, 10, 29)]


def test_a_part_goes_on_where_it_broke_off(server, stream):
    part, server.ends = part_of(URL, 10, 20), 5
    with pytest.raises(TransferError, match="broke off at byte 15 of 100"):
        stream.read_part(part, lambda _count: None)
    assert server.closed == [URL]
    server.ends = None
    stream.read_part(part, lambda _count: None)
    assert bytes(part.buffer) == DATA[10:30] and server.asked[-1] == (URL, 15, 29)


def test_a_small_file_needs_no_ranges(server, stream):
    server.ranges = False
    assert read(stream, part_of(URL)) == DATA
    assert server.asked == [(URL, 0, None)]


def test_a_server_without_ranges_is_asked_for_the_whole_file(server, stream):
    server.ranges = False
    part = part_of(URL, 10, 20)
    with pytest.raises(WholeOnlyError):
        stream.read_part(part, lambda _count: None)
    stream.read_whole(part, lambda _count: None)
    assert part.job.target.data == DATA
    # One that had them before may serve another file now.
    with pytest.raises(FetchError, match="served parts of the file before, now it does not"):
        stream.read_part(part_of(URL, 10, 20, resolved=URL), lambda _count: None)


def test_a_whole_file_that_breaks_off_or_goes_on_is_an_error(server, stream):
    server.ranges, server.ends = False, 99
    with pytest.raises(TransferError, match="broke off at byte 99 of 100"):
        stream.read_whole(part_of(URL), lambda _count: None)
    server.data, server.ends, server.states_size = DATA + b"x", None, False
    for read_it in (stream.read_whole, stream.read_part):
        with pytest.raises(FetchError, match="it continues after 100 bytes, the expected size"):
            read_it(part_of(URL), lambda _count: None)


def test_a_file_of_another_size_or_version_is_refused_without_its_secrets(server, stream):
    server.data = DATA + b"x"
    with pytest.raises(FetchError, match=r"^https://mirror/a\.bin: found 101 bytes, expected 100$"):
        read(stream, part_of(URL, 10, 20))
    server.data, server.version = DATA, '"two"'
    with pytest.raises(FetchError, match="it was changed on the server while it was fetched"):
        read(stream, part_of(URL, 10, 20, version='"one"'))


def test_the_place_to_which_a_server_sent_is_asked_until_it_refuses(server, stream):
    """Such an address may have been signed for some minutes."""
    server.moved = "https://store/a.bin?signature=1"
    part = part_of(URL, 0, 20)
    read(stream, part)
    other = Part(part.job, 20, 20, bytearray(20))
    server.broken = {server.moved: FetchError("HTTP 403")}
    assert read(stream, other) == DATA[20:40]
    assert [url for url, _first, _last in server.asked] == [URL, server.moved, URL]
    # The file's own address has no other one behind it.
    server.broken = {URL: FetchError("HTTP 404")}
    with pytest.raises(FetchError, match="HTTP 404"):
        read(stream, part_of(URL, 0, 20))


def test_after_a_broken_connection_the_files_own_address_is_next(server, stream):
    part = part_of(URL, 0, 20, resolved="https://store/a.bin")
    server.broken = {"https://store/a.bin": TransferError("reset")}
    with pytest.raises(TransferError):
        stream.read_part(part, lambda _count: None)
    assert part.job.resolved == URL
    stream.close()
    assert server.closed == ["all"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a b.bin"
    path.write_bytes(DATA)
    return path


def test_a_disk_serves_parts_by_path_and_by_address(file):
    stream = DiskStream()
    for location in (str(file), file.as_uri(), f"FILE://{file}"):
        assert disk_path(location) == str(file)
        assert read(stream, part_of(location, 10, 20)) == DATA[10:30]
    stream.close()
    stream.close()


def test_a_disk_with_another_file_is_an_error(file, tmp_path):
    stream = DiskStream()
    with pytest.raises(FetchError, match="found 100 bytes, expected 99"):
        read(stream, part_of(str(file), 0, 10, size=99))
    with pytest.raises(FetchError, match="No such file or directory"):
        read(stream, part_of(str(tmp_path / "missing"), 0, 10))
    with pytest.raises(FetchError, match="not a regular file"):
        read(stream, part_of(str(tmp_path), 0, 10))
    stream.close()


def test_a_file_that_becomes_shorter_meanwhile_is_an_error(file, monkeypatch):
    monkeypatch.setattr(streams.os, "preadv", lambda *_words: 0)
    with pytest.raises(FetchError, match="it has become shorter than 100 bytes"):
        read(DiskStream(), part_of(str(file), 0, 10))
