# SPDX-License-Identifier: GPL-3.0-or-later
"""Many Redfish services in one process, each on its own address (127.x.y.z), that can be told to misbehave.

Serves DMTF's mock-up format (a folder with an index.json per path) or documents in memory, with basic authentication,
sessions and ``$expand``. As a program (``python redfish_server.py PLAN.json``) it has a processor to itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import functools
import gzip
import ipaddress
import json
import re
import secrets
import ssl
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

USERNAME, PASSWORD = "admin", "s3cret-Pa55word"
ROOT = "/redfish/v1"

# What a machine can do wrong; a path in Machine.faults can also have an HTTP status.
FAULTS = (
    *("hang", "silent", "trickle", "trickle headers", "close", "no http", "html", "cut", "types", "list", "empty"),
    *("huge", "endless", "bomb", "deep", "redirects", "elsewhere", "pages", "many members", "cycle", "charset"),
    *("much", "much packed", "parts"),
)


@dataclass
class Machine:
    """One service: ``documents`` by path, and what goes wrong: with all of it (``fault``), or by path (``faults``).

    auth: "basic", "session" (basic is refused, and not offered) or "none". delay: seconds before each answer,
    login_delay: before that to a login, when its session is there.
    """

    documents: dict[str, Any]
    fault: str = ""
    faults: dict[str, str | int] = field(default_factory=dict)
    auth: str = "basic"
    delay: float = 0.0
    login_delay: float = 0.0
    log: list[tuple[str, str]] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    logins: int = 0


def read_mockup(folder: Path) -> dict[str, Any]:
    """Return the documents of a folder in DMTF's format, by path; the folder may start at /redfish/v1 or above it."""
    base = folder / "redfish" / "v1" if (folder / "redfish" / "v1").is_dir() else folder
    documents = {}
    for file in base.rglob("index.json"):
        below = file.parent.relative_to(base).as_posix()
        with contextlib.suppress(ValueError):
            documents[ROOT if below == "." else f"{ROOT}/{below}"] = json.loads(file.read_text())
    return documents


def write_mockup(folder: Path, documents: dict[str, Any]) -> None:
    for path, document in documents.items():
        file = folder / path.strip("/") / "index.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))


