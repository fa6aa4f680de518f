# SPDX-License-Identifier: GPL-3.0-or-later
"""The service with a stand-in for ``vllm preload``, and the start of an instance that waits for it."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import preload_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.preload_host import serve, settle

CONFIG = 'model: /m\nport: 8000\nload-format: ipc_cache\nmodel-loader-extra-config: \'{{"socket_dir": "{}"}}\'\n'
# Waits a moment, is ready, and ends by the signal of a stop.
VLLM = """#!/bin/sh
echo "$@" > $RUNTIME_DIRECTORY/words
cat "$3" > $RUNTIME_DIRECTORY/config
sleep 0.3
mkdir -p "$5"; touch "$5/vllm_weight_cache_0.sock"
[ ! -e $RUNTIME_DIRECTORY/fails ] || exit 3
exec sleep 60
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with one instance; ``settings`` is its configuration."""
    for name in ("etc", "run", "bin"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setattr(preload_host, "CONFIG_DIR", str(tmp_path / "etc"))
    monkeypatch.setattr(
        preload_host, "directory_in", lambda text: text.partition('socket_dir": "')[2].partition('"')[0]
    )
    monkeypatch.setattr(preload_host, "_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(preload_host.signal, "signal", lambda *_args: None)
    program(tmp_path, "vllm", VLLM)
    (tmp_path / "etc/chat.yaml").write_text(CONFIG.format(tmp_path / "run/abc"))
    return tmp_path


def program(top, name, text):
    (top / "bin" / name).write_text(text)
    (top / "bin" / name).chmod(0o755)


@pytest.fixture
def systemd(host, monkeypatch):
    """What the service tells systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(host / "notify"))
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(host / "notify"))
        yield listener


def when_ready(systemd, action):
    """Do something as soon as the service has told systemd that it is ready; what it told is in the list."""
    told = []
    thread = threading.Thread(target=lambda: (told.append(systemd.recv(1000).decode()), action()))
    thread.start()
    return thread, told


def seen_when_ready(host, systemd):
    """Return the sockets that were there when the service was ready."""
    seen = []

    def look():
        seen.extend(os.listdir(host / "run/abc"))
        (host / "etc/chat.yaml").unlink()

    thread, told = when_ready(systemd, look)
    assert serve("chat") == 0
    thread.join()
    assert told == [f"READY=1\nSTATUS={host / 'run/abc'}"]
    return sorted(seen)


def test_the_weights_are_there_when_every_part_has_its_socket(host, systemd):
    (host / "run/abc").mkdir()
    # Left by a program that was killed.
    (host / "run/abc/vllm_weight_cache_old.sock").touch()
    assert seen_when_ready(host, systemd) == ["vllm_weight_cache_0.sock"]
    # Nobody else would know whose it was.
    assert not (host / "run/abc").exists()
    assert (host / "run/words").read_text().split() == [
        "preload", "--config", str(host / "run/chat.yaml"), "--weight-cache-socket-dir", str(host / "run/abc"),
    ]  # fmt: skip
    assert (host / "run/config").read_text() == "model: /m\n"


def test_it_is_not_ready_before_all_parts_are_there(host, systemd):
    program(host, "vllm", VLLM.replace('_0.sock"', '_0.sock"; sleep 0.6; touch "$5/vllm_weight_cache_1.sock"'))
    text = CONFIG.format(host / "run/abc") + "tensor-parallel-size: 2\n"
    (host / "etc/chat.yaml").write_text(text)
    assert seen_when_ready(host, systemd) == ["vllm_weight_cache_0.sock", "vllm_weight_cache_1.sock"]


def test_a_draft_that_is_there_first_does_not_count_for_the_model(host, systemd):
    """An engine that starts too early reads the weights itself, beside those that are still being loaded."""
    program(host, "vllm", VLLM.replace('_0.sock"', '_0_draft.sock"; sleep 0.6; touch "$5/vllm_weight_cache_0.sock"'))
    (host / "etc/chat.yaml").write_text(CONFIG.format(host / "run/abc"))
    assert seen_when_ready(host, systemd) == ["vllm_weight_cache_0.sock", "vllm_weight_cache_0_draft.sock"]


def test_it_is_not_ready_before_a_draft_is_there(host, systemd):
    program(host, "vllm", VLLM.replace('_0.sock"', '_0.sock"; sleep 0.6; touch "$5/vllm_weight_cache_0_draft.sock"'))
    spec = 'speculative-config: \'{"method": "eagle3", "model": "/d"}\'\n'
    (host / "etc/chat.yaml").write_text(CONFIG.format(host / "run/abc") + spec)
    assert seen_when_ready(host, systemd) == ["vllm_weight_cache_0.sock", "vllm_weight_cache_0_draft.sock"]


def test_it_ends_when_the_configuration_names_other_weights(host, systemd):
    config = host / "etc/chat.yaml"
    thread, _told = when_ready(systemd, lambda: config.write_text(CONFIG.format(host / "run/other")))
    assert serve("chat") == 0
    thread.join()


def test_an_instance_that_reads_its_weights_itself_has_no_program(host):
    (host / "etc/chat.yaml").write_text("model: /m\n")
    assert serve("chat") == 0 and not (host / "run/words").exists()


def test_a_program_that_fails_is_a_failed_service(host):
    (host / "run/fails").touch()
    assert serve("chat") == 3


SYSTEMCTL = """#!/bin/sh
echo "$*" >> {log}
case $1 in show) printf 'ActiveState={state}\\nStatusText={status}\\n' ;; restart) exit {rc} ;; esac
"""


@pytest.mark.parametrize(("state", "status", "rc", "restarts", "said"), [
    ("active", "run/abc", 0, 0, "The weights are on the chips"),
    ("active", "run/other", 0, 1, "The weights are on the chips after "),
    ("inactive", "", 0, 1, "The weights are on the chips after "),
    ("failed", "", 1, 1, "has failed, so vLLM reads the weights itself; see journalctl -u vllm-preload@chat.service"),
])  # fmt: skip
def test_a_start_waits_for_the_weights_of_its_plan(host, state, status, rc, restarts, said):
    log = host / "log"
    program(host, "systemctl", SYSTEMCTL.format(log=log, state=state, status=status and host / status, rc=rc))
    assert said in settle("chat")
    assert log.read_text().count("restart -- vllm-preload@chat.service") == restarts


def test_a_start_without_such_weights_waits_for_nothing(host):
    program(host, "systemctl", "#!/bin/sh\nexit 1\n")
    (host / "etc/chat.yaml").write_text("model: /m\n")
    assert settle("chat") == ""
