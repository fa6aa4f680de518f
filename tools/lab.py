#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make, show and take down the lab: the hosts of inventories/lab/hosts.yml as podman containers that boot systemd.

docs/lab.md says what LAB_NAME, LAB_SUBNET_PREFIX, LAB_HOME, LAB_CACHE, LAB_CA_FILE and LAB_INTERNAL change.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from tools.lab_plan import (  # noqa: E402
    Host,
    Lab,
    LabError,
    Recipe,
    apt_entries,
    apt_options,
    archive,
    certificates_of,
    choose,
    clashes,
    containers_conf,
    create_command,
    debian_sources,
    digest,
    known_hosts,
    labels,
    network_options,
    next_step,
    parse_hosts,
    parse_lab,
    plain_inventory,
    routed,
    ssh_command,
)

INVENTORY = TOP / "inventories" / "lab" / "hosts.yml"
IMAGE_SCRIPT = TOP / "tools" / "lab_image.sh"
CONFIGURATION = "containers.conf"
STARTED = time.monotonic()

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

# A boot has ended once that every instance of vLLM on the host serves, and several start on the same processors.
BOOT_SECONDS = 900
# Longer than any unit's TimeoutStopSec here: a host that is restarted stops its services properly.
STOP_SECONDS = 120
# Locks that this process holds. What it starts holds them too, so that what a killed run leaves running is waited for.
HELD: set[int] = set()


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


def run(command: Sequence[str], data: bytes | None = None, hold: bool = True) -> str:
    """Run a command and return its output; what it says on failure becomes the error."""
    result = subprocess.run(command, check=False, input=data, capture_output=True, pass_fds=tuple(HELD) if hold else ())
    if result.returncode:
        raise LabError(f"`{shlex.join(command)}` failed:\n{complaint(result.stderr.decode())}")
    return result.stdout.decode()


def complaint(stderr: str) -> str:
    """Return what matters of a message of podman: netavark misses a syslog on many machines, which harms nothing."""
    return "\n".join(line for line in stderr.strip().splitlines() if "failed to connect to syslog" not in line)


def podman(*arguments: str, data: bytes | None = None) -> str:
    # What `start` leaves running is the host itself: it must not hold a lock.
    return run(["podman", *arguments], data, hold=arguments[0] != "start")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file by rename, so that nobody reads half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text)
    partial.chmod(mode)
    partial.replace(path)


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file, waiting for another run that holds it."""
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
                HELD.add(handle.fileno())
                try:
                    yield
                finally:
                    HELD.discard(handle.fileno())
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


def ensure_image(lab: Lab, release: str) -> str:
    """Return the image of a release, built and imported if it is not there."""
    recipe = read_recipe(release)
    tag = f"{lab.images}:{release}-{recipe.key}"
    if has_image(tag):
        return tag
    with locked(lab.cache / "lock", "images"):
        tarball = lab.cache / f"{release}-{recipe.key}.tar"
        if not tarball.exists():
            build_image(lab, recipe, tarball)
        if not has_image(tag):
            say(f"image {release}: importing it into podman")
            podman("import", "--quiet", str(tarball), tag)
        forget_old_images(lab, release, keep=tarball)
    return tag


def has_image(tag: str) -> bool:
    return subprocess.run(["podman", "image", "exists", tag], check=False).returncode == 0


def build_image(lab: Lab, recipe: Recipe, tarball: Path) -> None:
    """Build a root file system with mmdebstrap, which ends when this process is killed."""
    scratch = lab.cache / "scratch"
    # One file system: what a killed build may have left must not lead out of it.
    run(["rm", "-rf", "--one-file-system", str(scratch)])
    certificates = scratch / "certificates"
    scratch.mkdir()
    if recipe.certificates:
        certificates.mkdir()
    for number, text in enumerate(recipe.certificates):
        write(certificates / f"lab-{number}.crt", f"{text}\n")
    partial = scratch / tarball.name
    # Its mounts (/proc, /dev) are in a namespace of their own: they go with it, even when it is killed.
    command = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "mmdebstrap", *recipe.options]
    command += [f"--customize-hook={IMAGE_SCRIPT}", recipe.release, str(partial), *recipe.sources]
    environment = {**os.environ, "TMPDIR": str(scratch), "LAB_CERTIFICATES": str(certificates)}
    show_progress(f"image {recipe.release}", command, environment)
    partial.replace(tarball)
    run(["rm", "-rf", "--one-file-system", str(scratch)])


def show_progress(title: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run mmdebstrap, its steps shown as they come and its whole output as the error."""
    process = subprocess.Popen(command, env=environment, pass_fds=tuple(HELD), stderr=subprocess.PIPE, text=True)
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
    """Remove what earlier recipes of a release made; an image that a host still uses stays until the next build."""
    for tarball in lab.cache.glob(f"{release}-*.tar"):
        if tarball != keep:
            tarball.unlink()
    for tag in image_tags(lab):
        if tag.startswith(f"{lab.images}:{release}-") and not tag.endswith(f":{keep.stem}"):
            subprocess.run(["podman", "image", "rm", tag], check=False, capture_output=True)


