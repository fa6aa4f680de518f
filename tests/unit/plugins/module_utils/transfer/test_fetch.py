# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import ssl
import stat
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.connections import FetchError, redact_url
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import (
    DownloadRequest,
    Settings,
    check_location,
    fetch_file,
    fetch_files,
    join_location,
    probe_size,
    read_small_file,
)

from tests.fakes.file_server import FileServer, serving

CONTENT = bytes(range(256)) * 20
SHA256 = hashlib.sha256(CONTENT).hexdigest()
QUICK = Settings(stall_timeout=10.0, attempts=2, backoff=0.01)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        running.files["/a.bin"] = CONTENT
        yield running


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "a.bin"


def get(location, dest, settings=QUICK):
    return fetch_file(str(location), str(dest), len(CONTENT), SHA256, settings)


def test_file_arrives_whole_and_readable_for_all(server, dest):
    assert get(f"{server.url}/a.bin", dest) == len(CONTENT)
    assert dest.read_bytes() == CONTENT
    assert stat.S_IMODE(dest.stat().st_mode) == 0o644
    assert os.listdir(dest.parent) == ["a.bin"]


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
def test_file_of_a_carried_disk(tmp_path, dest, prefix):
    (tmp_path / "disk of may").mkdir()
    carried = tmp_path / "disk of may" / "a.bin"
    carried.write_bytes(CONTENT)
    location = f"{prefix}{str(carried).replace(' ', '%20')}" if prefix else carried
    assert get(location, dest) == len(CONTENT)
    assert dest.read_bytes() == CONTENT
    assert probe_size(str(location), QUICK) == len(CONTENT)


def test_wrong_bytes_name_both_hashes_and_leave_the_old_file(server, dest):
    server.files["/a.bin"] = bytes(len(CONTENT))
    dest.write_bytes(b"old")
    found = hashlib.sha256(bytes(len(CONTENT))).hexdigest()
    with pytest.raises(FetchError) as error:
        get(f"{server.url}/a.bin", dest)
    assert f"{server.url}/a.bin: found sha256 {found}, expected {SHA256}" in str(error.value)
    assert dest.read_bytes() == b"old"
    assert os.listdir(dest.parent) == ["a.bin"]


def test_short_file_is_refused_by_its_length(server, dest):
    server.files["/a.bin"] = CONTENT[:-1]
    with pytest.raises(FetchError, match=f"found {len(CONTENT) - 1} bytes, expected {len(CONTENT)}"):
        get(f"{server.url}/a.bin", dest)
    assert len(server.log) == 1


def test_endless_file_without_a_length_is_cut_off(server, dest):
    server.files["/a.bin"] = CONTENT * 2
    server.faults["/a.bin"] = "chunked"
    with pytest.raises(FetchError, match=f"it continues after {len(CONTENT)} bytes"):
        get(f"{server.url}/a.bin", dest)


def test_broken_transfers_are_continued_where_they_broke(server, dest):
    server.faults["/a.bin"] = "cut"
    assert get(f"{server.url}/a.bin", dest) == len(CONTENT)
    assert dest.read_bytes() == CONTENT
    assert [wanted for _method, _path, wanted in server.log] == ["", *(f"bytes={n}000-5119" for n in range(1, 6))]


def test_server_that_breaks_off_and_knows_no_ranges_is_given_up(server, dest):
    server.faults["/a.bin"] = "cut"
    server.ranges = False
    with pytest.raises(FetchError, match=r"broke off at byte 1000 of 5120 \(attempt 2 without progress"):
        get(f"{server.url}/a.bin", dest)
    assert not dest.exists()


def test_stalled_transfer_is_given_up_after_its_time(server, dest):
    server.faults["/a.bin"] = "stall"
    server.cut_after = 0
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"no data arrived for 0.6 s"):
        get(f"{server.url}/a.bin", dest, replace(QUICK, stall_timeout=0.6))
    assert time.monotonic() - started < 30


def test_rest_of_an_earlier_run_is_continued(server, dest):
    (dest.parent / "a.bin.partial").write_bytes(CONTENT[:3000])
    assert get(f"{server.url}/a.bin", dest) == len(CONTENT) - 3000
    assert server.log == [("GET", "/a.bin", "bytes=3000-5119")]
    assert dest.read_bytes() == CONTENT


def test_rest_of_another_file_is_forgotten(server, dest):
    (dest.parent / "a.bin.partial").write_bytes(b"x" * 3000)
    assert get(f"{server.url}/a.bin", dest) == 2 * len(CONTENT) - 3000
    assert dest.read_bytes() == CONTENT


