# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that starts vllm-router: from the file of an instance, in the router's own environment."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.fakes.programs import installed

GROUP = {
    "prefill": ["10.0.0.3:8000", "[fd00::4]:8000"],
    "router": {"host": "0.0.0.0", "port": 8300, "metrics": 8301, "decode": "http://10.0.0.1:8000", "venv": ""},
}
ROUTER = """
import json, sys

class Router:
    @staticmethod
    def from_args(arguments):
        return Router()

    def start(self):
        print(json.dumps(sys.argv[1:]))
"""
ARGUMENTS = """
class RouterArgs:
    @staticmethod
    def add_cli_args(parser, use_router_prefix):
        parser.add_argument("rest", nargs="*")
        parser.parse_args = lambda: None

    @staticmethod
    def from_cli_args(given, use_router_prefix):
        return given
"""


def test_it_starts_the_router_of_its_environment_with_the_hosts_of_the_instance(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    package = next((tmp_path / "venv/lib").glob("python3*")) / "site-packages/vllm_router"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("router", ROUTER), ("router_args", ARGUMENTS)):
        (package / f"{name}.py").write_text(text)
    group = {**GROUP, "router": {**GROUP["router"], "venv": str(tmp_path / "venv")}}
    (tmp_path / "big.group.json").write_text(json.dumps(group))
    script = installed("vllm-router", tmp_path / "lib")
    (marks,) = (tmp_path / "lib").rglob("marks.py")
    marks.write_text(marks.read_text().replace('"/etc/vllm"', repr(str(tmp_path))))
    done = subprocess.run([sys.executable, str(script), "big"], check=True, capture_output=True, text=True)
    words = json.loads(done.stdout)
    assert words[:5] == [
        "--vllm-pd-disaggregation", "--prefill", "http://10.0.0.3:8000", "--prefill", "http://[fd00::4]:8000",
    ]  # fmt: skip
    options = dict(zip(words[1::2], words[2::2]))
    assert options["--decode"] == "http://10.0.0.1:8000"
    assert (options["--host"], options["--port"]) == ("0.0.0.0", "8300")
    assert (options["--prometheus-host"], options["--prometheus-port"]) == ("127.0.0.1", "8301")
