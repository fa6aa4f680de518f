# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that are switched off, with BMCs, disks and the agent of a ramdisk, for the real Ironic: no QEMU.

Each server has an address (127.x.y.z) for its agent (9999) and SSH (22), and one for its BMC (port 8443). A started
server with a medium fetches the ISO that Ironic made for it, reads its token and network from it, and writes the
image and the config drive to its disk in memory, as the real agent does. Without a medium it boots from its disk: SSH
answers if there is an image. It was written for Ironic 39 and ironic-python-agent's interface; no real BMC behaves
like it in every respect.

As a program (``python servers_off.py PLAN.json``) it serves until its input ends; ``GET /`` of the control port shows
the state of all servers, ``POST /ADDRESS`` with {"fault": ...} or {"power": "Off"} changes one.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.server
import json
import re
import secrets
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

USERNAME, PASSWORD = "admin", "s3cret-Pa55word"
ROOT = "/redfish/v1"
SYSTEM, MANAGER = f"{ROOT}/Systems/1", f"{ROOT}/Managers/1"
BMC_PORT, AGENT_PORT, SSH_PORT = 8443, 9999, 22
API = {"X-OpenStack-Ironic-API-Version": "1.109", "Content-Type": "application/json"}
AGENT_VERSION = "13.0.0"


