# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import hashlib
import os
import types
from http.client import IncompleteRead

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tools import TOOLS
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import parse_lock
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation import files
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.results import make_result, render
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import EvaluationError

from tests.fakes.evaluations import SETTINGS, answers
from tests.fakes.wheelhouse import served

DIGEST = "0" * 64


def put(directory, host, task="mmlu"):
    result = make_result(answers(task, [True]), {**SETTINGS, "task": task, "samples": 1}, host, "")
    files.write(files.result_path(str(directory), host, "chat", task), render(result))


def test_the_sites_task_goes_before_the_bundled_one(tmp_path):
    (tmp_path / "mmlu.yml").write_text("")
    assert files.find_tasks([str(tmp_path)])["mmlu"] == tmp_path / "mmlu.yml"
    assert files.find_tasks([str(tmp_path)])["gpqa"] == files.BUNDLED / "gpqa.yml"


def test_a_wrong_directory_or_name_of_a_task(tmp_path):
    with pytest.raises(EvaluationError, match=r"evaluate_task_path: .*missing is not a directory on the controller"):
        files.find_tasks([str(tmp_path / "missing")])
    (tmp_path / "My Task.yml").write_text("")
    with pytest.raises(EvaluationError, match=r"My Task.yml: expected a name of lower-case letters"):
        files.find_tasks([str(tmp_path)])


def test_a_definition_that_is_no_yaml(tmp_path):
    (tmp_path / "t.yml").write_text("a: [")
    with pytest.raises(EvaluationError, match=r"t.yml: cannot be read"):
        files.load_task(tmp_path / "t.yml")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "evaluate_data: mmlu is missing: the collection brings no data for MMLU; set file (or url) and sha256"),
        ({"sha256": DIGEST}, "evaluate_data: mmlu: found the keys sha256, expected sha256 and either file or url"),
        (
            {"file": "x", "url": "http://u:pw@m/x"},
            "mmlu: found the keys file, url, expected sha256 and either file or url",
        ),
        ("mmlu.csv", "evaluate_data: mmlu: found 'mmlu.csv', expected a mapping with sha256 and either file or url"),
        ({"file": "x", "sha": DIGEST}, "found the keys file, sha, expected sha256 and either file or url"),
        ({"file": "x", "sha256": "abc"}, "evaluate_data: mmlu: sha256: found 'abc', expected 64 hexadecimal digits"),
    ],
)
def test_data_that_is_not_named_right(given, expected):
    path = files.BUNDLED / "mmlu.yml"
    with pytest.raises(EvaluationError) as caught:
        files.locate_data(path, files.load_task(path), given, "/d")
    assert expected in str(caught.value)


def test_where_data_is():
    path = files.BUNDLED / "mmlu.yml"
    task = files.load_task(path)
    assert files.locate_data(path, task, {"file": "/x.csv", "sha256": DIGEST}, "/d") == ("/x.csv", DIGEST)
    assert files.locate_data(path, task, {"url": "http://m/x.csv", "sha256": DIGEST}, "/d") == (f"/d/{DIGEST}", DIGEST)
    made = files.BUNDLED / "made.yml"
    where, digest = files.locate_data(made, files.load_task(made), {}, "/d")
    assert files.read_data("made", where, digest)[1] == digest


def test_another_file_than_the_pinned_one_is_refused(tmp_path):
    (tmp_path / "x").write_text("changed")
    digest = hashlib.sha256(b"changed").hexdigest()
    with pytest.raises(EvaluationError, match=rf"evaluate_data: t: .*x has the sha256 {digest}, expected {DIGEST}"):
        files.read_data("t", str(tmp_path / "x"), DIGEST)
    with pytest.raises(EvaluationError, match=rf"has the sha256 {digest}, expected it in evaluate_data"):
        files.read_data("t", str(tmp_path / "x"), "")
    with pytest.raises(EvaluationError, match=r"evaluate_data: t: .*y: No such file or directory"):
        files.read_data("t", str(tmp_path / "y"), DIGEST)
    (tmp_path / "z").write_bytes(b"\xff")
    with pytest.raises(EvaluationError, match=r"z: is not UTF-8"):
        files.read_data("t", str(tmp_path / "z"), hashlib.sha256(b"\xff").hexdigest())


