#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make, show and take down the lab: the Debian hosts of inventories/lab/hosts.yml as podman containers that boot systemd.

LAB_NAME, LAB_SUBNET_PREFIX, LAB_HOME, LAB_CACHE and LAB_CA_FILE change what docs/lab.md says they change.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fcntl
import hashlib
import io
import ipaddress
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TOP = Path(__file__).resolve().parents[1]
INVENTORY = TOP / "inventories" / "lab" / "hosts.yml"
IMAGE_SCRIPT = TOP / "tools" / "lab_image.sh"
STARTED = time.monotonic()

# What a Debian server has from its installer, and nothing that a role is there to install.
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

# A command or file that the lab calls -> the Debian package that brings it.
NEEDED = {
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}

# Every host gets a cgroup v2 of its own, as a server has. It shares the controller's kernel, so it must not load modules into
# it, set its clock or touch its memory.
BOOT = (
    "umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup && "
    "exec setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio /sbin/init"
)
BOOT_SECONDS = 90
# Longer than any unit's TimeoutStopSec here: a host that is restarted stops its services properly.
STOP_SECONDS = 120
CONFIGURATION = "containers.conf"
RESERVED_NAMES = ("cache", "mirror")


class LabError(Exception):
    """Something that the person at the keyboard can change; the message says what."""


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
    def images(self) -> str:
        """The image repository of this cache, so that two checkouts never remove each other's images."""
        return f"localhost/bminf-{digest(str(self.cache))[:8]}"

    def container(self, host: Host) -> str:
        return f"bminf-{self.name}-{host.name}"

    def address(self, host: Host) -> str:
        return f"{self.prefix}.{host.octet}"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what an image holds."""

    release: str
    sources: tuple[str, ...]
    apt_options: tuple[str, ...]
    certificates: tuple[str, ...]
    script: str

    @property
    def key(self) -> str:
        return digest(self.release, *PACKAGES, *self.sources, *self.apt_options, *self.certificates, self.script)[:12]


# ---- Decisions: no input, no output ----------------------------------------------------------------------------------------


def digest(*texts: str) -> str:
    """Return a sha256 over texts that no other split of the same characters gives."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def parse_lab(environment: Mapping[str, str], inventory: Mapping[str, Any], top: Path) -> Lab:
    """Return the lab that the environment chooses, with the inventory's defaults."""
    defaults = inventory["lab"]["vars"]
    name = environment.get("LAB_NAME") or defaults["lab_default_name"]
    prefix = environment.get("LAB_SUBNET_PREFIX") or defaults["lab_default_subnet_prefix"]
    home = Path(environment.get("LAB_HOME") or top / ".lab").absolute()
    cache = Path(environment.get("LAB_CACHE") or home / "cache").absolute()
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,20}", name) or name in RESERVED_NAMES:
        reserved = " and ".join(RESERVED_NAMES)
        raise LabError(f"LAB_NAME={name}: use up to 21 lower-case letters, digits and dashes; {reserved} are taken.")
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
    return Lab(name, prefix, home, cache)


def parse_hosts(inventory: Mapping[str, Any], path: str) -> dict[str, Host]:
    """Return the hosts of a YAML inventory by name; what a host says in several groups is put together."""
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
    """Return the named hosts, all of them where none is named."""
    for name in names:
        if name not in hosts:
            near = difflib.get_close_matches(name, hosts, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise LabError(f"There is no host {name} in {INVENTORY.relative_to(TOP)}; it has {', '.join(hosts)}.{hint}")
    return [hosts[name] for name in names or hosts]


def plain_inventory(inventory: Mapping[str, Any], lab: Lab, hosts: Sequence[Host]) -> dict[str, Any]:
    """Return an inventory of hosts with every connection setting in plain text, for tools that evaluate no templates."""
    options = " ".join(f"-o {shlex.quote(option)}" for option in ssh_options(lab))
    settings = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(lab.ssh / "id_ed25519"),
        "ansible_ssh_common_args": f"-F none {options}",
    }
    up = {host.name: {"ansible_host": lab.address(host)} for host in hosts}
    children = {}
    for name, group in inventory["lab"]["children"].items():
        members = {member: {} for member in group["hosts"] if member in up}
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
    """Return podman's configuration; hard_limits are those of open files and processes that this process has (-1: none)."""
    # podman asks for 1048576 of each by itself, which fails where root may not raise its own limits (and podman 4.3 then
    # lowers its limit of processes to that of files).
    limit = min(value if value >= 0 else 1048576 for value in (*hard_limits, 1048576))
    settings = {
        # crun refuses a mixed layout of cgroup v1 and v2.
        "engine": {"runtime": "runc", "events_logger": "none"},
        "containers": {
            "default_ulimits": [f"nofile={limit}:{limit}", f"nproc={limit}:{limit}"],
            # The names that the controller's /etc/hosts gives are not those of the lab.
            "base_hosts_file": "none",
            "log_driver": "k8s-file",
            "log_size_max": 1048576,
        },
        "network": {"network_backend": "netavark"},
    }
    # JSON's strings, numbers and lists are TOML's.
    return "".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for table, values in settings.items()
    )


