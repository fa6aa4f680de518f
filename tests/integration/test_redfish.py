# SPDX-License-Identifier: GPL-3.0-or-later
"""200 BMCs at once, 20 of them wrong, as services in their own process; recordings and a service of others.

REDFISH_RECORDINGS names a directory of recordings in DMTF's mock-up format, one folder for each machine: they are
served in place of the machines that were written for the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import bcrypt
import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import Bmc, Limits, ask_bmcs
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import RedfishError, found

from tests.fakes import redfish_server
from tests.fakes.redfish_machines import MACHINES, read_documents
from tests.fakes.redfish_server import PASSWORD, USERNAME, authority, read_mockup, write_mockup

ROOT = Path(__file__).parents[2]
CATALOGUE = load_catalogue()
HANGING, REFUSING, RUBBISH = 10, 5, ("html", "cut", "types", "huge", "redirects")
GOOD = 180
# More than a busy machine needs for 50 BMCs at once; one after the other the hanging ones would take 150 s.
TIMEOUT, DEADLINE, AT_ONCE = 15, 90, 120
RECORDINGS = os.environ.get("REDFISH_RECORDINGS", "")


@contextlib.contextmanager
def served(folder, machines):
    """Serve ``{address: {"mockup": folder, ...}}``; yield the port and the authority's file."""
    ca_file, _context = authority(folder, list(machines))
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"tls": str(folder / "server.pem"), "machines": machines}))
    with subprocess.Popen(
        [sys.executable, redfish_server.__file__, str(plan)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(server.stdout.readline()), str(ca_file)
        server.stdin.close()
        print("requests of all BMCs:", sum(log for log, _open in json.loads(server.stdout.readline()).values()))


def mockups(folder):
    """Return the folders of good machines and the models in each: recordings where there are any, else our own."""
    if RECORDINGS:
        return [(path, models) for path, models in recordings() if models is not None]
    good = []
    for number, (build, models) in enumerate(MACHINES.values()):
        path = folder / f"machine-{number}"
        write_mockup(path, build())
        good.append((path, models))
    return good


def told_by(chips):
    """Return models with counts, and "unknown" with the number of kinds where there are any."""
    models, unknown = found(chips, CATALOGUE)
    return {**models, "unknown": len(unknown)} if unknown else models


def recordings():
    """Return each recording and what is in it; None for one that cannot tell."""
    folders = []
    for path in sorted(Path(RECORDINGS).iterdir()) if RECORDINGS else []:
        if (path / "redfish" / "v1" / "index.json").is_file() or (path / "index.json").is_file():
            try:
                folders.append((path, told_by(read_documents(read_mockup(path)))))
            except RedfishError:
                folders.append((path, None))
    return folders


def scenario(folder):
    """Return the machines by address, and what is expected of each: models, or the start of a reason."""
    good = mockups(folder)
    machines, expected = {}, {}
    for number in range(GOOD + HANGING + REFUSING + len(RUBBISH)):
        address = f"127.20.{number // 100}.{number % 100 + 1}"
        mockup, models = good[number % len(good)]
        machines[address] = {"mockup": str(mockup)}
        expected[address] = models
    # Spread over the fleet, as they are in life.
    wrong = iter(list(machines)[5::10])
    for _number in range(HANGING):
        address = next(wrong)
        machines[address]["fault"] = "hang"
        expected[address] = f"no answer within {TIMEOUT} s"
    for _number in range(REFUSING):
        expected[next(wrong)] = "refused user 'admin' (401)"
    for fault in RUBBISH:
        address = next(wrong)
        machines[address]["fault"] = fault
        expected[address] = ""
    return machines, expected


def test_200_bmcs_of_which_20_are_wrong(tmp_path, capsys):
    machines, expected = scenario(tmp_path)
    with served(tmp_path, machines) as (port, ca_file):
        bmcs = []
        for address in machines:
            password = "wrong" if expected[address] == "refused user 'admin' (401)" else PASSWORD
            bmcs.append(Bmc(f"gpu-{address}", f"{address}:{port}", USERNAME, password))
        began = time.monotonic()
        answers = ask_bmcs(bmcs, Limits(timeout=TIMEOUT, deadline=DEADLINE, ca_file=ca_file))
        took = time.monotonic() - began
    with capsys.disabled():
        print(f"\n200 BMCs, 50 at a time, 10 hanging, 5 refusing, 5 answering rubbish: {took:.1f} s")
    assert [answer.host for answer in answers] == [f"gpu-{address}" for address in machines]
    right, wrong = 0, Counter()
    for address, answer in zip(machines, answers):
        if isinstance(expected[address], str):
            assert answer.found is None
            assert (answer.reason or "").startswith(
                expected[address] or ("no Redfish", "an answer", "redirects", "/redfish")
            )
            wrong[expected[address]] += 1
        else:
            assert answer.reason is None
            assert answer.found is not None
            assert told_by(answer.found) == expected[address]
            right += 1
    assert (right, wrong) == (180, {f"no answer within {TIMEOUT} s": 10, "refused user 'admin' (401)": 5, "": 5})
    assert took < AT_ONCE


def test_the_inventory_of_200_bmcs(tmp_path, capsys):
    """The same through ansible-inventory: 180 in their groups, 20 named with their reasons."""
    machines, expected = scenario(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    with served(tmp_path, machines) as (port, ca_file):
        rows = ["name,accelerator_bmc"]
        (site / "host_vars").mkdir()
        for number, address in enumerate(machines):
            rows.append(f"gpu-{number:03},{address}:{port}")
            if str(expected[address]).startswith("refused"):
                (site / "host_vars" / f"gpu-{number:03}.yml").write_text("accelerator_bmc_password: wrong\n")
        (site / "fleet.csv").write_text("\n".join(rows) + "\n")
        (site / "accelerators.yml").write_text(
            "plugin: baremetal.inference.accelerators\n"
            f"fleet_files: [fleet.csv]\nredfish: true\nredfish_ca_file: {ca_file}\n"
            f"redfish_timeout: {TIMEOUT}\nredfish_deadline: {DEADLINE}\n"
        )
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "inventory", "-i", "accelerators.yml", "--list"],
            cwd=site,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
                "ANSIBLE_HOME": str(tmp_path / "home"),
                "ANSIBLE_NOCOLOR": "1",
                "COLUMNS": "20000",
                "REDFISH_USERNAME": USERNAME,
                "REDFISH_PASSWORD": PASSWORD,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\nansible-inventory --list of the same: {took:.1f} s")
    inventory = json.loads(done.stdout)
    for number, address in enumerate(machines):
        name, wanted = f"gpu-{number:03}", expected[address]
        groups = {group for group, entry in inventory.items() if name in entry.get("hosts", [])}
        if isinstance(wanted, str):
            assert not {group for group in groups if group.startswith("accel_")}
            assert name in done.stderr
        else:
            assert {f"accel_{model}" for model in wanted or ["cpu"]} <= groups, done.stderr
    for reason in (f"no answer within {TIMEOUT} s", "refused user 'admin' (401)", "redirects endlessly"):
        assert reason in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_openstacks_emulator(tmp_path):
    """A service that others wrote; it shows no PCI devices, so what is proved is the way there: TLS, account, paths."""
    authority(tmp_path, ["127.0.0.1"])
    key, certificate = (tmp_path / "server.pem").read_text().split("-----BEGIN CERTIFICATE", 1)
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "cert.pem").write_text(f"-----BEGIN CERTIFICATE{certificate}")
    account = f"{USERNAME}:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n"
    (tmp_path / "accounts").write_text(account)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "FAKE_DRIVER": True,
        "LISTEN_IP": "127.0.0.1",
        "LISTEN_PORT": port,
        "SSL_CERT": str(tmp_path / "cert.pem"),
        "SSL_KEY": str(tmp_path / "key.pem"),
        "AUTH_FILE": str(tmp_path / "accounts"),
        "STATE_DIR": str(tmp_path),
    }
    config = tmp_path / "emulator.conf"
    config.write_text("".join(f"SUSHY_EMULATOR_{name} = {value!r}\n" for name, value in settings.items()))
    program = "from sushy_tools.emulator.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "--config", str(config)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as emulator:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.2)
            limits = Limits(timeout=20, deadline=40, ca_file=str(tmp_path / "ca.pem"))
            address = f"127.0.0.1:{port}"
            right, wrong = ask_bmcs(
                [Bmc("right", address, USERNAME, PASSWORD), Bmc("wrong", address, USERNAME, "wrong")], limits
            )
        finally:
            emulator.terminate()
    assert right.reason == "shows neither processors nor PCI devices: it cannot tell what is in the host"
    assert wrong.reason == "refused user 'admin' (401)"


@pytest.mark.skipif(not RECORDINGS, reason="REDFISH_RECORDINGS names no directory")
def test_recordings_tell_or_say_that_they_cannot():
    told = recordings()
    print([(path.name, models) for path, models in told])
    assert told