def test_data_from_a_mirror_is_downloaded_once_and_only_if_it_is_the_pinned_file(tmp_path):
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "x.csv").write_text("data")
    digest, path = hashlib.sha256(b"data").hexdigest(), str(tmp_path / "down" / "x")
    with served(tmp_path / "www") as (url, asked):
        with pytest.raises(EvaluationError, match=rf"x.csv has the sha256 {digest}, expected {DIGEST}"):
            files.download("t", f"{url}/x.csv", path, DIGEST)
        assert not os.path.exists(path)
        with pytest.raises(EvaluationError, match=r"evaluate_data: t: sha256 is missing"):
            files.download("t", f"{url}/x.csv", path, "")
        with pytest.raises(EvaluationError, match=r"y.csv cannot be downloaded: .*404"):
            files.download("t", f"{url}/y.csv", path, digest)
        files.download("t", f"{url}/x.csv", path, digest)
        before = len(asked)
        files.download("t", f"{url}/x.csv", path, digest)
        assert len(asked) == before
    assert files.read_data("t", path, digest) == ("data", digest)


def test_a_download_that_breaks_off(tmp_path, monkeypatch):
    def cut(*_args, **_options):
        raise IncompleteRead(b"1,2", 400)

    monkeypatch.setattr(files, "open_url", cut)
    with pytest.raises(EvaluationError, match=r"t: http://m/x.csv cannot be downloaded: IncompleteRead\(3 bytes read"):
        files.download("t", "http://m/x.csv", str(tmp_path / "x"), DIGEST)
    assert not os.listdir(tmp_path)


def test_a_password_of_the_mirror_is_in_no_message(tmp_path, monkeypatch):
    def fail(url, **_options):
        raise ValueError(f"no host at {url}")

    monkeypatch.setattr(files, "open_url", fail)
    for digest in (DIGEST, ""):
        with pytest.raises(EvaluationError, match=r"http://m/x.csv") as caught:
            files.download("t", "http://user:planted@m/x.csv", str(tmp_path / "x"), digest)
        assert "planted" not in str(caught.value)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_a_lock_for_each_python_and_machine(version, machine):
    lock = parse_lock(files.choose_lock(TOOLS["lm-eval"], version, machine).read_text())
    assert (lock.target.python, lock.target.machine) == (version, machine)
    assert lock.pins["lm-eval"].version == TOOLS["lm-eval"].version and lock.tool.version
    # It asks an endpoint and needs no model of its own.
    assert not {"torch", "transformers", "vllm"} & set(lock.pins)
    assert {"aiohttp", "requests", "tenacity", "tqdm", "datasets"} <= set(lock.pins)


