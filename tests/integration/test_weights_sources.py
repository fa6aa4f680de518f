# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights from every kind of source, through ansible-playbook as the role does it; and what is told meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

from tests.fakes.file_server import FileServer, serving

TOP = Path(__file__).resolve().parents[2]
REVISION = "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de"
PATH = f"example/tiny/{REVISION}"
FILES = {"config.json": b"{}", "model.safetensors": os.urandom(3_000_000), "sub/extra.bin": b"x" * 100}
TOKEN = "canary-hub-token-41c7"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIACANARY", "AWS_SECRET_ACCESS_KEY": "canary-s3-secret-93ab"}


def manifest(files=None):
    entries = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in (files or FILES).items()
    }
    return {"repository": "example/tiny", "revision": REVISION, "files": entries}


def write(directory, files=None):
    for name, data in (files or FILES).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        yield running


class Site:
    """A play over this machine: where it puts the models, and how it is run."""

    def __init__(self, home):
        self.home = home
        self.root = home / "models"

    def start(self, sources, environment=(), words=(), hosts="localhost", **options):
        arguments = {
            "models": [manifest()],
            "sources": sources,
            "root": str(self.root),
            "state_dir": str(self.home / "state"),
            **options,
        }
        play = {"hosts": hosts, "gather_facts": False, "tasks": [{"baremetal.inference.weights": arguments}]}
        (self.home / "play.yml").write_text(json.dumps([play]))
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"),
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_REMOTE_TMP": str(self.home / "tmp"),
            "ANSIBLE_ASYNC_DIR": str(self.home / ".ansible_async"),
            **dict(environment),
        }
        # A session of its own can be killed as a whole.
        return subprocess.Popen(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", f"{hosts},", "-c", "local", "-e",
             f"ansible_python_interpreter={sys.executable}", *words, self.home / "play.yml"],
            env=environment, cwd=TOP, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *words, **options):
        process = self.start(*words, **options)
        text = process.communicate(timeout=1800)[0]
        return process.returncode, re.sub(r"\s+", " ", text)

    def content(self):
        top = self.root / PATH
        files = (path for path in top.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {str(path.relative_to(top)): path.read_bytes() for path in files}


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_hub_with_a_token_of_the_controllers_environment_that_nobody_sees(site, server):
    server.files = {f"/example/tiny/resolve/{REVISION}/{name}": data for name, data in FILES.items()}
    code, text = site.run([f"hub:{server.url}"], {"HF_TOKEN": TOKEN}.items(), ["-vvvv", "--diff"])
    assert code == 0, text
    assert site.content() == FILES
    assert {headers["Authorization"] for headers in server.seen} == {f"Bearer {TOKEN}"}
    assert TOKEN not in text
    left = [path for path in site.home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert left == []


def test_home_of_the_environment_may_differ_from_the_accounts(site, server):
    server.files = {f"/example/tiny/resolve/{REVISION}/{name}": data for name, data in FILES.items()}
    elsewhere = {"HOME": str(site.home / "elsewhere"), "ANSIBLE_ASYNC_DIR": "~/.ansible_async"}
    code, text = site.run([f"hub:{server.url}"], elsewhere.items())
    assert code == 0, text
    assert site.content() == FILES
    assert list((site.home / "elsewhere/.ansible_async").iterdir()) == []


def test_token_file_that_everybody_can_read_is_refused_before_anything(site, server):
    (site.home / "token").write_text(TOKEN)
    (site.home / "token").chmod(0o644)
    source = {"source": f"hub:{server.url}", "token_file": str(site.home / "token")}
    code, text = site.run([source])
    assert code == 2
    assert f"token_file: {site.home}/token on the controller can be read by everybody (mode 0644); chmod 600 it" in text
    assert server.log == []


def test_token_of_two_lines_and_keys_that_are_none_are_refused_without_a_word_of_them(site, server):
    (site.home / "token").write_text(f"{TOKEN}\nsecond\n")
    (site.home / "keys").write_text(f"aws_secret_access_key = {TOKEN}\n")
    for name in ("token", "keys"):
        (site.home / name).chmod(0o600)
    for source, said in (
        ({"source": f"hub:{server.url}", "token_file": str(site.home / "token")}, "expected one token"),
        (
            {"source": "s3://models", "credentials_file": str(site.home / "keys")},
            "expected an INI file with the section",
        ),
    ):
        code, text = site.run([source], words=["-vvvv"])
        assert code == 2 and said in text, text
        assert TOKEN not in text
    assert server.log == []


def test_what_was_handed_over_is_gone_where_the_module_refuses_its_options(site, server):
    code, text = site.run([f"hub:{server.url}"], {"HF_TOKEN": TOKEN}.items(), verify="all")
    assert code == 2 and "value of verify must be one of" in text
    left = [path for path in site.home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert left == []


def test_objects_of_a_store_come_by_signed_addresses_and_keys_stay_on_the_controller(site, server):
    server.files = {f"/models/weights/{PATH}/{name}": data for name, data in FILES.items()}
    source = {"source": "s3://models/weights", "endpoint": server.url, "region": "eu-west-1"}
    server.signed = True
    code, text = site.run([source], KEYS.items(), ["-vvvv"])
    assert code == 0, text
    assert site.content() == FILES
    assert {method for method, _path, _range in server.log} == {"GET"}
    asked = [urllib.parse.parse_qs(urllib.parse.urlsplit(path).query) for _method, path, _range in server.log]
    assert all(len(query["X-Amz-Signature"][0]) == 64 for query in asked)
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in text
    assert "X-Amz-Signature" not in text


def test_directory_of_the_controller_comes_where_those_before_it_do_not_do(site):
    write(site.home / "carried" / PATH)
    code, text = site.run(["/media/disk", f"controller:{site.home}/carried"])
    assert code == 0, text
    assert site.content() == FILES
    assert "changed=0" in site.run(["/media/disk", f"controller:{site.home}/carried"])[1]


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_directory_of_the_controller_without_a_file_is_passed_over_with_the_reason(site, server, check):
    write(site.home / "carried" / PATH, {"config.json": b"{}", "model.safetensors": b"short"})
    server.files = {f"/weights/{PATH}/{name}": data for name, data in FILES.items()}
    reason = f"controller:{site.home}/carried/{PATH}/model.safetensors: found 5 bytes, expected 3000000"
    code, text = site.run([f"controller:{site.home}/carried"], words=check)
    assert code == 2
    assert "weights_sources is empty" not in text
    assert reason in text
    code, text = site.run([f"controller:{site.home}/carried", f"{server.url}/weights"], words=check)
    assert code == 0, text
    assert f"source skipped: {reason}" in text
    assert site.content() == ({} if check else FILES)


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_each_model_comes_from_the_first_source_that_has_it(site, server, check):
    """One model is on the controller only, the other one on a server only."""
    write(site.home / "carried" / PATH)
    other = {**manifest({"config.json": b"[]"}), "repository": "example/other"}
    where = f"example/other/{REVISION}/config.json"
    server.files = {f"/weights/{where}": b"[]"}
    sources = [f"controller:{site.home}/carried", f"{server.url}/weights"]
    code, text = site.run(sources, words=check, models=[manifest(), other])
    assert code == 0, text
    assert f"source skipped: controller:{site.home}/carried/{where}: No such file" in text
    assert site.content() == ({} if check else FILES)
    assert (site.root / where).exists() is not bool(check)
    # What neither of them has is found in check mode as well.
    server.files = {}
    absent = {**other, "repository": "example/absent"}
    code, text = site.run(sources, words=check, models=[manifest(), absent])
    assert code == 2 and "example/absent revision" in text and "no source has its 1 missing file" in text


def test_check_mode_looks_at_the_controllers_directory_and_pushes_nothing(site):
    write(site.home / "carried" / PATH)
    code, text = site.run([f"controller:{site.home}/carried"], words=["--check", "--diff"])
    assert code == 0, text
    assert "changed=1" in text
    assert not site.root.exists()


@pytest.mark.long
def test_lines_tell_how_far_it_is_and_a_summary_ends_them(site, server):
    server.files = {f"/weights/{PATH}/{name}": data for name, data in FILES.items()}
    code, text = site.run([f"{server.url}/weights"], bandwidth=1, progress=1)
    assert code == 0, text
    lines = re.findall(r"localhost: example/tiny: (\S+ .B) of 3.0 MB \((\d+) %\), (\d) of 3 files", text)
    assert len(lines) >= 2
    shares = [int(share) for _amount, share, _files in lines]
    assert shares == sorted(shares)
    assert re.search(rf"localhost: 3 files, 3\.0 MB in \d+ s at \S+ .B/s from {server.url}/weights", text)
    assert list((site.home / ".ansible_async").iterdir()) == []


def slowly(met):
    """Return what a server does with a large file: a piece each second until ``met``, then all of it."""

    def answer(handler, *_range):
        if handler.command != "GET":
            return False
        data = FILES["model.safetensors"]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for first in range(0, len(data), 10_000):
            handler.wfile.write(data[first : first + 10_000])
            met.wait(1)
        return True

    return answer


def read_until_they_meet(process, met):
    """Return exit status and output of a run, which has to wait for another process before ``met``."""
    text = ""
    for line in process.stdout:
        text += line
        # Ansible may break the line between any two words.
        if "waits for process" in " ".join(text.split()):
            met.set()
    return process.wait(), re.sub(r"\s+", " ", text)


def test_controller_that_dies_does_not_end_the_fetch_and_the_next_run_waits_for_it(site, server):
    server.files = {f"/weights/{PATH}/{name}": data for name, data in FILES.items()}
    met = threading.Event()
    server.faults[f"/weights/{PATH}/model.safetensors"] = slowly(met)
    first = site.start([f"{server.url}/weights"], progress=1)
    deadline = time.monotonic() + 60
    while not any(method == "GET" for method, _path, _range in server.log):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    code, text = read_until_they_meet(site.start([f"{server.url}/weights"], progress=1), met)
    assert code == 0, text
    assert re.search(r"localhost: example/tiny: waits for process \d+ of \S+ \(uid \d+\), which fetches it", text)
    assert "changed=0" in text
    assert site.content() == FILES
    whole = [path for method, path, _range in server.log if method == "GET" and path.endswith("config.json")]
    assert len(whole) == 1


def test_of_hosts_that_share_a_store_one_fetches_and_the_others_check(site, server):
    server.files = {f"/weights/{PATH}/{name}": data for name, data in FILES.items()}
    # Two names for this machine: their processes meet at the same files, as those of two hosts do.
    met = threading.Event()
    server.faults[f"/weights/{PATH}/model.safetensors"] = slowly(met)
    process = site.start([f"{server.url}/weights"], hosts="gpu-1,gpu-2", shared="yes", progress=1)
    code, text = read_until_they_meet(process, met)
    assert code == 0, text
    assert site.content() == FILES
    gets = [path for method, path, _range in server.log if method == "GET"]
    assert len([path for path in gets if path.endswith("config.json")]) == 1
    assert re.search(r"gpu-[12]: example/tiny: waits for process \d+ of \S+ \(uid \d+\), which fetches it", text)
    assert len(re.findall(r"changed: \[gpu-[12]\]", text)) == len(re.findall(r"ok: \[gpu-[12]\]", text)) == 1


def test_process_that_dies_is_reported_and_the_next_run_goes_on(site, server):
    server.files = {f"/weights/{PATH}/{name}": data for name, data in FILES.items()}
    met = threading.Event()
    server.faults[f"/weights/{PATH}/model.safetensors"] = slowly(met)
    first = site.start([f"{server.url}/weights"], progress=1)
    text, report = "", None
    for line in first.stdout:
        text += line
        # The controller knows the process by now.
        if report is None and " of 3.0 MB (" in " ".join(text.split()):
            report = report_in(site.home / ".ansible_async")
            os.kill(report["pid"], signal.SIGKILL)
    text = re.sub(r"\s+", " ", text)
    assert first.wait() == 2
    assert f"the fetch on the host ended without a result or hangs (process {report['pid']}, " in text
    assert "run again: what has arrived is kept" in text
    assert "Traceback" not in text
    met.set()
    code, text = site.run([f"{server.url}/weights"])
    assert code == 0, text
    assert site.content() == FILES


def report_in(directory):
    (path,) = directory.glob("weights-*.json")
    return json.loads(path.read_text())
