# SPDX-License-Identifier: GPL-3.0-or-later
"""A fake docker or podman that keeps its images in a JSON file and answers as the real ones (20.10, 5.4) do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# Without what a site adds to Python (-IS): it starts twice as fast.
PROGRAM = """#!{python} -IS
import json, os, sys
state_path = {state!r}
state = json.load(open(state_path))
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
state.setdefault("asked", []).append(words)
login = None
for option in ("--config", "--authfile"):
    if option in words:
        at = words.index(option)
        login = words[at + 1]
        words = words[:at] + words[at + 2 :]
if login and os.path.isdir(login):
    login = os.path.join(login, "config.json")
words = [word for word in words if word != "--quiet"]
image = words[-1] if words else ""


def end(rc, out="", err=""):
    json.dump(state, open(state_path, "w"))
    print(out, end="")
    print(err, end="", file=sys.stderr)
    sys.exit(rc)


def registry(insecure):
    if state.get("login") and (not login or state["login"] not in open(login).read()):
        end(1, err="no basic auth credentials\\n")
    if state.get("http") and not insecure:
        end(1, err="no such manifest: " + image if name == "docker" and words[0] == "manifest" else
            "http: server gave HTTP response to HTTPS client\\n")
    if image not in state["registry"]:
        end(1, err="no such manifest: " + image if name == "docker" else "manifest unknown\\n")


if words[0] == "--version":
    end(0, state.get("version_line", name + " version " + state["version"]))
if words[0] == "info":
    if "RegistryConfig" in image:
        known = state.get("registry_host", "mirror:5000")
        end(0, json.dumps({{"IndexConfigs": {{known: {{"Secure": not state.get("insecure")}}}}}}))
    end(0, json.dumps(state["info"]))
if state.get("down"):
    end(1, err="Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\\n")


def by_id(word):
    wanted = word.rpartition(":")[2]
    return [entry for entry in state["store"].values() if wanted and entry["Id"].rpartition(":")[2] == wanted]


if words[:2] == ["image", "inspect"]:
    if image not in state["store"] and not by_id(image):
        end(1, "[]\\n", "Error: No such image: " + image)
    end(0, json.dumps([state["store"].get(image) or by_id(image)[0]]))
if words[0] == "tag":
    if not by_id(words[1]):
        end(1, err="Error: No such image: " + words[1])
    state["store"][image] = by_id(words[1])[0]
    end(0)
if words[0] == "inspect" and image in state.get("containers", {{}}):
    end(0, state["containers"][image] + "\\n")
if words[0] == "manifest" and state.get("single"):
    end(1, err="no such manifest: " + image if name == "docker" else
        "Error: Treating single images as manifest lists is not implemented\\n")
if words[0] == "manifest":
    registry("--insecure" in words or state.get("insecure") and name == "podman")
    end(0, "{{}}")
if words[0] == "pull":
    registry(state.get("insecure"))
    state["store"][image] = state["registry"][image]
    end(0, image)
if words[0] == "load":
    held = json.load(open(image))
    state["store"].update(held)
    end(0, "".join("Loaded image: " + name + "\\n" for name in held))
end(125, err="unknown command " + words[0])
"""


class FakeEngine:
    """A fake container engine at ``command``; ``state`` is the content of its JSON file."""

    def __init__(self, directory: Path, name: str = "docker", **state: object) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{name}.json"
        self.command = directory / name
        self.command.write_text(PROGRAM.format(python=sys.executable, state=str(self.path)))
        self.command.chmod(0o755)
        self.change(**{"version": "20.10.24", "info": {}, "store": {}, "registry": {}, **state})

    @property
    def state(self) -> dict:
        return json.loads(self.path.read_text())

    def change(self, **state: object) -> None:
        before = self.state if os.path.exists(self.path) else {}
        self.path.write_text(json.dumps({**before, **state}))
