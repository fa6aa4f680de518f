# SPDX-License-Identifier: GPL-3.0-or-later
"""A systemctl that keeps its units in a JSON file, and the files of instances in a tree of a test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
STOPPED = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "MainPID": "0", "started": 0}
RUNNING = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": "42"}
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {top!r})
from tests.fakes.systemd import FakeSystemd
rc, out, err = FakeSystemd({path!r})(["systemctl", *sys.argv[1:]])
print(out, end="")
print(err, end="", file=sys.stderr)
sys.exit(rc)
"""


class FakeSystemd:
    """Called with the words of a command: systemctl's are answered, any other command is run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def install(self, directory: Path) -> None:
        """Put it on the way to commands, for a module in its own process."""
        directory.mkdir(parents=True, exist_ok=True)
        script = directory / "systemctl"
        script.write_text(SCRIPT.format(python=sys.executable, top=str(TOP), path=str(self.path)))
        script.chmod(0o755)

    def __call__(self, words: list[str], **_options: object) -> tuple[int, str, str]:
        if words[0] != "systemctl":
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr
        state = self.state
        unit, verb = words[-1], words[1]
        known = state["units"].setdefault(unit, dict(STOPPED)) if verb != "daemon-reload" else {}
        if verb == "show":
            return 0, "".join(f"{key}={value}\n" for key, value in self._shown(known).items()), ""
        state["asked"].append([word for word in words[1:] if not word.startswith("--")])
        if verb in state["broken"]:
            self.path.write_text(json.dumps(state))
            return 1, "", f"{verb} refused"
        if verb == "start":
            known.update(RUNNING, started=time.time())
        if verb == "stop":
            known.update(STOPPED)
        self.path.write_text(json.dumps(state))
        return 0, "", ""

    @property
    def state(self) -> dict:
        empty = {"units": {}, "asked": [], "broken": []}
        return {**empty, **(json.loads(self.path.read_text()) if self.path.exists() else {})}

    def change(self, **changes: object) -> None:
        self.path.write_text(json.dumps({**self.state, **changes}))

    def runs(self, unit: str, since: float | None = None) -> None:
        """Have a unit run, from now on or since a time."""
        entry = {**RUNNING, "started": time.time() if since is None else since}
        self.change(units={**self.state["units"], unit: entry})

    def asked(self) -> list[str]:
        """Return what was asked of it that changes something, and forget it."""
        found = [" ".join(words) for words in self.state["asked"]]
        self.change(asked=[])
        return found

    @staticmethod
    def _shown(unit: dict) -> dict:
        moment = datetime.fromtimestamp(unit["started"], timezone.utc).strftime("%a %Y-%m-%d %H:%M:%S.%f UTC")
        stamp = moment if unit["started"] else ""
        return {**{key: value for key, value in unit.items() if key != "started"}, "ExecMainStartTimestamp": stamp}


class FakeInstances:
    """The files of instances as the role writes them, below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o640) -> None:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)
        self.at(path).chmod(mode)

    def weights(self, revision: str, stamp: bool = True) -> str:
        path = f"/srv/models/example/tiny/{revision}"
        self.write(f"{path}/config.json", "{}")
        files = {"config.json": {"size": 2, "mtime_ns": 0, "inode": 0, "sha256": "0" * 64}}
        if stamp:
            self.write(f"{path}/.verified.json", json.dumps({"version": 1, "files": files}))
        return path

    def venv(self, name: str) -> str:
        path = f"/opt/vllm/{name}"
        self.write(f"{path}/bin/python", "", 0o755)
        return path

    def link(self, target: str, name: str = "chat") -> None:
        path = self.at(f"/var/lib/vllm/{name}/model")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def common(self, name: str = "chat", flag: str = "1", key: str = "s3cret-of-chat") -> None:
        self.write(f"/etc/vllm/{name}.env", "A=1\n")
        self.write(f"/etc/vllm/{name}.yaml", f"port: 8000\nmax-model-len: {flag}\n")
        self.write(f"/etc/vllm/{name}.secrets", f"VLLM_API_KEY={key}\n", 0o600)

    def template(
        self, name: str = "chat", venv: str = "0.32.0-cpu-aa", revision: str = "a" * 40, **common: str
    ) -> None:
        """Write an instance in a virtual environment."""
        self.common(name, **common)
        self.write(
            f"/var/lib/vllm/{name}/serve", f'#!/bin/sh\n# managed\nexec {self.venv(venv)}/bin/vllm serve "$@"\n', 0o755
        )
        self.write("/etc/systemd/system/vllm@.service", "[Service]\n", 0o644)
        self.link(self.weights(revision), name)

    def unit(self, engine: str, ref: str, name: str = "chat", revision: str = "a" * 40, **common: str) -> None:
        """Write an instance in a container with its own unit."""
        self.common(name, **common)
        words = f"--rm --name vllm-{name} \\\n  --init \\\n  --shm-size 16g \\\n  --env 'HOME=a b' \\\n  {ref}"
        self.write(f"/var/lib/vllm/{name}/serve", f'#!/bin/sh\nexec {engine} run {words} \\\n  "$@"\n', 0o755)
        self.write(f"/etc/systemd/system/vllm@{name}.service", "[Service]\n", 0o644)
        self.link(self.weights(revision), name)

    def quadlet(self, ref: str, name: str = "chat", revision: str = "a" * 40, **common: str) -> None:
        """Write an instance that is a quadlet."""
        self.common(name, **common)
        self.write(f"/etc/containers/systemd/vllm@{name}.container", f"[Container]\nImage={ref}\n", 0o644)
        self.link(self.weights(revision), name)

    def picture(self) -> dict[str, tuple]:
        """Return every file and link of instances with mode and content, slots left out."""
        found = {}
        for top in ("etc", "var/lib/vllm"):
            for parent, directories, names in os.walk(self.root / top):
                directories[:] = [name for name in directories if name != "slots"]
                for path in (Path(parent) / name for name in names + directories):
                    if path.is_symlink():
                        found[str(path.relative_to(self.root))] = ("link", str(path.readlink()))
                    elif path.is_file():
                        found[str(path.relative_to(self.root))] = (path.stat().st_mode, path.read_text())
        return found