class RedfishServer:
    """Serves ``machines`` by address, all on one port, from its own thread. Use it with ``with``."""

    def __init__(self, machines: dict[str, Machine], tls: ssl.SSLContext | None = None) -> None:
        self.machines = machines
        self.tls = tls
        self.port = 0
        self._servers: list[asyncio.base_events.Server] = []
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RedfishServer:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_exc: object) -> None:
        for server in self._servers:
            self._loop.call_soon_threadsafe(server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def address(self, host: str) -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda *_args: None)  # clients that hang up are part of the tests
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        for address, machine in self.machines.items():
            # A machine that hangs does so before TLS: it accepts and says nothing.
            tls = None if machine.fault in ("hang", "no http") else self.tls
            server = await asyncio.start_server(
                lambda reader, writer, machine=machine: self._serve(machine, reader, writer),
                *(address, self.port),
                ssl=tls,
            )
            self._servers.append(server)
            self.port = self.port or server.sockets[0].getsockname()[1]

    async def _serve(self, machine: Machine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError, ValueError):
            if machine.fault == "no http":
                writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
                await writer.drain()
            if machine.fault in ("hang", "no http"):
                await asyncio.sleep(3600)
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _version = head[0].split(" ")
                headers = {
                    name.lower(): text.strip() for name, _colon, text in (line.partition(":") for line in head[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                machine.log.append((method, path))
                if not await self._answer(machine, writer, method, path, headers, body):
                    break
        writer.close()

    async def _answer(
        self,
        machine: Machine,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> bool:
        """Answer one request; return whether the connection lives on."""
        if machine.delay:
            await asyncio.sleep(machine.delay)
        plain = path.split("?")[0].rstrip("/")
        fault = machine.faults.get(plain, machine.fault)
        if fault:
            return await misbehave(fault, machine, writer, path)
        if plain == f"{ROOT}/SessionService/Sessions" and method == "POST":
            return await self._log_in(machine, writer, body)
        if plain != ROOT and not _is_known(machine, headers):
            challenge = {"WWW-Authenticate": 'Basic realm="BMC"'} if machine.auth == "basic" else {}
            return await send(writer, 401, _error("not authenticated"), challenge)
        if method == "DELETE":
            machine.sessions.discard(plain.rsplit("/", 1)[-1])
            return await send(writer, 204, None)
        document = find(machine.documents, path)
        if document is None:
            return await send(writer, 404, _error("not found"))
        return await send(writer, 200, document)

    async def _log_in(self, machine: Machine, writer: asyncio.StreamWriter, body: bytes) -> bool:
        machine.logins += 1
        account = json.loads(body)
        if account != {"UserName": USERNAME, "Password": PASSWORD}:
            return await send(writer, 401, _error("not authenticated"))
        token = secrets.token_hex(8)
        machine.sessions.add(token)
        await asyncio.sleep(machine.login_delay)
        place = {"X-Auth-Token": token, "Location": f"{ROOT}/SessionService/Sessions/{token}"}
        return await send(writer, 201, {"@odata.id": place["Location"], "Id": token}, place)


def find(documents: dict[str, Any], path: str) -> Any:
    """Return a document with what ``$expand`` asks to be in it, as far as the service's root says that it can."""
    plain, _mark, query = path.partition("?")
    document = documents.get(plain.rstrip("/"))
    asked = re.search(r"\$expand=\.\(\$levels=(\d)\)", query.replace("%24", "$"))
    features = (documents.get(ROOT) or {}).get("ProtocolFeaturesSupported", {}).get("ExpandQuery", {})
    levels = min(int(asked.group(1)), features.get("MaxLevels", 0)) if asked and isinstance(document, dict) else 0
    return expanded(documents, document, levels) if levels else document


def expanded(documents: dict[str, Any], document: Any, levels: int) -> Any:
    """Return a document with what lies below it embedded; what only is linked to (Links) stays a link."""
    if not levels or not isinstance(document, dict):
        return document

    def embed(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"@odata.id"} and value["@odata.id"] in documents:
            return expanded(documents, documents[value["@odata.id"]], levels - 1)
        return [embed(item) for item in value] if isinstance(value, list) else value

    return {key: value if key == "Links" else embed(value) for key, value in document.items()}


@functools.lru_cache(maxsize=1)
def bomb() -> bytes:
    """Return some kilobytes of gzip that become 50 MB."""
    return gzip.compress(b'{"x": "' + b"x" * 50_000_000)


async def send(writer: asyncio.StreamWriter, status: int, document: Any, headers: dict[str, str] | None = None) -> bool:
    body = b"" if document is None else json.dumps(document).encode()
    return await send_bytes(writer, status, body, {"Content-Type": "application/json", **(headers or {})})


async def send_bytes(writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str]) -> bool:
    lines = [f"HTTP/1.1 {status} x", *(f"{name}: {text}" for name, text in headers.items())]
    writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    await writer.drain()
    return True


async def misbehave(fault: str | int, machine: Machine, writer: asyncio.StreamWriter, path: str) -> bool:
    """Answer wrongly; return whether the connection lives on."""
    kind = {"Content-Type": "application/json"}
    if isinstance(fault, int):
        return await send(writer, fault, _error("as told"))
    document = json.dumps(find(machine.documents, path) or {}).encode()
    if fault == "silent":
        await asyncio.sleep(3600)
    elif fault == "close":
        return False
    elif fault in ("trickle", "trickle headers"):
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(document)}\r\n".encode()
        writer.write(b"" if fault == "trickle headers" else head + b"\r\n")
        for number in range(3600):
            writer.write(head[number : number + 1] if fault == "trickle headers" else document[number : number + 1])
            await writer.drain()
            await asyncio.sleep(0.5)
            if writer.is_closing():
                return False
    elif fault == "html":
        page = b"<!DOCTYPE html><html><title>Login</title></html>"
        return await send_bytes(writer, 200, page, {"Content-Type": "text/html; charset=utf-8"})
    elif fault == "cut":
        return await send_bytes(writer, 200, document[: len(document) // 2], kind)
    elif fault == "list":
        return await send(writer, 200, [1, 2, 3])
    elif fault == "empty":
        return await send_bytes(writer, 200, b"", kind)
    elif fault == "types":
        return await send(writer, 200, {"Systems": 7, "Chassis": "x", "Members": {"a": 1}, "Processors": []})
    elif fault == "huge":
        return await send_bytes(writer, 200, b'{"x": "' + b"x" * 20_000_000 + b'"}', kind)
    elif fault == "endless":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        # More than any client may read; a client that hung up shows only in that nothing more is taken.
        for _chunk in range(400):
            writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            await asyncio.wait_for(writer.drain(), 5)
            await asyncio.sleep(0.001)
            if writer.is_closing() or writer.transport.get_write_buffer_size() > 2**22:
                break
        return False
    elif fault == "bomb":
        return await send_bytes(writer, 200, bomb(), {**kind, "Content-Encoding": "gzip"})
    elif fault == "deep":
        return await send_bytes(writer, 200, b'{"Members":' * 100_000, kind)
    elif fault == "redirects":
        return await send(writer, 302, None, {"Location": f"{ROOT}/again{secrets.token_hex(2)}"})
    elif fault == "elsewhere":
        return await send(writer, 302, None, {"Location": "https://192.0.2.1/redfish/v1/"})
    elif fault == "charset":
        return await send_bytes(writer, 200, b"AA" * 500_000, {"Content-Type": "text/plain; charset=punycode"})
    found = _lists_without_end(fault, path)
    if fault == "parts":
        # A byte in each chunk.
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in json.dumps({**found, "x": "x" * 1_000_000}).encode())
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")
        await writer.drain()
        return True
    if fault.startswith("much"):
        body = json.dumps({**found, "x": [[]] * 490_000}).encode()
        packed = fault == "much packed"
        body, kind = (gzip.compress(body, 1), {**kind, "Content-Encoding": "gzip"}) if packed else (body, kind)
        return await send_bytes(writer, 200, body, kind)
    return await send(writer, 200, found)


def _lists_without_end(fault: str, path: str) -> dict[str, Any]:
    plain, number = path.split("?")[0].rstrip("/"), secrets.token_hex(3)
    if plain == ROOT:
        return {"Systems": {"@odata.id": f"{ROOT}/Systems"}}
    if fault == "cycle":
        return {"Members": [{"@odata.id": plain}, {"@odata.id": ROOT}], "Members@odata.nextLink": plain}
    members = [{"@odata.id": f"{plain}/{index}"} for index in range(2_000 if fault == "many members" else 2)]
    return {
        "Members": members,
        "Processors": {"@odata.id": f"{plain}/Processors"},
        "Members@odata.nextLink": f"{ROOT}/Systems?page={number}",
    }


def _is_known(machine: Machine, headers: dict[str, str]) -> bool:
    if machine.auth == "none" or headers.get("x-auth-token") in machine.sessions:
        return True
    account = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    return machine.auth == "basic" and headers.get("authorization") == f"Basic {account}"


def _error(text: str) -> dict[str, Any]:
    return {"error": {"code": "Base.1.8.GeneralError", "message": text}}


def authority(folder: Path, addresses: list[str]) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate authority and a certificate for ``addresses``; return the authority's file and the server's
    side of TLS. The certificate and its key lie in ``folder`` as server.pem."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def certificate(name: str, key: Any, issuer: Any, signer: Any, extensions: list[tuple[Any, bool]]) -> Any:
        now = datetime.datetime.now(datetime.timezone.utc)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder(subject_name=subject, issuer_name=issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(signer, hashes.SHA256())

    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    own_id = x509.SubjectKeyIdentifier.from_public_key(root_key.public_key())
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = certificate(
        *("test authority", root_key, None, root_key),
        [(x509.BasicConstraints(True, None), True), (own_id, False), (usage, True)],
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address)) for address in addresses])
    issued = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id)
    leaf = certificate("bmc", key, root.subject, root_key, [(names, False), (issued, False)])
    pem = serialization.Encoding.PEM
    ca_file, server_file = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(root.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server_file.write_bytes(private + leaf.public_bytes(pem))
    return ca_file, server_side(server_file)


def server_side(server_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_file)
    return context


def main() -> None:
    """Serve a plan: ``{"tls": server.pem, "machines": {address: {"mockup": folder, "fault": ...}}}``.

    Prints the port, serves until its input ends, then prints the requests and open sessions by address.
    """
    plan = json.loads(Path(sys.argv[1]).read_text())
    mockups: dict[str, dict[str, Any]] = {}
    machines = {}
    for address, wanted in plan["machines"].items():
        folder = wanted.pop("mockup")
        documents = mockups[folder] = mockups.get(folder) or read_mockup(Path(folder))
        machines[address] = Machine(documents, **wanted)
    with RedfishServer(machines, server_side(Path(plan["tls"]))) as server:
        print(server.port, flush=True)
        sys.stdin.read()
        print(json.dumps({address: [len(one.log), len(one.sessions)] for address, one in machines.items()}))


if __name__ == "__main__":
    main()
