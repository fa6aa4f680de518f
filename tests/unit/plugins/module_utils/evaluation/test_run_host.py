# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation import run_host
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.lm_eval import TOOL
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.run_host import (
    BusyError,
    lock_instance,
    missing_bytes,
    prepare,
    read_data,
    read_items,
    remove_abandoned,
    write_result,
)
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.run_host import run as run_guarded
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import OutputError
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tools import TOOLS
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Processes
from ansible_collections.baremetal.inference.plugins.module_utils.instance.listener_guard_host import ListenerGuard

RECORDED = Path(__file__).resolve().parents[4] / "fixtures/evaluation"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PLANTED": "yes"}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


# Another process of the module, which prints the number of its tool.
OTHER_RUN = """
import os, socket, subprocess, sys
from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import become
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.run_host import account
words = ["sleep", "60"]
with subprocess.Popen(words, env={"OPENAI_API_KEY": "secret"}, preexec_fn=become(account())) as tool:
    print(tool.pid, flush=True)
"""


@pytest.fixture
def work():
    """A directory that another user can reach."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    (place / "work").mkdir()
    yield place / "work"
    shutil.rmtree(place)


@pytest.fixture
def run():
    """Run a command while a process of this user listens, as an instance does; ``run.listener`` is its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def guarded(*words):
            guard = ListenerGuard("127.0.0.1", listener.getsockname()[1], Processes())
            return run_guarded(*words, guard)

        guarded.listener = listener
        yield guarded


def test_status_output_and_environment_of_a_command(work, run):
    ended = run(["sh", "-c", "echo out; env; echo err >&2; exit 3"], ENVIRONMENT, str(work), 20)
    assert ended.status == 3 and "out\n" in ended.log and "err\n" in ended.log
    assert "PLANTED=yes" in ended.log and "HOME=/" not in ended.log
    assert os.listdir(work.parent) == ["work"]


@AS_ROOT
def test_it_runs_without_rights_in_a_directory_of_its_own(work, run):
    own = prepare(str(work), {"tasks/a.yaml": "text"})
    ended = run(["sh", "-c", "id -u; id -G; cat tasks/a.yaml; touch there"], ENVIRONMENT, own, 20)
    number = run_host.account().pw_uid
    assert ended.log.split("\n")[:2] == [str(number)] * 2 and "text" in ended.log and ended.status == 0
    assert (work / "tool/there").stat().st_uid == number
    with pytest.raises(KeyError):
        pwd.getpwuid(number)


@AS_ROOT
def test_a_tool_reads_no_key_of_another_run_and_cannot_end_it(work, run):
    """Two at the same time, as two playbooks may have them at one host."""
    own = prepare(str(work), {})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", OTHER_RUN], env=env, stdout=subprocess.PIPE, text=True) as other:
        number = other.stdout.readline().strip()
        ended = run(["sh", "-c", f"cat /proc/{number}/environ; kill {number}"], ENVIRONMENT, own, 20)
    assert "Permission denied" in ended.log and "not permitted" in ended.log and "secret" not in ended.log


@AS_ROOT
def test_nobody_reaches_the_files_while_they_are_given_away(work, monkeypatch):
    """Who does could put a link to /etc in place of a directory that is his already."""
    work.chmod(0o700)
    modes, given = [], os.lchown

    def give(path, *ids):
        modes.append(work.stat().st_mode & 0o777)
        given(path, *ids)

    monkeypatch.setattr(os, "lchown", give)
    prepare(str(work), {"tasks/a/b.yaml": "text"})
    assert len(modes) > 3 and {*modes} == {0o700} and work.stat().st_mode & 0o777 == 0o710


