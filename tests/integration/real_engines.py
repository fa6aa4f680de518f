# SPDX-License-Identifier: GPL-3.0-or-later
"""Real vLLM on this CPU with the role's middleware, as processes of their own on loopback ports."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
import urllib.request

from tests.fakes.gateways import TOP, free_port

# The middleware as the role starts it, but for the place of its records.
COUNTED = """
import os
from availability import Availability
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import availability_host
availability_host.CACHE_DIR = os.environ["USAGE_CACHE"]
"""
CPUS = os.cpu_count() or 1


class RealEngine:
    """One vLLM in ``directory``; ``counter`` reads what it counts itself."""

    def __init__(self, python, directory, model, number, arguments, env=None, port=None):
        self.directory, self.port = directory, port or free_port()
        (directory / "run").mkdir(parents=True, exist_ok=True)
        (directory / "counted.py").write_text(COUNTED)
        words = ["--model", model, "--served-model-name", "m", "--host", "127.0.0.1", "--port", self.port]
        # With bfloat16 vLLM 0.32.0 uses AMX, and died with an illegal instruction on a busy virtual machine.
        words += ["--dtype", "float32", "--enforce-eager", "--middleware", "counted.Availability", *arguments]
        environ = {
            **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
            "PYTHONPATH": f"{directory}:{TOP / 'roles/vllm/files'}:{TOP / '.collections'}",
            "USAGE_CACHE": str(directory / "cache"),
            "AVAILABILITY_DIRECTORY": str(directory / "run"), "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": str(number % CPUS), **(env or {}),
        }  # fmt: skip
        command = [python, "-m", "vllm.entrypoints.openai.api_server", *words]
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen([str(word) for word in command], env=environ, stdout=log, stderr=log)

    def wait(self, seconds=1500):
        """Wait until it serves."""
        end = time.monotonic() + seconds
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/health", headers={"Availability-Probe": "1"})
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5):
                break
            log = (self.directory / "log").read_text(errors="replace")
            assert self.process.poll() is None and time.monotonic() < end, log[-3000:]
            time.sleep(1)
        (self.directory / "run/ready").touch()

    def counter(self, name):
        """Return the sum of a counter of Prometheus."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return round(sum(float(value) for value in re.findall(rf"(?m)^{name}(?:{{.*}})? (\S+)$", text)))


@contextlib.contextmanager
def real_engines(python, directory, model, number, *arguments, env=None):
    """Start several of them; yield when all of them serve."""
    found = [RealEngine(python, directory / f"engine{n}", model, n, arguments, env) for n in range(number)]
    try:
        for each in found:
            each.wait()
        yield found
    finally:
        for each in found:
            each.process.terminate()
        for each in found:
            each.process.wait(60)