def image_tags(lab: Lab) -> list[str]:
    return podman("images", "--filter", f"reference={lab.images}", "--format", "{{.Repository}}:{{.Tag}}").split()


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
        subnets = [subnet["subnet"] for subnet in other.get("subnets") or []]
        used += [(subnet, f"podman network {other['name']}") for subnet in subnets if ":" not in subnet]
    found = clashes(lab.subnet, used)
    if found:
        raise LabError(
            f"The subnet {lab.subnet} is already used here ({', '.join(found)}). "
            "Set LAB_SUBNET_PREFIX to a free one, as in LAB_SUBNET_PREFIX=10.87.77"
        )
    say(f"network {lab.network}: {lab.subnet}")
    marks = [word for key, value in labels(lab).items() for word in ("--label", f"{key}={value}")]
    podman("network", "create", "--subnet", lab.subnet, *network_options(lab), *marks, lab.network)


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
    if bool(network.get("internal")) != lab.internal:
        raise LabError(
            f"Lab {lab.name} runs {'with' if lab.internal else 'without'} a way out, other than LAB_INTERNAL says. "
            f"Take it down first: LAB_NAME={lab.name} tools/lab down"
        )


def ensure_address(lab: Lab) -> None:
    """Have an address of the controller's own in an internal network, which podman gives none there."""
    network = find_network(lab)
    if network and network.get("internal"):
        run(["ip", "address", "replace", f"{lab.gateway}/24", "dev", network["network_interface"]])


def check_owner(lab: Lab, found: Mapping[str, str]) -> None:
    home = found.get("bminf.home")
    if home != str(lab.home):
        raise LabError(
            f"A lab {lab.name} exists that belongs to {home}, not to {lab.home}. Set LAB_NAME to another name."
        )


# Hosts