@AS_ROOT
def test_nobody_else_reads_what_a_running_tool_has(work, run):
    """Neither a user of the host nor the tool of another evaluation."""
    (work / "samples.jsonl").write_text("question")
    own = prepare(str(work), {"tasks/a.yaml": "question"})
    paths = [f"{work}/samples.jsonl", own, f"{own}/tasks/a.yaml", f"{own}/out", f"{own}/out/answers"]
    ended = run(["sh", "-c", "echo answer > out/answers; stat -c %a ."], ENVIRONMENT, own, 20)
    assert ended.log == "700\n" and Path(paths[-1]).read_text() == "answer\n"
    number = run_host.account().pw_uid
    for other in (65534, number + 1):
        as_other = ["setpriv", f"--reuid={other}", f"--regid={other}", "--clear-groups"]
        for path in paths:
            found = subprocess.run([*as_other, "stat", path], capture_output=True, text=True, check=False)
            assert found.returncode and "Permission denied" in found.stderr, path
    # The directory of the tool is closed by itself too.
    work.chmod(0o711)
    found = subprocess.run([*as_other, "ls", own], capture_output=True, text=True, check=False)
    assert found.returncode and "Permission denied" in found.stderr


def test_a_command_that_takes_too_long_ends_with_its_children(work, run):
    began = time.monotonic()
    ended = run(["sh", "-c", "sleep 61 & echo $!; sleep 62"], ENVIRONMENT, str(work), 0.5)
    assert ended.status is None and time.monotonic() - began < 20
    child = int(ended.log.split()[0])
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@AS_ROOT
@pytest.mark.parametrize("command", ["ln -s /etc/shadow", "mkfifo"])
def test_the_tool_puts_nothing_in_the_place_of_the_result(work, run, command):
    # root followed a link there, and a FIFO held it up.
    own = prepare(str(work), {})
    result = f"{work}/result.json.gz"
    ended = run(["sh", "-c", f"{command} {result}; touch {work}/samples.jsonl"], ENVIRONMENT, own, 20)
    assert "Permission denied" in ended.log and sorted(os.listdir(work)) == ["tool"]
    write_result(result, {"a": 1})


def test_a_process_that_leaves_its_session_ends_too(work, run):
    ended = run(["sh", "-c", "setsid sleep 63 & echo $!; sleep 0.5"], ENVIRONMENT, str(work), 20)
    assert not Path(f"/proc/{int(ended.log.split()[0])}").exists()


def test_a_tool_with_the_key_ends_in_the_moment_in_which_the_instance_does(work, run):
    # Behind a tool that asks again for hours, any user could take the port.
    def end():
        run.listener.shutdown(socket.SHUT_RDWR)
        run.listener.close()

    threading.Timer(0.5, end).start()
    began = time.monotonic()
    ended = run(["sleep", "64"], ENVIRONMENT, str(work), 60)
    assert time.monotonic() - began < 20 and ended.status != 0
    assert "127.0.0.1 port " in ended.problem and "refused" in ended.problem


def test_the_expected_answers_of_the_questions(tmp_path):
    (tmp_path / "s").write_text('{"id": "1", "prompt": "?", "expected": "A"}\n')
    questions, size = read_data(str(tmp_path / "s"))
    assert questions == [{"id": "1", "prompt": "?", "expected": "A"}] and size == 44


def test_the_room_that_answers_need(tmp_path):
    needed, free = missing_bytes(str(tmp_path), 1000, 1 << 20)
    assert needed == (64 << 20) + (4 << 20) + 1000 * 8192 and free > 0
    assert missing_bytes(str(tmp_path), 2000, 1 << 20)[0] > needed


def test_two_runs_of_one_instance_exclude_each_other(tmp_path):
    root = str(tmp_path)
    refused = pytest.raises(BusyError, match=r"another evaluation of this instance is running: process \d+ of ")
    with lock_instance("chat", root), lock_instance("other", root), refused, lock_instance("chat", root):
        pass
    with lock_instance("chat", root):
        pass
    # vLLM's user may read the instance's own files, but not this one.
    assert (tmp_path / "run/vllm/.chat.evaluation.lock").stat().st_mode & 0o777 == 0o600


