# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of docs/operate/execution-environment.md, through ansible-navigator: site.yml brings a lab host to a chat.

It needs the image, which that page builds, ansible-navigator on PATH, and the lab's mirror (tools/lab/content.sh).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.demo import QUESTION, ask

TOP = Path(__file__).resolve().parents[2]
IMAGE = "localhost/baremetal-inference-ee:latest"
HOME = Path(os.environ.get("LAB_HOME", TOP / ".lab")).resolve()
LAB = {
    "LAB_HOME": str(HOME),
    "LAB_NAME": os.environ.get("LAB_NAME", "ee"),
    "LAB_SUBNET_PREFIX": os.environ.get("LAB_SUBNET_PREFIX", "10.87.243"),
}


def missing():
    """Return what this test lacks here, None for nothing."""
    if not shutil.which("ansible-navigator"):
        return "ansible-navigator is not on PATH"
    if subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode:
        return f"there is no image {IMAGE}"
    return None if list(HOME.glob("mirror/wheels/vllm-*")) else f"{HOME}/mirror is not filled (tools/lab/content.sh)"


pytestmark = [
    pytest.mark.long,
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]


@pytest.fixture
def lab():
    lack = missing()
    if lack:
        pytest.skip(lack)
    environment = {**os.environ, **LAB}
    subprocess.run([TOP / "bin/lab", "up", "mirror", "cpu-12"], env=environment, check=True)
    # The lab's podman has settings of its own; with others it may never release an address.
    yield {**environment, "CONTAINERS_CONF": str(HOME / "containers.conf")}
    subprocess.run([TOP / "bin/lab", "down"], env=environment, check=True)


def test_a_lab_host_answers_a_chat(lab, tmp_path):
    # A copy: the checkout has an ansible.cfg, which a user of the image has not.
    shutil.copytree(TOP / "inventories/lab", tmp_path / "lab")
    state = tmp_path / "state"
    state.mkdir()
    # ansible-navigator asks for it, and a container as this machine may lack it.
    Path("/dev/mqueue").mkdir(exist_ok=True)
    command = ["ansible-navigator", "run", "baremetal.inference.site", "-i", "lab", "--mode", "stdout"]
    command += ["--container-engine", "podman", "--pull-policy", "never", "--execution-environment-image", IMAGE]
    command += ["--container-options=--network=host", "--playbook-artifact-enable", "false"]
    for volume in (f"{HOME}:{HOME}", f"{state}:/state"):
        command += ["--execution-environment-volume-mounts", volume]
    for name, value in {**LAB, "BAREMETAL_STATE_DIR": "/state"}.items():
        command += ["--set-environment-variable", f"{name}={value}"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=lab, capture_output=True, text=True, errors="replace", timeout=3000
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert ask(f"http://{LAB['LAB_SUBNET_PREFIX']}.12:8000") == "The fleet is ready.", QUESTION