def find_containers(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return podman's words about the containers of a lab, by host name."""
    filters = [word for key, value in labels(lab).items() for word in ("--filter", f"label={key}={value}")]
    listed = json.loads(podman("ps", "--all", *filters, "--format", "json"))
    return {item["Labels"]["bminf.host"]: item for item in listed}


def ensure_container(lab: Lab, host: Host, command: list[str], public_key: str, found: Mapping[str, Any] | None) -> str:
    """Have a host's container running, made by ``command``; return the step that it took."""
    wanted = digest(*command, public_key, (lab.ssh / "id_ed25519.pub").read_text())
    state, definition = (found["State"], found["Labels"].get("bminf.definition")) if found else (None, None)
    step = next_step(state, definition, wanted)
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


def require_container(lab: Lab, host: Host) -> None:
    if host.name not in find_containers(lab):
        raise LabError(f"Lab {lab.name} has no host {host.name} yet. Run: tools/lab up {host.name}")


def remove_containers(names: Sequence[str]) -> None:
    if names:
        podman("rm", "--force", "--time", "0", "--volumes", *names)


def wait_until_up(lab: Lab, host: Host) -> str:
    """Return what systemd says of a host (running, degraded), asked over SSH, as soon as it has booted."""
    command = ssh_command(lab, host, "ControlPath=none", "ConnectTimeout=3", "BatchMode=yes")
    command += ["timeout", str(BOOT_SECONDS), "systemctl", "is-system-running", "--wait"]
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        result = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        state = result.stdout.strip()
        if state in ("running", "degraded"):
            return state
        if time.monotonic() > deadline:
            said = result.stderr.strip() or f"systemd says {state}"
            raise LabError(
                f"{host.name} at {lab.address(host)} is not up after {BOOT_SECONDS} s: {said}.\n"
                f"Look inside with: podman exec -it {lab.container(host)} journalctl -b"
            )
        time.sleep(0.2)


def failed_units(lab: Lab, host: Host) -> str:
    listed = podman("exec", lab.container(host), "systemctl", "list-units", "--failed", "--plain", "--no-legend")
    return ", ".join(line.split()[0] for line in listed.splitlines())


def report_up(lab: Lab, host: Host, step: str) -> None:
    """Wait for a host and say how it is: one made just now must be well; a person may have broken an older one."""
    state = wait_until_up(lab, host)
    if state == "running":
        say(f"{host.name}: up at {lab.address(host)}")
        return
    units = failed_units(lab, host)
    if all(unit.startswith("user@") for unit in units.split(", ")):
        # The login by which it was waited for came too early for its own session, on a machine that has much to do.
        podman("exec", lab.container(host), "systemctl", "reset-failed", "user@*.service")
        say(f"{host.name}: up at {lab.address(host)}")
        return
    if step in ("create", "recreate"):
        raise LabError(
            f"{host.name}: booted with failed units: {units}. See: tools/lab ssh {host.name} systemctl status"
        )
    say(f"{host.name}: up at {lab.address(host)}, with failed units: {units}")


# ---- Commands


def up(lab: Lab, inventory: Mapping[str, Any], hosts: Mapping[str, Host], chosen: Sequence[Host]) -> None:
    """Bring hosts up, whatever state an earlier run left."""
    with locked(lab.run / "lock", f"lab {lab.name}"):
        ensure_network(lab)
        images = {release: ensure_image(lab, release) for release in sorted({host.image for host in chosen})}
        public_keys = ensure_keys(lab, hosts.values())
        found = find_containers(lab)
        commands = {host: create_command(lab, host, images[host.image], hosts.values()) for host in chosen}
        steps = {
            host: ensure_container(lab, host, commands[host], public_keys[host], found.get(host.name))
            for host in chosen
        }
        ensure_address(lab)
        running = {name for name, item in found.items() if item["State"] == "running"} | {host.name for host in chosen}
        listed = plain_inventory(inventory, lab, [host for name, host in hosts.items() if name in running])
        write(lab.directory / "inventory.json", json.dumps(listed, indent=2) + "\n")
        with ThreadPoolExecutor(len(chosen)) as pool:
            list(pool.map(lambda host: report_up(lab, host, steps[host]), chosen))


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
                ["ssh", "-F", "none", "-O", "exit", "-S", str(socket), "lab"], check=False, capture_output=True
            )
        run(["rm", "-rf", "--one-file-system", str(lab.directory), str(lab.run)])
    say(f"lab {lab.name}: gone")


def down_all(lab: Lab, hosts: Mapping[str, Host]) -> None:
    """Remove every lab of this LAB_HOME, then its images and what was carried to its hosts."""
    marks = [network.get("labels") or {} for network in networks()]
    names = {found["bminf.lab"] for found in marks if found.get("bminf.home") == str(lab.home)}
    names |= {path.parent.name for path in lab.home.glob("*/ssh")}
    for name in sorted(names):
        down(Lab(name, lab.prefix, lab.home, lab.cache))
    with locked(lab.cache / "lock", "images"):
        tags = image_tags(lab)
        if tags:
            podman("image", "rm", *tags)
        # Only what the lab put there: LAB_HOME and LAB_CACHE may be directories that hold more.
        mounts = [lab.home / source for host in hosts.values() for source, _target in host.mounts]
        cached = [*lab.cache.glob("*-*.tar"), lab.cache / "scratch", lab.cache / "lock"]
        ours = map(str, (*mounts, *cached, lab.home / "made", lab.home / CONFIGURATION))
        run(["rm", "-rf", "--one-file-system", *ours])
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
        require_container(lab, host)
        say(f"{host.name}: stopping")
        podman("stop", "--time", str(STOP_SECONDS), lab.container(host))
        say(f"{host.name}: starting")
        podman("start", lab.container(host))
        ensure_address(lab)
        report_up(lab, host, "restart")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/lab", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="bring hosts up (all, or those named)")
    start.add_argument("hosts", nargs="*", metavar="HOST")
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
    # What a plain `su` leaves out.
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
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
        restart(lab, choose(hosts, [arguments.host])[0])
    elif arguments.command == "ssh":
        (host,) = choose(hosts, [arguments.host])
        require_container(lab, host)
        command = [*ssh_command(lab, host, "LogLevel=ERROR", "ConnectTimeout=10"), *arguments.words]
        os.execvp(command[0], command)
    else:
        for release in arguments.releases or sorted({host.image for host in hosts.values()}):
            print(ensure_image(lab, release))


if __name__ == "__main__":
    sys.exit(main())