def create_command(lab: Lab, host: Host, image: str) -> list[str]:
    """Return the arguments of podman that make a host."""
    address = lab.address(host)
    # The same hardware address after a restart: nobody's neighbour table is wrong then.
    mac = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
    command = ["create", "--name", lab.container(host), "--hostname", host.name, "--pull", "never"]
    command += ["--network", f"{lab.network}:ip={address},mac={mac},alias={host.name}"]
    command += ["--privileged", "--cgroupns", "private", "--systemd", "false", "--stop-signal", "SIGRTMIN+3"]
    # A server's /dev/shm grows to half of its memory; podman's has 64 MB.
    command += ["--tmpfs", "/run", "--tmpfs", "/tmp:exec", "--shm-size", "0", "--env", "container=podman"]  # noqa: S108
    for source, target in host.mounts:
        command += ["--volume", f"{lab.home / source}:{target}"]
    for key, value in labels(lab).items():
        command += ["--label", f"{key}={value}"]
    return [*command, "--label", f"bminf.host={host.name}", image, "/bin/sh", "-c", BOOT]


def labels(lab: Lab) -> dict[str, str]:
    """Return what marks everything that podman holds of a lab."""
    return {"bminf.lab": lab.name, "bminf.home": str(lab.home)}


def next_step(state: str | None, found: str | None, wanted: str) -> str:
    """Return what a host needs: create, recreate, start, restart or keep.

    state is podman's word for its container, None where there is none; found and wanted are definitions (their digests).
    """
    if state is None:
        return "create"
    # A container that was never started may lack its keys: a run before this one was killed.
    if state in ("created", "configured", "initialized") or found != wanted:
        return "recreate"
    return {"running": "keep", "exited": "start", "stopped": "start"}.get(state, "restart")


def clashes(subnet: str, used: Iterable[tuple[str, str]]) -> list[str]:
    """Return who already uses addresses of a subnet, out of pairs of network and user."""
    wanted = ipaddress.IPv4Network(subnet)
    return sorted({user for network, user in used if wanted.overlaps(ipaddress.IPv4Network(network, strict=False))})


