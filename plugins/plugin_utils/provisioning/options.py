# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of a run, from the variables of the inventory's hosts and the options of the action."""

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeVar

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..redfish.ask import Limits, ask_bmcs
from . import firmware, ssh
from .entry import Entry, ProvisionError, is_serial, read_entry, refuse_shared
from .images import Image, Provisioner
from .ironic import Ironic
from .job import Job, Settings, World
from .node import Account
from .record import Record, RecordFile
from .site_options import check_site_options, read_keys, read_user
from .states import read_deadlines

# A BMC that answers nothing for this long is refused before the first order; one answer may take half of it (seconds).
BMC_SECONDS = 60
ANSWER_SECONDS = 20
_T = TypeVar("_T")


def read_jobs(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any],
    image_of: Callable[[Entry], Image], records: Mapping[str, Record],
) -> list[Job]:  # fmt: skip
    """Return the jobs of ``hosts``. Raises ProvisionError, also where other hosts share a BMC with them."""
    named = [host for host in hosts if hostvars[host].get("provision") is not None]
    if not named:
        raise ProvisionError("none of these hosts has the variable provision, so there is nothing to provision")
    released = options.get("release", ())
    unknown = [host for host in released if host not in named]
    if unknown:
        raise ProvisionError(
            f"provision_release: found {show_value(unknown[0])}, expected a host of this run; "
            f"{nearest(unknown[0], named)}"
        )
    refuse_shared(_all_entries(hostvars))
    for host in named:
        _judged(host, check_site_options, unrendered(hostvars, host))
    return [_job(host, hostvars[host], options, image_of, records.get(host, Record())) for host in named]


def with_disks(jobs: Sequence[Job], named: Mapping[str, Any], secure: bool, can_wipe: bool) -> list[Job]:
    """Return jobs that wipe the disks that ``named`` has for their host, else its root disk. Raises ProvisionError.

    ``can_wipe`` is whether the ramdisk can; hosts that are not touched do not need it.
    """
    hosts = [job.entry.host for job in jobs]
    for host, disks in named.items():
        if host not in hosts:
            raise ProvisionError(
                f"deprovision_disks: found the host {show_value(host)}, expected one of this run; "
                f"{nearest(str(host), hosts)}"
            )
        if not isinstance(disks, list) or not all(is_serial(disk) for disk in disks) or len(set(disks)) < len(disks):
            raise ProvisionError(
                f"deprovision_disks.{host}: found {show_value(disks)[:120]}, expected a list of serial numbers of its "
                "disks, each once and in quotes, such as ['S6CKNX0T']"
            )
    roots = {job.entry.host: [job.entry.root_serial or job.entry.root_wwn] for job in jobs}
    found = [replace(job, disks=tuple(named.get(job.entry.host, roots[job.entry.host])), secure=secure) for job in jobs]
    wiped = [job.entry.host for job in found if job.disks and (job.record.order or job.released)]
    if wiped and not can_wipe:
        raise ProvisionError(
            f"the provisioner's site.json does not say that its ramdisk can wipe disks, expected it for {wiped[0]}; "
            "run playbooks/provisioner.yml with provisioner_build: true, or wipe none: "
            f"deprovision_disks: {{{wiped[0]}: []}}"
        )
    return found


def _all_entries(hostvars: Mapping[str, Mapping[str, Any]]) -> Iterable[Entry]:
    for host in hostvars:
        value = hostvars[host].get("provision")
        if value is not None:
            yield _entry(host, value)


def unrendered(hostvars: Any, host: str) -> Mapping[str, Any]:
    """Return the variables of a host as they are written: to render all of them takes long, and may fail."""
    found: Mapping[str, Any] = getattr(hostvars, "raw_get", hostvars.__getitem__)(host)
    return found


def _entry(host: str, value: Any) -> Entry:
    return _judged(host, partial(read_entry, host), value)


def _judged(host: str, judge: Callable[[Any], _T], value: Any) -> _T:
    try:
        return judge(value)
    except ProvisionError as exc:
        raise ProvisionError(f"host {host!r}: {exc}") from None


def _job(
    host: str,
    variables: Mapping[str, Any],
    options: Mapping[str, Any],
    image_of: Callable[[Entry], Image],
    record: Record,
) -> Job:
    entry = _entry(host, variables["provision"])
    login = {}
    for name, default in (("username", options["bmc_username"]), ("password", options["bmc_password"])):
        value = variables.get(f"accelerator_bmc_{name}") or default
        if not value:
            raise ProvisionError(
                f"host {host!r}: no {name} for its BMC: set accelerator_bmc_{name} for the host, in a vault"
            )
        login[name] = str(value)
    names = tuple(dict.fromkeys([str(entry.address.ip), host, str(variables.get("ansible_host", host))]))
    return Job(
        entry=entry, image=image_of(entry), account=Account(login["username"], login["password"]),
        record=record, released=host in options.get("release", ()), names=names,
    )  # fmt: skip


def read_settings(options: Mapping[str, Any], provisioner: Provisioner, writes: bool = True) -> Settings:
    """Return what holds for all hosts; only a run that writes needs keys. Raises ProvisionError and DeadlineError."""
    return Settings(
        ironic=Ironic(provisioner.url, options["username"], options["password"], provisioner.certificate),
        bmc_ca=provisioner.bmc_ca,
        record_file=RecordFile(Path(options["record"])),
        known_hosts=ssh.follow_known_hosts(options.get("known_hosts", "")),
        deadlines=read_deadlines(options["deadlines"]),
        ssh_keys=read_keys(options["ssh_keys"]) if writes else (),
        user=read_user(options.get("user", "root")),
        keep_node=writes and options["keep_node"],
        firmware=firmware.read_settings() if writes else (),
    )


def sleep_while(parent: int, seconds: float) -> None:
    """Sleep, while the process with this number is the parent. Raises ProvisionError after it has ended.

    Of a killed ansible-playbook this process would remain, and give orders beside those of the next run.
    """
    if os.getppid() != parent:
        raise ProvisionError("ansible-playbook has ended; run it again, what was ordered goes on")
    time.sleep(seconds)


def real_world(options: Mapping[str, Any], show: Callable[[str], None]) -> World:
    """Return the ways to the BMCs, to SSH, and to the clock."""
    limits = Limits(
        parallel=200,
        timeout=ANSWER_SECONDS,
        deadline=BMC_SECONDS,
        verify=options["bmc_verify"],
        ca_file=options["bmc_ca_file"] or None,
    )
    user, private_key = options.get("user", "root"), options.get("private_key") or ""
    return World(
        ask_bmcs=partial(ask_bmcs, limits=limits),
        answers=ssh.answers,
        prove=lambda entry, key: ssh.ask(entry, key, user, private_key),
        show_firmware=lambda entry, key: ssh.show_firmware(entry, key, user, private_key),
        make_host_key=ssh.make_host_key,
        trust=ssh.trust,
        now=time.monotonic,
        sleep=partial(sleep_while, os.getppid()),
        date=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        show=show,
    )
