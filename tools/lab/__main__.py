#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make, show and take down the lab: the hosts of inventories/lab/hosts.yml as podman containers that boot systemd.

docs/reference/lab.md describes LAB_NAME, LAB_SUBNET_PREFIX, LAB_HOME, LAB_CACHE, LAB_CA_FILE and LAB_INTERNAL.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from tools.lab.hosts import (  # noqa: E402
    STOP_SECONDS,
    check_owner,
    ensure_address,
    ensure_container,
    ensure_keys,
    ensure_network,
    find_containers,
    find_network,
    networks,
    remove_containers,
    report_up,
    require_container,
    start_container,
)
from tools.lab.images import ensure_image, image_tags  # noqa: E402
from tools.lab.plan import (  # noqa: E402
    Host,
    Lab,
    LabError,
    choose,
    create_command,
    parse_hosts,
    parse_lab,
    plain_inventory,
    ssh_command,
)
from tools.lab.podman import (  # noqa: E402
    CONFIGURATION,
    configure_podman,
    locked,
    podman,
    require_controller,
    run,
    say,
    write,
)

INVENTORY = TOP / "inventories" / "lab" / "hosts.yml"


def up(lab: Lab, inventory: Mapping[str, Any], hosts: Mapping[str, Host], chosen: Sequence[Host]) -> None:
    """Start hosts from any state that an earlier run left."""
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
    """Remove everything that belongs to a lab, and nothing else."""
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
    say(f"lab {lab.name}: removed")


def down_all(lab: Lab, hosts: Mapping[str, Host]) -> None:
    """Remove every lab of this LAB_HOME, then its images and the files mounted into its hosts."""
    marks = [network.get("labels") or {} for network in networks()]
    names = {found["bminf.lab"] for found in marks if found.get("bminf.home") == str(lab.home)}
    names |= {path.parent.name for path in lab.home.glob("*/ssh")}
    for name in sorted(names):
        down(Lab(name, lab.prefix, lab.home, lab.cache))
    with locked(lab.cache / "lock", "images"):
        tags = image_tags(lab)
        if tags:
            podman("image", "rm", *tags)
        # Only the lab's own files: LAB_HOME and LAB_CACHE may be directories with other content.
        mounts = [lab.home / source for host in hosts.values() for source, _target in host.mounts]
        cached = [*lab.cache.glob("*-*.tar"), lab.cache / "scratch", lab.cache / "lock"]
        ours = map(str, (*mounts, *cached, lab.home / "made", lab.home / CONFIGURATION))
        run(["rm", "-rf", "--one-file-system", *ours])
    for directory in (lab.cache, lab.home):
        with contextlib.suppress(OSError):
            directory.rmdir()
    say("images and files mounted into hosts: removed")


def status(lab: Lab, hosts: Mapping[str, Host]) -> None:
    found = find_containers(lab)
    print(f"lab {lab.name}, {lab.subnet}, {lab.directory}")
    for host in hosts.values():
        container = found.get(host.name)
        state = container["State"] if container else "absent"
        print(f"  {host.name:10} {lab.address(host):15} {host.image:10} {state}")


def restart(lab: Lab, host: Host) -> None:
    """Stop and start a host, like a reboot: the same address, keys and files, and a new boot of systemd."""
    with locked(lab.run / "lock", f"lab {lab.name}"):
        require_container(lab, host)
        say(f"{host.name}: stopping")
        podman("stop", "--time", str(STOP_SECONDS), lab.container(host))
        say(f"{host.name}: starting")
        start_container(lab.container(host))
        ensure_address(lab)
        report_up(lab, host, "restart")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/lab", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start hosts (all, or the named ones)")
    start.add_argument("hosts", nargs="*", metavar="HOST")
    removal = commands.add_parser("down", help="remove the lab")
    removal.add_argument(
        "--all", action="store_true", help="also remove other labs of this checkout, images and downloads"
    )
    commands.add_parser("status", help="show the hosts")
    commands.add_parser("restart", help="reboot a host").add_argument("host")
    ssh = commands.add_parser("ssh", help="log in to a host, or run a command there")
    ssh.add_argument("host")
    ssh.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    commands.add_parser("images", help="build the images now").add_argument("releases", nargs="*", metavar="RELEASE")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    # A plain `su` omits these.
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