def test_a_python_without_a_lock():
    with pytest.raises(
        EvaluationError, match=r"evaluate_python: found cp39-x86_64, but lm-eval .* cp310-aarch64, .*3.12"
    ):
        files.choose_lock(TOOLS["lm-eval"], "3.9", "x86_64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_gpt_oss_has_locks_for_the_pythons_that_it_takes(version, machine):
    lock = parse_lock(files.choose_lock(TOOLS["gpt-oss"], version, machine).read_text())
    assert lock.pins["gpt-oss"].version == TOOLS["gpt-oss"].version and lock.tool.version
    assert {"openai", "pandas", "jinja2", "numpy", "tqdm"} <= set(lock.pins)
    assert not {"torch", "vllm", "docker", "openai-harmony"} & set(lock.pins)
    with pytest.raises(EvaluationError, match=r"found cp311-x86_64, but gpt-oss 0.0.9 has locks .*cp312-x86_64"):
        files.choose_lock(TOOLS["gpt-oss"], "3.11", "x86_64")


def test_aisbench_comes_with_an_environment_of_the_site():
    with pytest.raises(EvaluationError, match=r"evaluate_environment is missing: .* no lock of AISBench"):
        files.choose_lock(TOOLS["aisbench"], "3.10", "aarch64")


def test_a_result_that_is_not_there_or_no_result(tmp_path):
    assert files.read_result(str(tmp_path / "x.json")) is None
    (tmp_path / "x.json").write_text('{"format": 1')
    with pytest.raises(EvaluationError, match=r"x.json: cannot be read as a result: .*; remove it to evaluate again"):
        files.read_result(str(tmp_path / "x.json"))


def test_the_result_to_compare_with_is_the_hosts_or_the_only_one(tmp_path):
    put(tmp_path, "gpu-1")
    assert files.find_result(str(tmp_path), "gpu-2", "chat", "mmlu")["host"] == "gpu-1"
    put(tmp_path, "gpu-2")
    assert files.find_result(str(tmp_path), "gpu-2", "chat", "mmlu")["host"] == "gpu-2"
    with pytest.raises(EvaluationError, match=r"the hosts with such a result are: gpu-1, gpu-2; expected exactly one"):
        files.find_result(str(tmp_path), "gpu-3", "chat", "mmlu")
    with pytest.raises(EvaluationError, match=r"evaluate_compare: .*gpqa.json is not there, .* are: none"):
        files.find_result(str(tmp_path), "gpu-1", "chat", "gpqa")
    with pytest.raises(EvaluationError, match=r"none; expected exactly one"):
        files.find_result(str(tmp_path / "nowhere"), "gpu-1", "chat", "mmlu")


def test_scores_get_into_an_evidence_file_once(tmp_path):
    put(tmp_path, "gpu-1")
    results = [files.read_result(files.result_path(str(tmp_path), "gpu-1", "chat", "mmlu"))]
    path = tmp_path / "evidence.yml"
    path.write_text('status: measured\nmodel: openai/gpt-oss-20b\nrelease: "0.32.0"\nscores: {}\n')
    assert files.update_evidence(str(path), results) is True
    head = "status: measured\nmodel: openai/gpt-oss-20b\nrelease: 0.32.0\n"
    assert path.read_text() == f"{head}scores:\n  mmlu:\n    score: 1.0\n    samples: 1\n"
    assert files.update_evidence(str(path), results) is False


def test_a_file_that_is_no_evidence(tmp_path):
    with pytest.raises(EvaluationError, match=r"evaluate_evidence: .*x.yml: cannot be read"):
        files.update_evidence(str(tmp_path / "x.yml"), [])
    (tmp_path / "x.yml").write_text("- 1")
    with pytest.raises(EvaluationError, match=r"evaluate_evidence: .*x.yml: found list, expected the evidence"):
        files.update_evidence(str(tmp_path / "x.yml"), [])


def test_answers_that_were_cut_off(tmp_path):
    data = gzip.compress(b'{"items": [], "model": "m", "state": "s", "plan": {}}')
    (tmp_path / "a.gz").write_bytes(data)
    assert files.read_answers(str(tmp_path / "a.gz"))["items"] == []
    # The second has a block of a kind that deflate does not know.
    for damaged in (data[:-9], data[:10] + b"\xff" * 20):
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(EvaluationError, match=r"a.gz: the answers cannot be read"):
            files.read_answers(str(tmp_path / "a.gz"))


def test_answers_and_data_without_end_are_not_read_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    # 2 KiB on the way, 2 MiB here.
    (tmp_path / "a.gz").write_bytes(gzip.compress(b'"' + b" " * (2 << 20) + b'"'))
    with pytest.raises(EvaluationError, match=r"a.gz: the answers have more than 1 MiB"):
        files.read_answers(str(tmp_path / "a.gz"))
    (tmp_path / "www").mkdir()
    (tmp_path / "www/x.csv").write_bytes(b" " * (2 << 20))
    with served(tmp_path / "www") as (url, _asked), pytest.raises(EvaluationError, match=r"x.csv has more than 1 MiB"):
        files.download("t", f"{url}/x.csv", str(tmp_path / "x"), DIGEST)


def test_no_room_for_the_results(tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _path: types.SimpleNamespace(free=20 << 20))
    files.check_room(str(tmp_path), 100)
    with pytest.raises(
        EvaluationError, match=r"found 20 MiB free, expected 125 MiB for 14042 answers; make room there"
    ):
        files.check_room(str(tmp_path), 14042)
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match=r"evaluate_dir: .*file/x: Not a directory; expected a directory"):
        files.check_room(str(tmp_path / "file" / "x"), 1)


def test_a_disk_that_is_full_meanwhile():
    with pytest.raises(EvaluationError, match=r"evaluate_dir: /dev/full/x: "):
        files.write("/dev/full/x", "text")


def test_fetched_answers_lie_where_only_this_user_can_enter(tmp_path):
    (tmp_path / ".answers").mkdir(0o755)
    files.make_answers_directory(str(tmp_path))
    path = files.answers_path(str(tmp_path), "gpu-1", "chat", "t")
    assert (
        os.path.dirname(path) == str(tmp_path / ".answers") and (tmp_path / ".answers").stat().st_mode & 0o777 == 0o700
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match=r"evaluate_dir: .*file/.answers: "):
        files.make_answers_directory(str(tmp_path / "file"))