@dataclass
class Server:
    """One server. ``disks`` holds what was written, by serial number; ``writes`` counts it.

    fault: "account" (refuses it), "hang" (accepts and never answers), "media" (refuses a medium), "order 3" (refuses
    the third change and all that follow: power, boot device, medium).
    """

    address: str
    mac: str
    serial: str
    disks: dict[str, bytes]
    fault: str = ""
    power: str = "Off"
    medium: str = ""
    boot_once: str = ""
    writes: list[str] = field(default_factory=list)
    wipes: list[list[Any]] = field(default_factory=list)
    requests: int = 0
    orders: int = 0
    agents: int = 0
    boots: int = 0
    write_seconds: float = 0.5
    # The maker, the settings of the firmware, and those that the next start takes over.
    maker: str = "Example"
    firmware: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    listener: Any = None
    # The agent's own certificate, and what Ironic checks it with.
    context: Any = None
    authority: str = ""

    def documents(self) -> dict[str, Any]:
        reset, media = f"{SYSTEM}/Actions/ComputerSystem.Reset", f"{MANAGER}/VirtualMedia/Cd"
        drives = [f"{SYSTEM}/Storage/1/Drives/{number}" for number in range(len(self.disks))]
        documents: dict[str, Any] = {
            ROOT: {
                "Id": "RootService", "RedfishVersion": "1.6.0", "UUID": self.serial,
                "Systems": _link(f"{ROOT}/Systems"), "Managers": _link(f"{ROOT}/Managers"),
                "SessionService": _link(f"{ROOT}/SessionService"),
                "Links": {"Sessions": _link(f"{ROOT}/SessionService/Sessions")},
            },
            f"{ROOT}/SessionService": {
                "Id": "SessionService", "ServiceEnabled": True, "SessionTimeout": 600,
                "Sessions": _link(f"{ROOT}/SessionService/Sessions"),
            },
            f"{ROOT}/SessionService/Sessions": {"Members": [], "Members@odata.count": 0},
            f"{ROOT}/Systems": _collection([SYSTEM]),
            SYSTEM: {
                "Id": "1", "Name": "server", "Manufacturer": self.maker, "Model": "GPU-8", "SerialNumber": self.serial,
                "UUID": "38947555-7742-3448-3784-823347823834", "PowerState": self.power, "SystemType": "Physical",
                "Status": {"State": "Enabled", "Health": "OK"},
                "Boot": {
                    "BootSourceOverrideEnabled": "Once" if self.boot_once else "Disabled",
                    "BootSourceOverrideTarget": self.boot_once or "None", "BootSourceOverrideMode": "UEFI",
                    "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Cd", "Hdd", "Pxe"],
                },
                "Storage": _link(f"{SYSTEM}/Storage"),
                "Links": {"ManagedBy": [_link(MANAGER)], "Chassis": []},
                "Actions": {"#ComputerSystem.Reset": {
                    "target": reset,
                    "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart", "GracefulShutdown"],
                }},
            },
            f"{SYSTEM}/Storage": _collection([f"{SYSTEM}/Storage/1"]),
            f"{SYSTEM}/Storage/1": {"Id": "1", "Name": "storage", "Drives": [_link(path) for path in drives]},
            f"{ROOT}/Managers": _collection([MANAGER]),
            f"{MANAGER}/LogServices": _collection([f"{MANAGER}/LogServices/Sel"]),
            f"{MANAGER}/LogServices/Sel": {"Id": "Sel", "Entries": _link(f"{MANAGER}/LogServices/Sel/Entries")},
            f"{MANAGER}/LogServices/Sel/Entries": {"Members": [
                {"@odata.id": f"{MANAGER}/LogServices/Sel/Entries/1", "Severity": "Critical",
                 "Message": "A fatal error was detected on a component at bus 93 device 0 function 0."},
            ]},
            MANAGER: {"Id": "1", "Name": "BMC", "ManagerType": "BMC", "VirtualMedia": _link(f"{MANAGER}/VirtualMedia"),
                      "LogServices": _link(f"{MANAGER}/LogServices"),
                      "Links": {"ManagerForServers": [_link(SYSTEM)]}, "Status": {"State": "Enabled"}},
            f"{MANAGER}/VirtualMedia": _collection([media]),
            media: {
                "Id": "Cd", "Name": "CD", "MediaTypes": ["CD", "DVD"], "Inserted": bool(self.medium),
                "Image": self.medium or None, "ConnectedVia": "URI" if self.medium else "NotConnected",
                "WriteProtected": True,
                "Actions": {f"#VirtualMedia.{name}Media": {"target": f"{media}/Actions/VirtualMedia.{name}Media"}
                            for name in ("Insert", "Eject")},
            },
        }  # fmt: skip
        if self.firmware:
            documents[SYSTEM]["Bios"] = _link(f"{SYSTEM}/Bios")
            settings = {"SettingsObject": _link(f"{SYSTEM}/Bios/Settings"), "SupportedApplyTimes": ["OnReset"]}
            documents[f"{SYSTEM}/Bios"] = {
                "Id": "Bios", "Name": "BIOS", "Attributes": self.firmware,
                "@Redfish.Settings": {"@odata.type": "#Settings.v1_3_0.Settings", **settings},
            }  # fmt: skip
            documents[f"{SYSTEM}/Bios/Settings"] = {"Id": "Settings", "Name": "Pending", "Attributes": self.pending}
        for path, serial in zip(drives, self.disks):
            documents[path] = {
                "Id": path.rsplit("/", 1)[-1],
                "Model": "PM9A3",
                "SerialNumber": serial,
                "CapacityBytes": 960_197_124_096,
            }
        return {path: {"@odata.id": path, **document} for path, document in documents.items()}

    def switch(self, on: bool) -> None:
        """Switch the server on or off; it boots in its own thread."""
        self.power = "On" if on else "Off"
        if on:
            self.firmware.update(self.pending)
            self.pending.clear()
        self.boots += 1
        if self.listener:
            self.listener.close()
            self.listener = None
        if on:
            threading.Thread(target=self._boot, args=(self.boots,), daemon=True).start()

    def _boot(self, boot: int) -> None:
        once, self.boot_once = self.boot_once, ""
        time.sleep(0.3)
        if self.medium and once == "Cd":
            with contextlib.suppress(OSError, urllib.error.URLError):
                Agent(self, boot).run()
        elif boot == self.boots and any(self.disks.values()):
            self.listener = socket.create_server((self.address, SSH_PORT))

    def system(self) -> dict[str, Any]:
        """Return what the system on the disk answers over SSH."""
        for content in self.disks.values():
            key = re.search(rb'"ed25519_public": ?"([^"]+)"', content)
            order = re.search(rb'"content": ?"([0-9a-f]{20})\\n"', content)
            build = re.search(rb"BUILD=([A-Za-z0-9.-]+)", content)
            if self.listener and key and order and build:
                return {"key": key[1].decode(), "order": order[1].decode(), "build": build[1].decode()}
        return {}

    def as_dict(self) -> dict[str, Any]:
        return {
            "power": self.power, "medium": self.medium, "writes": self.writes, "agents": self.agents,
            "boots": self.boots,
            "wipes": self.wipes, "firmware": self.firmware, "requests": self.requests,
            "fault": self.fault, "system": self.system(),
            "written": [serial for serial, content in self.disks.items() if content],
        }  # fmt: skip