def routed(routes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return pairs of network and user out of `ip -json -4 route`."""
    return [
        (route["dst"], f"interface {route['dev']}") for route in routes if "dev" in route and route["dst"] != "default"
    ]


def apt_entries(text: str) -> list[dict[str, str]]:
    """Return the entries of a file in either of apt's two formats, keys in lower case."""
    if re.search(r"(?mi)^types:", text):
        return [parse_stanza(stanza) for stanza in re.split(r"\n\s*\n", text) if re.search(r"(?mi)^types:", stanza)]
    entries = []
    for match in re.finditer(r"(?m)^\s*(deb)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#\n]+)", text):
        options = dict(option.lower().split("=", 1) for option in (match[2] or "").split() if "=" in option)
        entry = {"types": match[1], "uris": match[3], "suites": match[4], "components": match[5].strip()}
        entries.append({**options, **entry})
    return entries


def parse_stanza(text: str) -> dict[str, str]:
    """Return the fields of one deb822 stanza, keys in lower case, continued lines joined."""
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
    """Return apt lines for a release, from the same places that a controller of the release own takes Debian from.

    Empty where the controller has no entries of Debian: mmdebstrap's own default serves then.
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
                # Not backports: a server has what its release has.
                if uri.startswith("http") and suite.removeprefix(own) in ("", "-updates", "-security"):
                    lines.append(f"deb [signed-by={keyring}] {uri} {suite.replace(own, release, 1)} main")
    return lines


def apt_options(dump: str) -> list[str]:
    """Return how a controller reaches its sources (proxy, checks of dates), out of `apt-config dump`."""
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


# ---- Podman, files, SSH ----------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


def run(command: Sequence[str], data: bytes | None = None) -> str:
    """Run a command and return its output; what it says on failure becomes the error."""
    result = subprocess.run(command, input=data, capture_output=True)
    if result.returncode:
        raise LabError(f"`{shlex.join(command)}` failed:\n{complaint(result.stderr.decode())}")
    return result.stdout.decode()


def complaint(stderr: str) -> str:
    """Return what matters of a message of podman: netavark misses a syslog on many machines, which harms nothing."""
    return "\n".join(line for line in stderr.strip().splitlines() if "failed to connect to syslog" not in line)


def podman(*arguments: str, data: bytes | None = None) -> str:
    return run(["podman", *arguments], data)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file by rename, so that nobody reads half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.chmod(mode)
    partial.replace(path)


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[int]:
    """Hold a lock file, waiting for another run that holds it; gives its descriptor."""
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another run that works on {what}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            # `down` removes the file while it holds the lock; a lock on a removed file keeps nobody out.
            if path.exists() and path.samefile(f"/proc/self/fd/{handle.fileno()}"):
                yield handle.fileno()
                return


def configure_podman(lab: Lab) -> None:
    """Write podman's configuration and have every call of podman use it."""
    lab.home.mkdir(parents=True, exist_ok=True)
    limits = [resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)]
    write(lab.home / CONFIGURATION, containers_conf(limits))
    os.environ["CONTAINERS_CONF"] = str(lab.home / CONFIGURATION)


def require_controller(arguments: Sequence[str]) -> None:
    """Fail where this machine cannot carry a lab, with the one command that changes it."""
    if os.geteuid():
        settings = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith("LAB_")]
        raise LabError(f"The lab needs root. Run: {shlex.join(['sudo', *settings, 'tools/lab', *arguments])}")
    absent = sorted({package for thing, package in NEEDED.items() if not (shutil.which(thing) or Path(thing).exists())})
    if absent:
        raise LabError(f"Not installed here: {', '.join(absent)}. Run: {TOP / 'tools' / 'bootstrap.sh'}")


# Images


def read_recipe(release: str) -> Recipe:
    """Return the recipe of a release's image on this controller."""
    entries = [entry for path in apt_files() for entry in apt_entries(path.read_text())]
    entries = [{**entry, "uris": expand_mirrors(entry["uris"])} for entry in entries]
    own = os_release().get("VERSION_CODENAME", "") if os_release().get("ID") == "debian" else ""
    sources = debian_sources(entries, own, release) if own else []
    options = apt_options(run(["apt-config", "dump"]))
    return Recipe(release, tuple(sources), tuple(options), tuple(site_certificates()), IMAGE_SCRIPT.read_text())


def apt_files() -> list[Path]:
    directory = Path("/etc/apt")
    found = [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]
    return [path for path in found if path.is_file() and path.suffix in (".list", ".sources")]


def expand_mirrors(uris: str) -> str:
    """Return URIs with lists of mirrors (Debian's cloud images use them) replaced by the first mirror of the list."""
    expanded = []
    for uri in uris.split():
        path = Path("/", uri.removeprefix("mirror+file:").lstrip("/"))
        listed = path.read_text().split() if uri.startswith("mirror+file:") and path.is_file() else [uri]
        expanded += listed[:1]
    return " ".join(expanded)


def os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _equals, value in (line.partition("=") for line in lines)}