@pytest.mark.parametrize("length", [len(CONTENT), len(CONTENT) + 7])
def test_complete_or_too_long_rest_needs_no_luck(server, dest, length):
    (dest.parent / "a.bin.partial").write_bytes((CONTENT + b"trailing")[:length])
    get(f"{server.url}/a.bin", dest)
    assert dest.read_bytes() == CONTENT


def test_weak_form_of_an_etag_is_no_change(server, dest):
    tags = iter(['"one"'] + ['W/"one"'] * 9)

    def fault(handler, _start, _end):
        server.headers["/a.bin"] = {"ETag": next(tags)}
        return False

    server.faults["/a.bin"] = fault
    get(f"{server.url}/a.bin", dest, replace(QUICK, part=1000))
    assert dest.read_bytes() == CONTENT


def test_file_that_another_process_writes_is_left_alone(server, dest):
    with open(f"{dest}.partial", "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match=r"a.bin.partial: another process is writing it"):
            get(f"{server.url}/a.bin", dest)


def test_missing_file_is_asked_for_once(server, dest):
    with pytest.raises(FetchError, match=f"^{server.url}/b.bin: HTTP 404 Not Found$"):
        get(f"{server.url}/b.bin", dest)
    assert len(server.log) == 1


def test_busy_server_is_asked_again(server, dest):
    server.faults["/a.bin"] = 503
    with pytest.raises(FetchError, match="HTTP 503 Service Unavailable"):
        get(f"{server.url}/a.bin", dest)
    assert len(server.log) == 2


def test_unreachable_server_is_named_with_the_reason(dest):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(FetchError, match=f"{url}/a.bin: Connection refused"):
        get(f"{url}/a.bin", dest)


def test_unknown_host_is_named(dest):
    with pytest.raises(FetchError, match=r"http://mirror.invalid/a.bin: .*(Name|name|resolution)"):
        get("http://mirror.invalid/a.bin", dest)


def test_unwritable_directory_is_named(server, tmp_path):
    with pytest.raises(FetchError, match=r"absent/a.bin.partial: cannot be written: No such file or directory"):
        get(f"{server.url}/a.bin", tmp_path / "absent" / "a.bin")


def test_probe_writes_nothing_and_tells_the_size(server):
    assert probe_size(f"{server.url}/a.bin", QUICK) == len(CONTENT)
    assert [method for method, _path, _range in server.log] == ["HEAD"]


def test_probe_with_get_asks_for_one_byte_and_knows_empty_files(server):
    asked = replace(QUICK, probe_with_get=True)
    server.files["/empty"] = b""
    assert probe_size(f"{server.url}/a.bin", asked) == len(CONTENT)
    assert probe_size(f"{server.url}/empty", asked) == 0
    assert server.log == [("GET", "/a.bin", "bytes=0-0"), ("GET", "/empty", "bytes=0-0")]


def test_probe_believes_a_hub_that_names_the_size_of_what_it_redirects_to(server):
    server.redirects["/resolve"] = "/signed?for=get"
    server.headers["/resolve"] = {"X-Linked-Size": "77"}
    assert probe_size(f"{server.url}/resolve", QUICK) == 77
    assert [path for _method, path, _range in server.log] == ["/resolve"]


def test_no_message_shows_the_query_of_an_address(server, dest):
    server.files["/other.bin?signature=hush"] = b"other"
    server.redirects = {"/a?token=hush": "/b?token=hush", "/b?token=hush": "/a?token=hush", "/c": "ftp://h/?hush"}
    for fault in (403, 404, 500):
        server.faults[f"/{fault}?signature=hush"] = fault
    paths = [*server.faults, *server.redirects, "/other.bin?signature=hush", "/a b?signature=hush"]
    attempts = [lambda at: get(at, dest), lambda at: read_small_file(at, 2, QUICK), lambda at: probe_size(at, QUICK)]
    for path in paths:
        messages = [said(attempt, f"{server.url}{path}") for attempt in attempts]
        assert any(path.partition("?")[0] in message for message in messages)
        assert not any("hush" in message for message in messages)


def said(attempt, location):
    try:
        attempt(location)
    except FetchError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://h:9000/b/k?X-Amz-Signature=hush", "https://h:9000/b/k"),
        ("https://me:hush@h/k#hush", "https://h/k"),
        ("http://h?hush", "http://h"),
        ("/srv/what? yes #1", "/srv/what? yes #1"),
    ],
)
def test_shown_address_keeps_no_secret(location, expected):
    assert redact_url(location) == expected


def test_headers_go_to_the_first_server_alone(server, dest):
    with serving(FileServer()) as other:
        other.files["/a.bin"] = CONTENT
        server.redirects["/moved"] = f"{other.url}/a.bin"
        get(f"{server.url}/moved", dest, replace(QUICK, headers={"Authorization": "Bearer hush"}))
        assert [seen.get("Authorization") for seen in server.seen] == ["Bearer hush"]
        assert [seen.get("Authorization") for seen in other.seen] == [None]