class Agent:
    """The agent of a ramdisk, as far as Ironic sees it."""

    def __init__(self, server: Server, boot: int) -> None:
        self.server, self.boot = server, boot
        self.commands: list[dict[str, Any]] = []
        self.token = self.api = self.uuid = ""
        self.over = threading.Event()

    def run(self) -> None:
        with urllib.request.urlopen(self.server.medium, timeout=60) as answer:
            iso = answer.read()
        self.token = _first(rb"ipa-agent-token=(\S+)", iso)
        self.api = _first(rb"ipa-api-url=(\S+)", iso)
        mac = _first(rb'"ethernet_mac_address": ?"([0-9a-f:]+)"', iso)
        assert mac == self.server.mac, "the medium of another server"
        self.server.agents += 1
        found = self._call("GET", f"/v1/lookup?addresses={mac}")
        self.uuid = found["node"]["uuid"]
        agent = self

        class Handler(_Json):
            def do_GET(self) -> None:
                self.reply(200, {"commands": agent.commands})

            def do_POST(self) -> None:
                self.reply(200, agent.command(self.body()))

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        listener = http.server.ThreadingHTTPServer((self.server.address, AGENT_PORT), Handler)
        listener.socket = self.server.context.wrap_socket(
            listener.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        try:
            while self._alive() and not self.over.is_set():
                with contextlib.suppress(OSError, urllib.error.URLError):
                    self._heartbeat()
                self.over.wait(5)
        finally:
            listener.shutdown()
            listener.server_close()

    def command(self, body: dict[str, Any]) -> dict[str, Any]:
        name, params = body["name"], body.get("params") or {}
        command: dict[str, Any] = {
            "id": secrets.token_hex(8), "command_name": name.rpartition(".")[2], "command_params": params,
            "command_status": "SUCCEEDED", "command_result": {}, "command_error": None,
        }  # fmt: skip
        self.commands.append(command)
        if name == "deploy.get_deploy_steps":
            step = {"step": "write_image", "priority": 0, "interface": "deploy", "reboot_requested": False}
            command["command_result"] = {
                "deploy_steps": {"GenericHardwareManager": [step]},
                "hardware_manager_version": {"generic_hardware_manager": "1.2"},
            }
        elif name == "deploy.execute_deploy_step":
            command["command_status"] = "RUNNING"
            threading.Thread(target=self._step, args=(command, params), daemon=True).start()
        elif name == "clean.get_clean_steps":
            step = {"step": "wipe_named_disks", "priority": 0, "interface": "deploy", "reboot_requested": False}
            command["command_result"] = {
                "clean_steps": {"BaremetalGuard": [{**step, "argsinfo": {"disks": {}, "secure": {}}}]},
                "hardware_manager_version": {"baremetal_guard": "1"},
            }
        elif name == "clean.execute_clean_step":
            command["command_status"] = "RUNNING"
            threading.Thread(target=self._step, args=(command, params, "clean"), daemon=True).start()
        elif name == "standby.power_off":
            self.over.set()
            threading.Timer(0.2, self.server.switch, [False]).start()
        return command

    def _step(self, command: dict[str, Any], params: dict[str, Any], kind: str = "deploy") -> None:
        step, node = params["step"], params["node"]
        try:
            if step["step"] == "write_image":
                self._write(step["args"], node["properties"]["root_device"]["serial"])
            elif step["step"] == "wipe_named_disks":
                self._wipe(step["args"], node["extra"]["released"])
            if not self._alive():
                return  # a server without power reports nothing
            command["command_result"] = {f"{kind}_result": "done", f"{kind}_step": step}
            command["command_status"] = "SUCCEEDED"
        except Exception as exc:
            command["command_status"] = "FAILED"
            command["command_error"] = {
                "type": "DeploymentError",
                "code": 500,
                "message": str(exc),
                "details": str(exc),
            }
        with contextlib.suppress(OSError, urllib.error.URLError):
            self._heartbeat()

    def _write(self, args: dict[str, Any], disk: str) -> None:
        info = args["image_info"]
        with urllib.request.urlopen(info["urls"][0], timeout=60) as answer:
            image = answer.read()
        if hashlib.sha256(image).hexdigest() != info.get("os_hash_value", info.get("checksum")):
            raise ValueError("the image has another checksum")
        if disk not in self.server.disks:
            raise ValueError(f"no disk has the serial number {disk}")
        end = time.monotonic() + self.server.write_seconds
        self.server.disks[disk] = image[: len(image) // 2]
        while time.monotonic() < end:
            if not self._alive():
                return
            time.sleep(0.05)
        drive = base64.b64decode(args.get("configdrive") or "")
        self.server.disks[disk] = image + (gzip.decompress(drive) if drive else b"")
        self.server.writes.append(disk)

    def _wipe(self, args: dict[str, Any], released: str) -> None:
        if unknown := [disk for disk in args["disks"] if disk not in self.server.disks]:
            raise ValueError(f"no disk is called {unknown[0]}")
        end = time.monotonic() + self.server.write_seconds
        while self._alive() and time.monotonic() < end:
            time.sleep(0.05)
        if self._alive():
            self.server.disks.update(dict.fromkeys(args["disks"], b""))
            self.server.wipes.append([released, args["secure"], *args["disks"]])

    def _alive(self) -> bool:
        return self.server.power == "On" and self.server.boots == self.boot

    def _heartbeat(self) -> None:
        body = {
            "callback_url": f"https://{self.server.address}:{AGENT_PORT}",
            "agent_version": AGENT_VERSION,
            "agent_token": self.token,
            "agent_verify_ca": self.server.authority,
        }
        self._call("POST", f"/v1/heartbeat/{self.uuid}", body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self.api + path, data=json.dumps(body).encode() if body else None, method=method, headers=API
        )
        with urllib.request.urlopen(request, timeout=60, context=ssl._create_unverified_context()) as answer:
            text = answer.read()
        return json.loads(text) if text else {}


class _Json(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self) -> Any:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(text) if text else {}

    def reply(self, status: int, document: Any = None, headers: dict[str, str] | None = None) -> None:
        text = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_words: Any) -> None:
        pass


def bmc_of(server: Server) -> type[_Json]:
    """Return the handler of a server's BMC."""

    class Handler(_Json):
        def handle_one_request(self) -> None:
            if server.fault == "hang":
                time.sleep(3600)
            super().handle_one_request()

        def known(self) -> bool:
            account = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
            basic = self.headers.get("Authorization") == f"Basic {account}"
            return server.fault != "account" and (basic or self.headers.get("X-Auth-Token") in server.sessions)

        def refuse(self, status: int, text: str) -> None:
            self.reply(
                status, {"error": {"code": "Base.1.0.GeneralError", "message": text}}, {"WWW-Authenticate": "Basic"}
            )

        def refuses(self) -> bool:
            """Count a change; answer it with an error where the fault says so."""
            server.orders += 1
            kind, _space, number = server.fault.partition(" ")
            if kind != "order" or server.orders < int(number):
                return False
            self.refuse(500, f"the change {number} is refused")
            return True

        def do_GET(self) -> None:
            server.requests += 1
            path = self.path.partition("?")[0].rstrip("/")
            if path != ROOT and not self.known():
                return self.refuse(401, "not authenticated")
            document = server.documents().get(path)
            return self.reply(200, document) if document else self.refuse(404, "not found")

        def do_PATCH(self) -> None:
            body = self.body()
            if not self.known():
                return self.refuse(401, "not authenticated")
            if self.refuses():
                return None
            if self.path.rstrip("/").endswith("/Bios/Settings"):
                server.pending.update(body["Attributes"])
                return self.reply(204)
            boot = body.get("Boot", {})
            enabled = boot.get("BootSourceOverrideEnabled", "Once")
            if "BootSourceOverrideTarget" in boot:
                target = boot["BootSourceOverrideTarget"]
                server.boot_once = "" if enabled == "Disabled" or target == "None" else target
            return self.reply(204)

        def do_DELETE(self) -> None:
            server.sessions.discard(self.path.rsplit("/", 1)[-1])
            self.reply(204)

        def do_POST(self) -> None:
            body = self.body()
            if self.path.rstrip("/").endswith("/Sessions"):
                good = server.fault != "account" and (body.get("UserName"), body.get("Password")) == (
                    USERNAME,
                    PASSWORD,
                )
                if not good:
                    return self.refuse(401, "not authenticated")
                token = secrets.token_hex(8)
                server.sessions.add(token)
                place = f"{ROOT}/SessionService/Sessions/{token}"
                return self.reply(201, {"@odata.id": place, "Id": token}, {"X-Auth-Token": token, "Location": place})
            if not self.known():
                return self.refuse(401, "not authenticated")
            if self.refuses():
                return None
            if self.path.endswith("InsertMedia"):
                if server.fault == "media":
                    return self.refuse(500, "the remote image cannot be mounted")
                server.medium = body["Image"]
            elif self.path.endswith("EjectMedia"):
                server.medium = ""
            elif self.path.endswith("ComputerSystem.Reset"):
                server.switch(body["ResetType"] in ("On", "ForceRestart"))
            else:
                return self.refuse(404, "not found")
            return self.reply(204)

    return Handler


def control_of(servers: dict[str, Server]) -> type[_Json]:
    """Return the handler of the control port."""

    class Handler(_Json):
        def do_GET(self) -> None:
            self.reply(200, {address: server.as_dict() for address, server in servers.items()})

        def do_POST(self) -> None:
            server, body = servers[self.path.strip("/")], self.body()
            server.fault = body.get("fault", server.fault)
            server.write_seconds = body.get("write_seconds", server.write_seconds)
            if "power" in body:
                server.switch(body["power"] == "On")
            self.reply(200, server.as_dict())

    return Handler


def bmc_address(address: str) -> str:
    """Return the address of a server's BMC: 127.120.0.1 for 127.20.0.1."""
    return address.replace("127.", "127.1", 1)


def serve(servers: list[Server], certificate: Path, authority: Path) -> http.server.ThreadingHTTPServer:
    """Start the BMCs, each at its address; return the server of the control port, which is not started."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    for server in servers:
        server.context, server.authority = context, authority.read_text()
        bmc = http.server.ThreadingHTTPServer((bmc_address(server.address), BMC_PORT), bmc_of(server))
        bmc.daemon_threads = True
        # The handshake belongs to the connection's thread: one that hangs must not stop the others.
        bmc.socket = context.wrap_socket(bmc.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=bmc.serve_forever, daemon=True).start()
    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), control_of({server.address: server for server in servers}))


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _collection(paths: list[str]) -> dict[str, Any]:
    return {"Name": "collection", "Members": [_link(path) for path in paths], "Members@odata.count": len(paths)}


def _first(pattern: bytes, text: bytes) -> str:
    found = re.search(pattern, text)
    return found[1].decode() if found else ""


def main(kind: type[Server] = Server) -> None:
    """Serve a plan: ``{"certificate": server.pem, "authority": ca.pem, "servers": [{"address": ..., "mac": ...}]}``."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    servers = [kind(**{**each, "disks": dict.fromkeys(each["disks"], b"")}) for each in plan["servers"]]
    control = serve(servers, Path(plan["certificate"]), Path(plan["authority"]))
    print(control.server_port, flush=True)
    threading.Thread(target=control.serve_forever, daemon=True).start()
    sys.stdin.read()
    for server in servers:
        server.switch(False)


if __name__ == "__main__":
    main()