def site_certificates() -> list[str]:
    """Return the certificates that this controller trusts and a fresh Debian does not."""
    chosen = os.environ.get("LAB_CA_FILE", "")
    if chosen == "none":
        return []
    if chosen:
        found = certificates_of(Path(chosen).read_text())
        if not found:
            raise LabError(f"LAB_CA_FILE={chosen}: there is no PEM certificate in it.")
        return found
    own = sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
    bundle = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    trusted = [text for path in (*own, bundle) if path.is_file() for text in certificates_of(path.read_text())]
    common = Path("/usr/share/ca-certificates").rglob("*.crt")
    public = {text for path in common for text in certificates_of(path.read_text())}
    return sorted(set(trusted) - public)


def image_tag(lab: Lab, recipe: Recipe) -> str:
    return f"{lab.images}:{recipe.release}-{recipe.key}"


def ensure_image(lab: Lab, release: str) -> str:
    """Return the image of a release, built and imported if it is not there."""
    recipe = read_recipe(release)
    tag = image_tag(lab, recipe)
    if has_image(tag):
        return tag
    with locked(lab.cache / "lock", "images") as lock:
        tarball = lab.cache / f"{release}-{recipe.key}.tar"
        if not tarball.exists():
            build_image(lab, recipe, tarball, lock)
        if not has_image(tag):
            say(f"image {release}: importing it into podman")
            podman("import", "--quiet", str(tarball), tag)
        forget_old_images(lab, release, keep=tarball)
    return tag


def has_image(tag: str) -> bool:
    return subprocess.run(["podman", "image", "exists", tag]).returncode == 0


def build_image(lab: Lab, recipe: Recipe, tarball: Path, lock: int) -> None:
    """Build a root file system with mmdebstrap; the lock outlives this process if it is killed before mmdebstrap ends."""
    scratch = lab.cache / "scratch"
    # One file system: a build that was killed might have left the controller's own /proc mounted in there.
    run(["rm", "-rf", "--one-file-system", str(scratch)])
    certificates = scratch / "certificates"
    scratch.mkdir()
    if recipe.certificates:
        certificates.mkdir()
    for number, text in enumerate(recipe.certificates):
        write(certificates / f"lab-{number}.crt", f"{text}\n")
    partial = scratch / tarball.name
    command = ["setpriv", "--pdeathsig", "TERM", "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += ["--dpkgopt=force-unsafe-io", *(f"--aptopt={option}" for option in recipe.apt_options)]
    command += [f"--customize-hook={IMAGE_SCRIPT}", recipe.release, str(partial), *recipe.sources]
    environment = {**os.environ, "TMPDIR": str(scratch), "LAB_CERTIFICATES": str(certificates)}
    show_progress(f"image {recipe.release}", command, environment, lock)
    partial.replace(tarball)
    run(["rm", "-rf", "--one-file-system", str(scratch)])


def show_progress(title: str, command: Sequence[str], environment: Mapping[str, str], lock: int) -> None:
    """Run mmdebstrap, its steps shown as they come and its whole output as the error."""
    process = subprocess.Popen(command, env=environment, pass_fds=[lock], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(line)
        step = re.match(r"I: (running apt-get update|\w+ing .*packages.*|extracting .*|creating tarball)", line)
        if step:
            say(f"{title}: {step[1].removesuffix('...')}")
    if process.wait():
        raise LabError(f"{title}: mmdebstrap failed:\n{''.join(lines[-30:])}")


def forget_old_images(lab: Lab, release: str, keep: Path) -> None:
    """Remove what earlier recipes of a release made; an image that a host still uses stays until that host goes."""
    for tarball in lab.cache.glob(f"{release}-*.tar"):
        if tarball != keep:
            tarball.unlink()
            subprocess.run(["podman", "image", "rm", f"{lab.images}:{tarball.stem}"], capture_output=True)


# Keys


def ensure_keys(lab: Lab, hosts: Iterable[Host]) -> dict[Host, str]:
    """Make the keys that are missing, and known_hosts of them; return each host's public key."""
    lab.directory.mkdir(mode=0o700, exist_ok=True)
    lab.ssh.mkdir(mode=0o700, exist_ok=True)
    ensure_key(lab.ssh / "id_ed25519", f"lab-{lab.name}")
    for host in hosts:
        ensure_key(host_key(lab, host), host.name)
    public_keys = {host: host_key(lab, host).with_suffix(".pub").read_text() for host in hosts}
    write(lab.ssh / "known_hosts", known_hosts(lab, public_keys))
    return public_keys


def host_key(lab: Lab, host: Host) -> Path:
    return lab.ssh / f"host_{host.name}"


def ensure_key(path: Path, comment: str) -> None:
    """Make a key pair; its private half comes last, so that where it is the pair is whole."""
    if path.exists():
        return
    partial = path.with_name(f".{path.name}.partial")
    for leftover in (partial, partial.with_suffix(".partial.pub")):
        leftover.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(partial)])
    partial.with_suffix(".partial.pub").replace(path.with_suffix(".pub"))
    partial.replace(path)


