# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan what bin/lab does, from the inventory, the environment and the current state."""

from __future__ import annotations

import difflib
import hashlib
import io
import ipaddress
import json
import re
import shlex
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The packages that Debian's installer puts on a server, and nothing that a role installs.
PACKAGES = [
    "ca-certificates",
    "curl",
    "dbus",
    "debian-archive-keyring",
    "gnupg",
    "iproute2",
    "iputils-ping",
    "kmod",
    "less",
    "libpam-systemd",
    "netbase",
    "openssh-server",
    "pciutils",
    "procps",
    "python3",
    "python3-apt",
    "sudo",
    "systemd",
    "systemd-sysv",
    "tzdata",
    "udev",
]

# These options make a container a server: its own cgroup v2, a /dev/shm of systemd's size, shared mounts
# (systemd's credentials need them), and no access to the controller's kernel: its log, modules, clock and memory.
BOOT = (
    "umount -R /sys/fs/cgroup; umount /dev/shm; rm -f /dev/kmsg; "
    "mount --make-rshared / && mount -t cgroup2 cgroup2 /sys/fs/cgroup && "
    "exec setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio /sbin/init"
)
# Container engines keep their layers here, on volumes of the host, because an overlay cannot be on an overlay. The
# volumes are removed with the host.
ENGINE_DIRECTORIES = ("/var/lib/docker", "/var/lib/containers")
RESERVED_NAMES = ("cache", "made", "mirror")


class LabError(Exception):
    """A problem that the user can solve; the message says how."""


@dataclass(frozen=True)
class Host:
    """A host of the inventory."""

    name: str
    octet: int
    image: str
    mounts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Lab:
    """One lab of possibly several on this controller."""

    name: str
    prefix: str
    home: Path
    cache: Path
    internal: bool = False

    @property
    def directory(self) -> Path:
        return self.home / self.name

    @property
    def ssh(self) -> Path:
        return self.directory / "ssh"

    @property
    def run(self) -> Path:
        return Path("/run") / f"bminf-{self.name}"

    @property
    def network(self) -> str:
        return f"bminf-{self.name}"

    @property
    def subnet(self) -> str:
        return f"{self.prefix}.0/24"

    @property
    def gateway(self) -> str:
        """The controller's own address in the network."""
        return f"{self.prefix}.1"

    @property
    def images(self) -> str:
        """The image repository of this cache, so that two checkouts never remove each other's images."""
        return f"localhost/bminf-{digest(str(self.cache))[:8]}"

    def container(self, host: Host) -> str:
        return f"bminf-{self.name}-{host.name}"

    def address(self, host: Host) -> str:
        return f"{self.prefix}.{host.octet}"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the content of an image."""

    release: str
    sources: tuple[str, ...]
    apt_options: tuple[str, ...]
    certificates: tuple[str, ...]
    script: str

    @property
    def options(self) -> tuple[str, ...]:
        """The options of mmdebstrap."""
        apt = [f"--aptopt={option}" for option in self.apt_options]
        # An incomplete image is discarded as a whole, so dpkg need not wait for the disk.
        return ("--variant=minbase", f"--include={','.join(PACKAGES)}", "--dpkgopt=force-unsafe-io", *apt)

    @property
    def key(self) -> str:
        return digest(self.release, *self.options, *self.sources, *self.certificates, self.script)[:12]


def digest(*texts: str) -> str:
    """Return a sha256 over texts that differs for every other split of the same characters."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def parse_lab(environment: Mapping[str, str], inventory: Mapping[str, Any], top: Path) -> Lab:
    """Return the lab for the environment, with the inventory's defaults."""
    defaults = inventory["lab"]["vars"]
    name = environment.get("LAB_NAME") or defaults["lab_default_name"]
    prefix = environment.get("LAB_SUBNET_PREFIX") or defaults["lab_default_subnet_prefix"]
    home = Path(environment.get("LAB_HOME") or top / ".lab").absolute()
    cache = Path(environment.get("LAB_CACHE") or home / "cache").absolute()
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,20}", name) or name in RESERVED_NAMES:
        reserved = ", ".join(RESERVED_NAMES)
        raise LabError(f"LAB_NAME={name}: use up to 21 lower-case letters, digits and dashes, but not {reserved}.")
    try:
        ipaddress.IPv4Network(f"{prefix}.0/24")
    except ValueError:
        raise LabError(
            f"LAB_SUBNET_PREFIX={prefix}: write the first three numbers of a /24, as in 10.87.200."
        ) from None
    if re.search(r"\s", str(home)):
        raise LabError(
            f"LAB_HOME={home}: OpenSSH takes no path with a space in it. Set LAB_HOME to a path without one."
        )
    return Lab(name, prefix, home, cache, environment.get("LAB_INTERNAL", "") not in ("", "0"))


