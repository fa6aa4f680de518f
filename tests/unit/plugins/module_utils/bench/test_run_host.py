# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of the benchmark: its environment, its limit, its failures, and the power meanwhile."""

from __future__ import annotations

import os
import pwd
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import BenchError, Measurement
from ansible_collections.baremetal.inference.plugins.module_utils.bench.run_host import (
    Chips,
    Run,
    measure,
    power_of,
    run_command,
    working_directory,
)
from ansible_collections.baremetal.inference.plugins.module_utils.bench.target_host import read_instance

from tests.fakes.bench_host import KEY, BenchHost

TWO = Measurement("random", 16, 4, 2, 1, 7)
USER = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def host(tmp_path):
    return BenchHost(tmp_path, 8123)


def run(host, chips=None, seconds=30.0):
    return measure(read_instance("chat", str(host.root)), TWO, chips or Chips(), seconds, USER)


def smi(host, monkeypatch, text):
    host.program("nvidia-smi", f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv("PATH", str(host.bin), prepend=":")


def test_the_result_comes_back_and_nothing_remains(host, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result, power = run(host)
    assert (result["completed"], result["duration"]) == (2, 0.1) and power == {}
    assert not list(tmp_path.glob("vllm-bench-*"))


def test_the_key_is_in_the_environment_alone(host, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    run(host)
    [(arguments, environment)] = host.calls()
    assert environment["OPENAI_API_KEY"] == KEY and KEY not in " ".join(arguments)
    assert environment["HF_HUB_OFFLINE"] == "1" and not {"HTTP_PROXY", "PYTHONPATH"} & set(environment)
    assert environment["HOME"] == environment["TMPDIR"] != os.environ.get("HOME")


def test_the_power_of_the_benchmark_proper(host, monkeypatch):
    smi(host, monkeypatch, "echo 0, 400.00, 700.00")
    host.behave(duration=2.2)
    _result, power = run(host, Chips("cuda", (0,)))
    assert power == {"joules": 880.0, "watts": 400.0}


@pytest.mark.parametrize("text", ["echo No devices were found; exit 6", "echo '0, [N/A], 700'"])
def test_without_power_there_are_no_joules(host, monkeypatch, text):
    smi(host, monkeypatch, f"echo x >> {host.bin}/asked; {text}")
    host.behave(duration=1.7)
    _result, power = run(host, Chips("cuda", (0,)))
    # A tool that fails once is not asked again.
    assert power == {} and (host.bin / "asked").read_text() == "x\n"


def test_a_run_that_never_began_has_no_joules():
    assert power_of(Run(0, (), None, ((1.0, 2.0),) * 9), 3.0) == {}


def test_the_limit_ends_it(host):
    host.behave("time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(BenchError, match=r"did not finish within 0.5 s, the time limit of a measurement"):
        run(host, seconds=0.5)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("program", ["exec >&- 2>&-; exec sleep 20", "setsid sleep 20 & exit"])
def test_the_limit_also_ends_one_that_has_closed_its_output_or_given_it_away(program):
    began = time.monotonic()
    run_command(["sh", "-c", program], {"PATH": os.defpath}, None, Chips(), 0.3)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "raise ValueError('Initial test run failed: Unauthorized ' + os.environ['OPENAI_API_KEY'])",
            "ValueError: Initial",
        ),
        (
            "sys.exit('vllm bench serve: error: unrecognized arguments: --x')",
            "exit status 1: vllm bench serve: error: unrec",
        ),
        ("raise OSError(28, 'No space left on device')", "No space left on device"),
        ("sys.exit(3)", "exit status 3: Starting initial single prompt test run..."),
    ],
)
def test_a_benchmark_that_fails_is_quoted_without_secrets(host, code, message):
    host.behave(code)
    with pytest.raises(BenchError) as caught:
        run(host)
    assert message in str(caught.value) and KEY not in str(caught.value)


def test_failed_requests_are_an_error(host):
    host.behave(failed=1)
    with pytest.raises(BenchError, match="of 2 requests 1 were answered and 1 failed"):
        run(host)


def test_a_benchmark_that_writes_nothing_is_an_error(host):
    host.behave("sys.exit(0)")
    with pytest.raises(BenchError, match=r"wrote no result: .*No such file"):
        run(host)


def test_a_container_is_entered_and_cleaned(host):
    engine = host.bin / "docker"
    # Runs the words after the container's name on this machine, without what the host would give it.
    host.program(
        "docker",
        f'#!/bin/sh\necho "$@" >> {host.bin}/docker-calls\nshift\nwhile [ "$1" = --env ]; do shift 2; done\nshift\n'
        f'mkdir -p /tmp/bench-{TWO.seed}\nPATH={host.bin}:$PATH exec "$@"\n',
    )
    (host.root / "etc/systemd/system").mkdir(parents=True)
    (host.root / "etc/systemd/system/vllm@chat.service").write_text("")
    host.serve(f"{engine} run --rm image")
    result, _power = run(host)
    calls = (host.bin / "docker-calls").read_text().splitlines()
    assert result["completed"] == 2 and KEY not in "".join(calls)
    assert [line.split("vllm-chat ")[1].split()[0] for line in calls] == ["timeout", "cat", "rm"]
    [(_arguments, environment)] = host.calls()
    assert environment["OPENAI_API_KEY"] == KEY


def test_the_commands_file_is_missing(host):
    (host.bin / "vllm").write_text("#!/nowhere/python\n")
    with pytest.raises(BenchError, match="does not find the command vllm"):
        run(host)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_owns_the_directory():
    with working_directory("nobody") as (directory, account):
        assert os.stat(directory).st_uid == account.pw_uid == pwd.getpwnam("nobody").pw_uid
    with pytest.raises(BenchError, match="user: 'nobodi' is not a user of this host"), working_directory("nobodi"):
        pass