def credentials(lab: Lab, host: Host) -> dict[str, tuple[str, int]]:
    """Return the files that let the lab's key into a host, and prove the host to whoever comes."""
    key = host_key(lab, host)
    return {
        "/root/.ssh/authorized_keys": ((lab.ssh / "id_ed25519.pub").read_text(), 0o600),
        "/etc/ssh/ssh_host_ed25519_key": (key.read_text(), 0o600),
        "/etc/ssh/ssh_host_ed25519_key.pub": (key.with_suffix(".pub").read_text(), 0o644),
    }


# Network


def find_network(lab: Lab) -> dict[str, Any] | None:
    return next((network for network in networks() if network["name"] == lab.network), None)


def networks() -> list[dict[str, Any]]:
    names = podman("network", "ls", "--quiet").split()
    found: list[dict[str, Any]] = json.loads(podman("network", "inspect", *names)) if names else []
    return found


def ensure_network(lab: Lab) -> None:
    """Make the lab's network, or fail where its name or its addresses are somebody else's."""
    network = find_network(lab)
    if network:
        check_network(lab, network)
        return
    used = routed(json.loads(run(["ip", "-json", "-4", "route", "show"]) or "[]"))
    for other in networks():
        used += [
            (subnet["subnet"], f"podman network {other['name']}")
            for subnet in other.get("subnets") or []
            if "." in subnet["subnet"]
        ]
    found = clashes(lab.subnet, used)
    if found:
        raise LabError(
            f"The subnet {lab.subnet} is already used here ({', '.join(found)}). Set LAB_SUBNET_PREFIX to a free one, as in LAB_SUBNET_PREFIX=10.87.77."
        )
    say(f"network {lab.network}: {lab.subnet}")
    marks = [word for key, value in labels(lab).items() for word in ("--label", f"{key}={value}")]
    podman("network", "create", "--subnet", lab.subnet, *marks, lab.network)


def check_network(lab: Lab, network: Mapping[str, Any]) -> None:
    """Fail where a network of the lab's name is of another checkout, or of other addresses."""
    check_owner(lab, network.get("labels") or {})
    subnet = network["subnets"][0]["subnet"]
    if subnet != lab.subnet:
        prefix = subnet.rsplit(".", 1)[0]
        raise LabError(
            f"Lab {lab.name} runs on {subnet}, not {lab.subnet}. Set LAB_SUBNET_PREFIX={prefix}, "
            f"or take it down first: LAB_NAME={lab.name} tools/lab down"
        )


def check_owner(lab: Lab, found: Mapping[str, str]) -> None:
    home = found.get("bminf.home")
    if home != str(lab.home):
        raise LabError(
            f"A lab {lab.name} exists that belongs to {home}, not to {lab.home}. Set LAB_NAME to another name."
        )


# Hosts