def test_progress_knows_files_and_bytes(server, dest):
    files = wanted(server, dest, 5)
    Path(f"{files[4].dest}.partial").write_bytes(server.files["/4.bin"][:3000])
    Path(f"{files[0].dest}.partial").write_bytes(server.files["/0.bin"])
    seen = []
    fetch_files(files, PARTS, seen.append)
    (work,) = seen
    assert (work.files, work.size, work.resumed) == (5, sum(file.size for file in files), 3001)
    assert (work.files_done, work.resumed + work.transferred) == (5, work.size)


def test_redirect_is_followed_but_not_out_of_http(server, dest, tmp_path):
    (tmp_path / "secret").write_bytes(CONTENT)
    server.redirects = {"/moved": "/a.bin", "/out": f"file://{tmp_path}/secret"}
    assert get(f"{server.url}/moved", dest) == len(CONTENT)
    with pytest.raises(FetchError):
        get(f"{server.url}/out", dest)


PARTS = Settings(stall_timeout=20, attempts=2, backoff=0.01, connections=4, part=1000)


def wanted(server, dest, count):
    """Put files of several lengths on the server and return what to fetch of them."""
    files = []
    for number in range(count):
        content = os.urandom(number * 1700 + 1)
        server.files[f"/{number}.bin"] = content
        sha256 = hashlib.sha256(content).hexdigest()
        files.append(
            DownloadRequest(f"{server.url}/{number}.bin", str(dest.parent / f"{number}.bin"), len(content), sha256)
        )
    return files


def arrived(server, files):
    return all(Path(file.dest).read_bytes() == server.files[f"/{Path(file.dest).name}"] for file in files)


def test_many_files_come_at_once_each_in_parts(server, dest):
    files = wanted(server, dest, 12)
    assert fetch_files(files, PARTS) == sum(file.size for file in files)
    assert arrived(server, files)
    assert {name for name in os.listdir(dest.parent) if name.endswith(".partial")} == set()
    assert max(int(text.split("-")[0][6:] or 0) for _m, path, text in server.log if path == "/11.bin" and text) >= 18000


def test_parts_of_a_server_that_breaks_off_are_continued(server, dest):
    files = wanted(server, dest, 5)
    server.cut_after = 700
    server.faults = {f"/{number}.bin": "cut" for number in range(5)}
    fetch_files(files, PARTS)
    assert arrived(server, files)


def test_file_that_comes_in_one_piece_only_comes_so(server, dest):
    files = wanted(server, dest, 4)
    server.ranges = False
    fetch_files(files, PARTS)
    assert arrived(server, files)


def test_file_that_fails_keeps_the_others_beginning_and_names_itself(server, dest):
    files = wanted(server, dest, 6)
    server.files["/5.bin"] = bytes(files[5].size)
    with pytest.raises(FetchError, match=r"/5.bin: found sha256 .* the source has another file under this name"):
        fetch_files(files, PARTS)
    assert not Path(files[5].dest).exists()
    server.files["/5.bin"] = b"short"
    with pytest.raises(FetchError, match=r"/5.bin: found 5 bytes, expected 8501"):
        fetch_files([file for file in files if not Path(file.dest).exists()], PARTS)


def test_no_more_comes_in_a_second_than_allowed(server, dest):
    files = wanted(server, dest, 6)
    started = time.monotonic()
    fetch_files(files, replace(PARTS, limit=20000))
    # 25 kB, the first second's of which are free.
    assert time.monotonic() - started > 0.2


def test_small_page_is_read_up_to_its_limit(server):
    assert read_small_file(f"{server.url}/a.bin", 6000, QUICK) == CONTENT
    with pytest.raises(FetchError, match="more than 5000 bytes"):
        read_small_file(f"{server.url}/a.bin", 5000, QUICK)
    server.faults["/a.bin"] = "cut"
    with pytest.raises(FetchError, match="broke off at byte 1000 of 5120"):
        read_small_file(f"{server.url}/a.bin", 6000, QUICK)


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate authority")
def test_own_authority_is_trusted_once_it_is_named(server, dest, tmp_path):
    pem = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.scheme = "https"
    with pytest.raises(
        FetchError, match=r"the certificate is not trusted .* name the CA in the variable that ends in _ca_file"
    ):
        get(f"{server.url}/a.bin", dest)
    assert get(f"{server.url}/a.bin", dest, Settings(ca_file=str(pem))) == len(CONTENT)