def parse_hosts(inventory: Mapping[str, Any], path: str) -> dict[str, Host]:
    """Return the hosts of a YAML inventory by name; the variables of a host in several groups are merged."""
    variables: dict[str, dict[str, Any]] = {}
    for group in walk_groups(inventory):
        for name, values in (group.get("hosts") or {}).items():
            variables.setdefault(name, {}).update(values or {})
    hosts: dict[str, Host] = {}
    for name, values in variables.items():
        octet, image = values.get("lab_octet"), values.get("lab_image")
        if not isinstance(octet, int) or not 2 <= octet <= 254:
            raise LabError(f"{path}: host {name}: lab_octet is {octet!r}; give it a number from 2 to 254.")
        if not isinstance(image, str) or not re.fullmatch(r"[a-z]+", image):
            raise LabError(f"{path}: host {name}: lab_image is {image!r}; give it a Debian release, as in bookworm.")
        twin = next((host.name for host in hosts.values() if host.octet == octet), None)
        if twin:
            raise LabError(f"{path}: hosts {twin} and {name} both have lab_octet {octet}.")
        hosts[name] = Host(name, octet, image, tuple((values.get("lab_mounts") or {}).items()))
    return hosts


def walk_groups(groups: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield every group of a YAML inventory, parents first."""
    for group in groups.values():
        yield group or {}
        yield from walk_groups((group or {}).get("children") or {})


def choose(hosts: Mapping[str, Host], names: Sequence[str]) -> list[Host]:
    """Return the named hosts, or all hosts without names."""
    for name in names:
        if name not in hosts:
            near = difflib.get_close_matches(name, hosts, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise LabError(f"The lab has no host {name}; it has {', '.join(hosts)}.{hint}")
    return [hosts[name] for name in names or hosts]


def plain_inventory(inventory: Mapping[str, Any], lab: Lab, hosts: Sequence[Host]) -> dict[str, Any]:
    """Return an inventory of hosts with every connection setting in plain text, for tools that read no templates."""
    options = " ".join(f"-o {shlex.quote(option)}" for option in ssh_options(lab))
    settings = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(lab.ssh / "id_ed25519"),
        "ansible_ssh_common_args": f"-F none {options}",
    }
    up = {host.name: {"ansible_host": lab.address(host)} for host in hosts}
    children = {}
    for name, group in inventory["lab"]["children"].items():
        members: dict[str, dict[str, str]] = {member: {} for member in group["hosts"] if member in up}
        if members:
            children[name] = {"hosts": members}
    return {"lab": {"hosts": up, "vars": settings, "children": children}}


def ssh_options(lab: Lab) -> tuple[str, ...]:
    """Return the options of every connection to a lab host."""
    return ("IdentitiesOnly=yes", f"UserKnownHostsFile={lab.ssh / 'known_hosts'}", "StrictHostKeyChecking=yes")


def ssh_command(lab: Lab, host: Host, *more: str) -> list[str]:
    """Return the ssh command that reaches a host, with more options of ssh."""
    options = [word for option in (*ssh_options(lab), *more) for word in ("-o", option)]
    return ["ssh", "-F", "none", "-i", str(lab.ssh / "id_ed25519"), *options, f"root@{lab.address(host)}"]


def known_hosts(lab: Lab, public_keys: Mapping[Host, str]) -> str:
    """Return the known_hosts file of a lab: the address of each host, and its key."""
    return "".join(f"{lab.address(host)} {' '.join(key.split()[:2])}\n" for host, key in public_keys.items())


def containers_conf(hard_limits: Sequence[int]) -> str:
    """Return podman's configuration; hard_limits are this process's of open files and of processes (-1: none)."""
    # By default podman requests 1048576 of each, which fails where root may not raise its own limits; podman 4.3 then
    # also lowers its limit of processes to that of files.
    limit = min(value if value >= 0 else 1048576 for value in (*hard_limits, 1048576))
    settings: dict[str, dict[str, Any]] = {
        # crun refuses a mixed layout of cgroup v1 and v2.
        "engine": {"runtime": "runc", "events_logger": "none"},
        "containers": {
            "default_ulimits": [f"nofile={limit}:{limit}", f"nproc={limit}:{limit}"],
            # The names in the controller's /etc/hosts are not those of the lab.
            "base_hosts_file": "none",
            "log_driver": "k8s-file",
            "log_size_max": 1048576,
        },
        "network": {"network_backend": "netavark"},
    }
    # Strings, numbers and lists have the same form in JSON and TOML.
    return "".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for table, values in settings.items()
    )


def network_options(lab: Lab) -> tuple[str, ...]:
    """Return the options of podman that limit the reach of a lab's network."""
    # An internal network has no route out, and nobody there queries the controller's name servers.
    return ("--internal", "--disable-dns") if lab.internal else ()


def create_command(lab: Lab, host: Host, image: str, others: Iterable[Host] = ()) -> list[str]:
    """Return the arguments of podman that create a host; in an internal lab its hosts file names the other hosts."""
    address = lab.address(host)
    # The hardware address stays the same after a restart, so that neighbour tables stay valid.
    mac = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
    alias = "" if lab.internal else f",alias={host.name}"
    command = ["create", "--name", lab.container(host), "--hostname", host.name, "--pull", "never"]
    command += ["--network", f"{lab.network}:ip={address},mac={mac}{alias}"]
    command += ["--privileged", "--cgroupns", "private", "--systemd", "false", "--stop-signal", "SIGRTMIN+3"]
    command += ["--tmpfs", "/run", "--tmpfs", "/tmp:exec", "--env", "container=podman"]  # noqa: S108
    if lab.internal:
        command += ["--dns", "none"]
        command += [word for other in others for word in ("--add-host", f"{other.name}:{lab.address(other)}")]
    for source, target in host.mounts:
        command += ["--volume", f"{lab.home / source}:{target}"]
    for directory in ENGINE_DIRECTORIES:
        command += ["--volume", directory]
    for key, value in labels(lab).items():
        command += ["--label", f"{key}={value}"]
    return [*command, "--label", f"bminf.host={host.name}", image, "/bin/sh", "-c", BOOT]


def labels(lab: Lab) -> dict[str, str]:
    """Return the labels of all objects of a lab in podman."""
    return {"bminf.lab": lab.name, "bminf.home": str(lab.home)}


def next_step(state: str | None, found: str | None, wanted: str) -> str:
    """Return the next step for a host: create, recreate, start, restart or keep.

    state is podman's state of its container, None where there is none; found and wanted are digests of definitions.
    """
    if state is None:
        return "create"
    # A container that was never started may lack its keys, because an earlier run was killed.
    if state in ("created", "configured", "initialized") or found != wanted:
        return "recreate"
    return {"running": "keep", "exited": "start", "stopped": "start"}.get(state, "restart")


def clashes(subnet: str, used: Iterable[tuple[str, str]]) -> list[str]:
    """Return the users of overlapping addresses, out of pairs of network and user."""
    wanted = ipaddress.IPv4Network(subnet)
    return sorted({user for network, user in used if wanted.overlaps(ipaddress.IPv4Network(network, strict=False))})


def routed(routes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return pairs of network and user from the output of `ip -json -4 route`."""
    return [
        (route["dst"], f"interface {route['dev']}") for route in routes if "dev" in route and route["dst"] != "default"
    ]


def apt_entries(text: str) -> list[dict[str, str]]:
    """Return the entries of a file in either of apt's two formats, with keys in lower case."""
    if re.search(r"(?mi)^types:", text):
        return [parse_stanza(stanza) for stanza in re.split(r"\n\s*\n", text) if re.search(r"(?mi)^types:", stanza)]
    entries = []
    for match in re.finditer(r"(?m)^\s*(deb)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#\n]+)", text):
        options = dict(option.lower().split("=", 1) for option in (match[2] or "").split() if "=" in option)
        entry = {"types": match[1], "uris": match[3], "suites": match[4], "components": match[5].strip()}
        entries.append({**options, **entry})
    return entries


def parse_stanza(text: str) -> dict[str, str]:
    """Return the fields of one deb822 stanza, with keys in lower case and continued lines joined."""
    fields: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[key] = f"{fields.get(key, '')} {line.strip()}".strip()
        elif ":" in line:
            key, value = line.split(":", 1)
            key = key.lower()
            fields[key] = value.strip()
    return fields


def debian_sources(entries: Iterable[Mapping[str, str]], own: str, release: str) -> list[str]:
    """Return apt lines for a release, from the sources that a controller with the release own uses for Debian.

    Empty where the controller has no Debian entries: then mmdebstrap uses its own default.
    """
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    lines = []
    for entry in entries:
        signer = entry.get("signed-by", keyring)
        official = "main" in entry.get("components", "").split() and Path(signer).name.startswith("debian-archive")
        if not official or "deb" not in entry["types"].split() or entry.get("enabled", "yes").lower() == "no":
            continue
        for uri in entry["uris"].split():
            for suite in entry["suites"].split():
                # Without backports: a server has only its release's packages.
                if uri.startswith("http") and suite.removeprefix(own) in ("", "-updates", "-security"):
                    lines.append(f"deb [signed-by={keyring}] {uri} {suite.replace(own, release, 1)} main")
    return lines


def apt_options(dump: str) -> list[str]:
    """Return the apt options for a controller's sources (proxy, date checks), from `apt-config dump`."""
    pattern = r"(?m)^(Acquire::(?:https?::(?:Proxy|Timeout)|Retries|Check-Valid-Until|Check-Date)\S* \"[^\"]+\");$"
    return re.findall(pattern, dump)


def certificates_of(text: str) -> list[str]:
    """Return the certificates of a PEM file."""
    return re.findall(r"-----BEGIN CERTIFICATE-----\s.+?\s-----END CERTIFICATE-----", text, re.DOTALL)


def archive(files: Mapping[str, tuple[str, int]]) -> bytes:
    """Return a tar archive of root's files: path -> text and mode."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (text, mode) in files.items():
            data = text.encode()
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode, member.mtime = len(data), mode, int(time.time())
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
