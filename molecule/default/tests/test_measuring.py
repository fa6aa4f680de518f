# SPDX-License-Identifier: GPL-3.0-or-later
"""What bench, tune, accept and evaluate find on a host that serves, and that they leave it as it was."""

from __future__ import annotations

import json

import pytest
import yaml
from serving_host import SECRETS, TOP, chat, playbook

pytestmark = pytest.mark.long
SHORT = {"short": {"title": "Short chats", "dataset": "random", "input_tokens": 32, "output_tokens": 16}}
# The health service keeps its state and its figures.
CHANGED = (
    "find /etc /var/lib /opt /usr/local -newer /run/before -type f"
    " ! -path '/var/lib/systemd/*' ! -path '*/vllm-health[./]*'"
)


def configuration(host):
    """Return mode, owner, name and content of the files of the instances, without secrets: their sha256."""
    return host.check_output("cd /etc/vllm && stat -c '%a %U %G %n' * && sha256sum *")


@pytest.fixture
def settled(serving):
    """The host; afterwards it still serves, with the same files. A tune rewrites those of the instance."""
    before = configuration(serving)
    serving.check_output("touch /run/before")
    yield serving
    assert chat() == "The fleet is ready."
    assert configuration(serving) == before
    own = ("/var/lib/vllm/chat/", "/var/lib/vllm/tune.json.lock", "/etc/vllm/")
    assert [path for path in serving.check_output(CHANGED).split() if not path.startswith(own)] == []


def run(name, directory, **variables):
    """Run a playbook on the host; return the process and its output without the planted secrets."""
    done = playbook(f"playbooks/{name}.yml", "-l", "cpu-12", "-e", json.dumps(variables))
    output = done.stdout + done.stderr
    texts = [path.read_text() for path in directory.rglob("*") if path.is_file()]
    assert [secret for secret in SECRETS if any(secret in text for text in [output, *texts])] == []
    return done, output


def test_it_is_measured_and_a_second_run_has_nothing_to_do(settled, tmp_path):
    wanted = {
        "bench_workloads": "short",
        "bench_workload_definitions": SHORT,
        "bench_concurrency": "1,2",
        "bench_repeats": 2,
        "bench_dir": str(tmp_path),
    }
    done, output = run("bench", tmp_path, **wanted)
    assert done.returncode == 0, output
    (evidence,) = tmp_path.rglob("evidence.yml")
    found = yaml.safe_load(evidence.read_text())
    assert (found["model"], found["accelerator"], found["status"]) == ("baremetal/gpt-oss-smoke", "cpu", "measured")
    assert [point["concurrency"] for point in found["results"]] == [1, 2]
    for point in found["results"]:
        speed = point["output_tokens_per_second"]
        assert 0 < speed["lowest"] <= speed["median"] <= speed["highest"]
    (page,) = tmp_path.rglob("report.html")
    assert "short" in page.read_text()
    raw = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("raw/*.json")}
    assert len(raw) == 4
    done, output = run("bench", tmp_path, **wanted)
    assert done.returncode == 0, output
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("raw/*.json")} == raw


def test_two_variants_are_compared_and_the_instance_goes_back(settled, tmp_path):
    before = settled.file("/etc/vllm/chat.yaml").content_string
    done, output = run(
        "tune",
        tmp_path,
        tune_instance="chat",
        tune_variants={"one-at-a-time": {"args": {"max-num-seqs": 1}}},
        tune_goal={"metric": "output_tokens_per_second", "concurrency": 4, "workload": "short"},
        tune_workload_definitions=SHORT,
        tune_rounds=2,
        tune_dir=str(tmp_path),
    )
    assert done.returncode == 0, output
    (result,) = tmp_path.rglob("result.json")
    assert "one-at-a-time" in result.read_text()
    assert settled.file("/etc/vllm/chat.yaml").content_string == before
    assert not settled.file("/var/lib/vllm/tune.json").exists


def test_the_machine_is_accepted(settled, tmp_path):
    done, output = run("accept", tmp_path, accept_minutes=0.2, accept_dir=str(tmp_path), accept_storage_bytes=64 << 20)
    assert done.returncode == 0, output
    (result,) = tmp_path.rglob("*.json")
    document = json.loads(result.read_text())
    assert document["accepted"] is True
    (bench,) = document["benches"]
    assert (bench["item"], bench["figures"]["requests"]) == ("chat", 8)
    assert bench["figures"]["output_tokens_per_second"] > 0
    assert "bench of chat" in output
    assert [path.suffix for path in tmp_path.iterdir() if path != result] == [".html"]


def test_questions_are_asked_twice_and_compared(serving, tmp_path):
    if not list((TOP / ".lab/mirror/wheels").glob("lm_eval-*.whl")):
        pytest.skip("needs the wheels of lm-eval on the mirror (MOLECULE_LONG=1 tools/lab/content.sh brings them)")
    asked = {"evaluate_tasks": "made", "evaluate_samples": 40}
    done, output = run("evaluate", tmp_path, **asked, evaluate_dir=str(tmp_path / "before"))
    assert done.returncode == 0, output
    result = json.loads((tmp_path / "before/cpu-12/chat/made.json").read_text())
    # The smoke model knows one sentence: it is right where that is the answer.
    assert result["samples"] == 40 and 0 < result["score"] < 0.5
    assert {item["response"] for item in result["items"] if item["correct"]} == {"The fleet is ready."}
    again = {"evaluate_dir": str(tmp_path / "after"), "evaluate_compare": str(tmp_path / "before")}
    done, output = run("evaluate", tmp_path, **asked, **again)
    assert done.returncode == 0, output
    assert "no difference found" in output
    assert serving.run("ls -d /var/tmp/evaluate-*").rc != 0