def make_certificate(directory, name="IP:127.0.0.1"):
    key, certificate, pem = directory / "key", directory / "certificate", directory / "both.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=127.0.0.1"
    command = ["openssl", *words.split(), "-addext", f"subjectAltName={name}", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    pem.write_bytes(key.read_bytes() + certificate.read_bytes())
    return pem


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate authority")
def test_certificate_for_another_name_is_no_matter_of_its_authority(server, dest, tmp_path):
    pem = make_certificate(tmp_path, "DNS:mirror.example.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.scheme = "https"
    with pytest.raises(
        FetchError, match=r"the certificate is not valid \(IP address mismatch.*check the server's"
    ) as error:
        get(f"{server.url}/a.bin", dest, Settings(ca_file=str(pem)))
    assert "name the CA" not in str(error.value)


def test_missing_authority_is_named(server, dest):
    with pytest.raises(FetchError, match=r"/nowhere.pem: cannot be read as PEM certificates of a CA"):
        get(f"{server.url}/a.bin", dest, Settings(ca_file="/nowhere.pem"))


def test_proxy_of_the_environment_is_used(server, dest, monkeypatch):
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", server.url)
    server.files["http://far.invalid/a.bin"] = CONTENT
    assert get("http://far.invalid/a.bin", dest) == len(CONTENT)
    assert "Proxy-Authorization" not in server.seen[-1]


@pytest.fixture
def tunnel():
    """A proxy that knows CONNECT alone; yields its address and the heads of its requests."""
    listener, heads = socket.create_server(("127.0.0.1", 0)), []

    def copy(source, target):
        with contextlib.suppress(OSError):
            for piece in iter(lambda: source.recv(65536), b""):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    def serve(client):
        head = client.recv(65536)
        heads.append(head.decode())
        host, port = head.split()[1].decode().split(":")
        with client, socket.create_connection((host, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
            threads = [threading.Thread(target=copy, args=pair) for pair in ((client, server), (server, client))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", heads
    listener.close()


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate authority")
def test_https_goes_through_the_tunnel_of_a_proxy(server, dest, tmp_path, tunnel, monkeypatch):
    pem = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.scheme = "https"
    url, heads = tunnel
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("https_proxy", url)
    assert get(f"{server.url}/a.bin", dest, replace(QUICK, ca_file=str(pem), part=1000)) == len(CONTENT)
    assert heads and all(head.startswith(f"CONNECT 127.0.0.1:{server.server_port} HTTP/1.") for head in heads)


def test_proxy_that_wants_a_password_gets_it(server, dest, monkeypatch):
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", server.url.replace("://", "://me:p%40ss@"))
    server.files["http://far.invalid/a.bin"] = CONTENT
    assert get("http://far.invalid/a.bin", dest) == len(CONTENT)
    assert server.seen[-1]["Proxy-Authorization"] == f"Basic {base64.b64encode(b'me:p@ss').decode()}"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://[bad/x", r"/a.bin: it redirects to an invalid address, which is neither http nor https"),
        ("http://127.0.0.1:99999/x", r"http://127.0.0.1:99999/x: invalid characters or port in the address"),
        ("http://a..b/x", r"http://a..b/x: invalid characters or port in the address"),
    ],
)
def test_redirect_to_what_cannot_be_is_an_error_of_that_source(server, dest, location, message):
    server.redirects["/a.bin"] = location
    with pytest.raises(FetchError, match=message):
        get(f"{server.url}/a.bin", dest)


def test_redirect_with_letters_beyond_ascii_is_followed(server, dest):
    server.redirects["/a.bin"] = "/b\xe4r.bin"
    server.files["/b%E4r.bin"] = CONTENT
    assert get(f"{server.url}/a.bin", dest) == len(CONTENT)


def test_token_that_cannot_be_sent_is_not_shown(server, dest):
    with pytest.raises(FetchError, match=r"/a.bin: invalid characters or port in the address") as error:
        get(f"{server.url}/a.bin", dest, Settings(headers={"Authorization": "Bearer canary\nsecond"}))
    assert "canary" not in str(error.value) and error.value.__context__ is None


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("models", "found a relative path, expected a URL or an absolute path"),
        ("http://mirror:abc/models", "http://mirror:abc/models: invalid host or port"),
        ("http://mirror:99999/models", "invalid host or port"),
        ("http://[::1/models", "invalid host or port"),
        ("ftp://mirror/models", "scheme 'ftp' is not known; expected http, https, file"),
        ("https://me:hush@mirror/models", "a source with a user or password would show them in logs"),
    ],
)
def test_location_that_cannot_be_used_is_refused(location, message):
    with pytest.raises(FetchError, match=message) as error:
        check_location(location)
    assert "hush" not in str(error.value)


def test_join_quotes_for_urls_alone():
    assert join_location("http://mirror/weights/", "a", "b c#1") == "http://mirror/weights/a/b%20c%231"
    assert join_location("/media/disk", "a", "b c#1") == "/media/disk/a/b c#1"