def find_containers(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return podman's words about the containers of a lab, by host name."""
    listed = json.loads(podman("ps", "--all", "--filter", f"label=bminf.lab={lab.name}", "--format", "json"))
    return {item["Labels"]["bminf.host"]: item for item in listed}


def ensure_container(lab: Lab, host: Host, image: str, public_key: str, found: Mapping[str, Any] | None) -> str:
    """Have a host's container running; return the step that it took."""
    command = create_command(lab, host, image)
    wanted = digest(*command, public_key, (lab.ssh / "id_ed25519.pub").read_text())
    step = next_step(found and found["State"], found and found["Labels"].get("bminf.definition"), wanted)
    name = lab.container(host)
    if step == "recreate":
        say(f"{host.name}: half-made or made from another definition; making it anew")
        remove_containers([name])
    if step in ("create", "recreate"):
        for source, _target in host.mounts:
            (lab.home / source).mkdir(parents=True, exist_ok=True)
        podman("create", "--label", f"bminf.definition={wanted}", *command[1:])
        podman("cp", "-", f"{name}:/", data=archive(credentials(lab, host)))
    if step == "restart":
        podman("stop", "--time", str(STOP_SECONDS), name)
    if step != "keep":
        say(f"{host.name}: starting at {lab.address(host)}")
        podman("start", name)
    return step


def remove_containers(names: Sequence[str]) -> None:
    if names:
        podman("rm", "--force", "--time", "0", "--volumes", *names)


def wait_until_up(lab: Lab, host: Host) -> str:
    """Return what systemd says of a host (running, degraded), asked over SSH, as soon as it has booted."""
    command = [
        *ssh_command(lab, host, "ControlPath=none", "ConnectTimeout=3", "BatchMode=yes"),
        "systemctl is-system-running --wait",
    ]
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        result = subprocess.run(command, capture_output=True, text=True, timeout=BOOT_SECONDS, stdin=subprocess.DEVNULL)
        state = result.stdout.strip()
        if state in ("running", "degraded"):
            return state
        if time.monotonic() > deadline:
            raise LabError(
                f"{host.name} at {lab.address(host)} is not up after {BOOT_SECONDS} s: {result.stderr.strip() or state}.\nLook inside with: podman exec -it {lab.container(host)} journalctl -b"
            )
        time.sleep(0.2)


def failed_units(lab: Lab, host: Host) -> str:
    listed = podman("exec", lab.container(host), "systemctl", "list-units", "--failed", "--plain", "--no-legend")
    return ", ".join(line.split()[0] for line in listed.splitlines())


def report_up(lab: Lab, host: Host, step: str) -> None:
    """Wait for a host and say how it is. A host made just now must be well; an older one may hold what a person broke."""
    state = wait_until_up(lab, host)
    if state == "running":
        say(f"{host.name}: up at {lab.address(host)}")
        return
    units = failed_units(lab, host)
    if step in ("create", "recreate"):
        raise LabError(
            f"{host.name}: booted with failed units: {units}. See: tools/lab ssh {host.name} systemctl status"
        )
    say(f"{host.name}: up at {lab.address(host)}, with failed units: {units}")


# ---- Commands --------------------------------------------------------------------------------------------------------------


def up(lab: Lab, inventory: Mapping[str, Any], hosts: Mapping[str, Host], chosen: Sequence[Host]) -> None:
    """Bring hosts up, whatever state an earlier run left."""
    with locked(lab.run / "lock", f"lab {lab.name}"):
        ensure_network(lab)
        images = {release: ensure_image(lab, release) for release in sorted({host.image for host in chosen})}
        public_keys = ensure_keys(lab, hosts.values())
        found = find_containers(lab)
        steps = {
            host: ensure_container(lab, host, images[host.image], public_keys[host], found.get(host.name))
            for host in chosen
        }
        with ThreadPoolExecutor(len(chosen)) as pool:
            list(pool.map(lambda host: report_up(lab, host, steps[host]), chosen))
        running = [hosts[name] for name in hosts if name in found.keys() | {host.name for host in chosen}]
        write(lab.directory / "inventory.json", json.dumps(plain_inventory(inventory, lab, running), indent=2) + "\n")


def down(lab: Lab) -> None:
    """Remove everything of a lab, and nothing else."""
    with locked(lab.run / "lock", f"lab {lab.name}"):
        network = find_network(lab)
        if network:
            check_owner(lab, network.get("labels") or {})
        remove_containers([item["Names"][0] for item in find_containers(lab).values()])
        if network:
            podman("network", "rm", "--force", lab.network)
        for socket in (lab.run / "ssh").glob("*"):
            subprocess.run(
                ["ssh", "-F", "none", "-O", "exit", "-o", f"ControlPath={socket}", "lab"], capture_output=True
            )
        run(["rm", "-rf", "--one-file-system", str(lab.directory), str(lab.run)])
    say(f"lab {lab.name}: gone")


def down_all(lab: Lab, hosts: Mapping[str, Host]) -> None:
    """Remove every lab of this LAB_HOME, then its images and what was carried to its hosts."""
    marks = [network.get("labels") or {} for network in networks()]
    names = {found["bminf.lab"] for found in marks if found.get("bminf.home") == str(lab.home)}
    for name in sorted(names | {lab.name}):
        down(Lab(name, lab.prefix, lab.home, lab.cache))
    with locked(lab.cache / "lock", "images"):
        listed = podman("images", "--filter", f"reference={lab.images}", "--format", "{{.Repository}}:{{.Tag}}").split()
        if listed:
            podman("image", "rm", *listed)
        # Only what the lab put there: LAB_HOME and LAB_CACHE may be directories that hold more.
        mounts = [lab.home / source for host in hosts.values() for source, _target in host.mounts]
        ours = [
            *mounts,
            lab.cache / "scratch",
            *lab.cache.glob("*-*.tar"),
            lab.cache / "lock",
            lab.home / CONFIGURATION,
        ]
        run(["rm", "-rf", "--one-file-system", *map(str, ours)])
    for directory in (lab.cache, lab.home):
        with contextlib.suppress(OSError):
            directory.rmdir()
    say("images and what was carried to hosts: gone")


def status(lab: Lab, hosts: Mapping[str, Host]) -> None:
    found = find_containers(lab)
    print(f"lab {lab.name}, {lab.subnet}, {lab.directory}")
    for host in hosts.values():
        container = found.get(host.name)
        state = container["State"] if container else "absent"
        print(f"  {host.name:10} {lab.address(host):15} {host.image:10} {state}")


def restart(lab: Lab, host: Host) -> None:
    """Stop and start a host, as a reboot does: the same address, keys and files, a new boot of systemd."""
    with locked(lab.run / "lock", f"lab {lab.name}"):
        if host.name not in find_containers(lab):
            raise LabError(f"{host.name} is not there. Run: tools/lab up {host.name}")
        say(f"{host.name}: stopping")
        podman("stop", "--time", str(STOP_SECONDS), lab.container(host))
        say(f"{host.name}: starting")
        podman("start", lab.container(host))
        report_up(lab, host, "restart")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/lab", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="bring hosts up (all, or those named)").add_argument(
        "hosts", nargs="*", metavar="HOST"
    )
    gone = commands.add_parser("down", help="take the lab down without a trace")
    gone.add_argument("--all", action="store_true", help="every lab of this checkout, the images and the downloads too")
    commands.add_parser("status", help="show the hosts")
    commands.add_parser("restart", help="reboot a host").add_argument("host")
    ssh = commands.add_parser("ssh", help="log in to a host, or run a command there")
    ssh.add_argument("host")
    ssh.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    commands.add_parser("images", help="build the images now").add_argument("releases", nargs="*", metavar="RELEASE")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    try:
        inventory = yaml.safe_load(INVENTORY.read_text())
        lab = parse_lab(os.environ, inventory, TOP)
        hosts = parse_hosts(inventory, str(INVENTORY.relative_to(TOP)))
        require_controller(sys.argv[1:])
        configure_podman(lab)
        dispatch(arguments, lab, inventory, hosts)
    except (LabError, OSError) as exc:
        print(f"ERROR: {exc}", file=sys.stderr)
        return 1
    return 0


def dispatch(arguments: argparse.Namespace, lab: Lab, inventory: Mapping[str, Any], hosts: Mapping[str, Host]) -> None:
    if arguments.command == "up":
        up(lab, inventory, hosts, choose(hosts, arguments.hosts))
    elif arguments.command == "down":
        down(lab)
        if arguments.all:
            down_all(lab, hosts)
    elif arguments.command == "status":
        status(lab, hosts)
    elif arguments.command == "restart":
        restart(lab, *choose(hosts, [arguments.host]))
    elif arguments.command == "ssh":
        command = [*ssh_command(lab, *choose(hosts, [arguments.host]), "LogLevel=ERROR", "ConnectTimeout=10"), *arguments.words]
        os.execvp(command[0], command)
    else:
        for release in arguments.releases or sorted({host.image for host in hosts.values()}):
            print(ensure_image(lab, release))


if __name__ == "__main__":
    sys.exit(main())