def test_what_an_interrupted_run_left_is_removed_and_nothing_else(tmp_path):
    abandoned = ("evaluate-a1_b.chat",)
    kept = (
        "evaluate-own.chat", "evaluate-x.chat-b", "evaluate-x.b.chat", "other.chat", "evaluate-copies.chat",
        "evaluate-link.chat",
    )  # fmt: skip
    for name in (*abandoned, *kept[:-1]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
        if name != "evaluate-copies.chat":
            os.utime(tmp_path / name, (5, 5))
    (tmp_path / kept[-1]).symlink_to(tmp_path / "other.chat")
    remove_abandoned(f"{tmp_path}/evaluate-own.chat/", "chat")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    assert os.listdir(tmp_path / "other.chat") == ["file"]


@AS_ROOT
def test_what_another_user_has_made_under_the_name_of_a_run_stays(tmp_path):
    (tmp_path / "evaluate-bait.chat/moved").mkdir(parents=True)
    os.chown(tmp_path / "evaluate-bait.chat", 4242, 4242)
    os.utime(tmp_path / "evaluate-bait.chat", (5, 5))
    remove_abandoned(f"{tmp_path}/evaluate-own.chat/", "chat")
    assert (tmp_path / "evaluate-bait.chat/moved").exists()


def test_samples_that_lm_eval_could_not_write(tmp_path):
    (tmp_path / "out" / "model").mkdir(parents=True)
    expected = r"lm-eval left 0 files of judged answers, expected 1; is the disk full\? Its last message: No space left"
    with pytest.raises(OutputError, match=expected):
        read_items(str(tmp_path), TOOL, "t", [], "x\nNo space left\n")
    (tmp_path / "out" / "model" / "samples_t_2026.jsonl").write_text("")
    assert read_items(str(tmp_path), TOOL, "t", [], "") == []


def test_why_aisbench_has_no_answers_is_in_the_log_of_a_part(tmp_path):
    log = tmp_path / "out/2026/logs/infer/instance/GPQA_diamond.out"
    log.parent.mkdir(parents=True)
    log.write_bytes((RECORDED / "aisbench-unreachable.out").read_bytes())
    with pytest.raises(OutputError, match=r"AISBench left 0 files of judged answers.*Cannot connect to host"):
        read_items(str(tmp_path), TOOLS["aisbench"], "gpqa", [], "Summarizing evaluation results...\n")


def test_a_request_that_failed_is_no_wrong_answer(tmp_path):
    for path, name in (("results", "aisbench-gpqa.json"), ("predictions", "aisbench-gpqa-failed.jsonl")):
        place = tmp_path / "out/2026" / path / "instance"
        place.mkdir(parents=True)
        target = "GPQA_diamond.json" if path == "results" else "GPQA_diamond_failed.jsonl"
        (place / target).write_bytes((RECORDED / name).read_bytes())
    with pytest.raises(OutputError, match=r"AISBench: 1 requests failed; the first: .*Bad Request"):
        read_items(str(tmp_path), TOOLS["aisbench"], "gpqa", [{"id": str(n)} for n in range(6)], "")
    (place / target).write_text("")
    assert len(read_items(str(tmp_path), TOOLS["aisbench"], "gpqa", [{"id": str(n)} for n in range(6)], "")) == 6


def test_a_result_that_the_controller_would_refuse_is_not_written(tmp_path, monkeypatch):
    """Ansible reads the whole file into the controller's memory, and the user of the tool chooses what is in it."""
    monkeypatch.setattr(run_host, "MOST_BYTES", 1 << 20)
    with pytest.raises(OutputError, match="the answers have 2 MiB, expected at most 1 MiB; ask fewer questions"):
        write_result(str(tmp_path / "r"), {"a": "ü" * (1 << 20)})
    assert not (tmp_path / "r").exists()


def test_a_result_is_for_its_owner_and_never_written_through_a_link(tmp_path):
    write_result(str(tmp_path / "r"), {"a": 1})
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o600
    (tmp_path / "l").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_result(str(tmp_path / "l"), {"a": 1})
    assert not (tmp_path / "target").exists()
