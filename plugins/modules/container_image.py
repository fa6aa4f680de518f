#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_image
short_description: Have a container image in a host's store
version_added: 0.2.0
description:
  - Pulls an image with docker or podman, or loads it from an archive, unless the store has it.
  - It goes by the engine's own command and configuration. How a registry is reached (plain HTTP, a certificate
    authority of the site's own, mirrors, proxies) is the engine's own to know, in C(/etc/docker) or C(/etc/containers).
author:
  - the baremetal.inference authors (@baremetal-inference)
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
    details:
      - The store is asked. With O(check_registry) the registry is asked too whether it has what would be pulled.
  diff_mode:
    support: full
options:
  engine:
    description:
      - The engine whose store it is, by name or by the path of its command.
    type: str
    required: true
  image:
    description:
      - Reference of the image, C(name:tag) or C(name@sha256:...). Without a registry in it, that is C(docker.io).
    type: str
    required: true
  archive:
    description:
      - File on the host to load the image from, as C(docker save) or C(podman save) writes it, instead of pulling it.
      - An archive of docker's own format holds no digest of a registry. An image that is named by a digest comes from
        an OCI archive only, and only into a store that keeps digests.
    type: path
  pull:
    description:
      - V(missing) leaves an image alone that is there. V(always) asks the registry, or loads the archive, every time,
        for a tag may mean another image by now.
    type: str
    choices: [missing, always]
    default: missing
  auth_file:
    description:
      - File on the host with the login for the registry, in the format of docker's C(config.json).
    type: path
  check_registry:
    description:
      - In check mode, ask the registry whether it has an image that would be pulled.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Have the image of vLLM
  baremetal.inference.container_image:
    engine: docker
    image: mirror.example:5000/vllm/vllm-openai:v0.33.0

- name: Have it from a file that was carried here
  baremetal.inference.container_image:
    engine: podman
    image: docker.io/vllm/vllm-openai:v0.33.0
    archive: /srv/carried/vllm-openai-v0.33.0.tar
"""

RETURN = r"""
image:
  description: The reference in full.
  type: str
  returned: always
id:
  description: The image's identity in the store; empty where it is not there (in check mode).
  type: str
  returned: success
digest:
  description: Digest by which a registry knows the image; empty where the store knows none.
  type: str
  returned: success
repo_digests:
  description: The references with a digest that the store has for it.
  type: list
  elements: str
  returned: success
"""

import json
import os
import re
import shutil
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils.containers.engine import ENGINES, ContainerError
from ansible_collections.baremetal.inference.plugins.module_utils.containers.image_names import (
    reference,
    registry_of,
    trouble_with,
    unanswered,
)
from ansible_collections.baremetal.inference.plugins.module_utils.containers.registry_host import manifest_status

# What docker's daemon would say of a registry that only --insecure reaches.
INSECURE_ONLY = "server gave HTTP response to HTTPS client, or one with a certificate that is not trusted"

# How docker 20.10 and podman 5.4 speak of an image that is no list.
ONLY_LISTS = re.compile(r"no such manifest|single images as manifest lists", re.IGNORECASE)


class Store:
    """The images of one engine on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        given = module.params["engine"]
        self.engine = os.path.basename(given)
        if self.engine not in ENGINES:
            raise ContainerError(f"engine: found {given!r}, expected docker or podman, or the path of one")
        command = given if "/" in given else module.get_bin_path(given)
        if not command or not os.access(command, os.X_OK):
            raise ContainerError(f"engine: {given} is not on this host; install it first")
        self._command = command
        self._auth_file = module.params["auth_file"]

    def find(self, image: str) -> dict[str, Any]:
        """Return what the store knows of an image, nothing where it has none; raises ContainerError with no answer."""
        rc, out, err = self._run("image", "inspect", image)
        if rc == 0:
            found: dict[str, Any] = json.loads(out)[0]
            return found
        if unanswered(err):
            raise ContainerError(f"{self.engine} does not answer: {_last(err)}")
        return {}

    def pull(self, image: str) -> None:
        rc, out, err = self._with_login("pull", "--quiet", image)
        if rc:
            raise ContainerError(trouble_with(self.engine, image, err or out))

    def load(self, archive: str) -> str:
        """Load an archive and return what the engine says is in it."""
        rc, out, err = self._run("load", "--input", archive)
        if rc:
            raise ContainerError(f"archive {archive} cannot be loaded: {self.engine} said: {_last(err or out)}")
        lines = [line.partition(": ")[2].strip() for line in out.splitlines() if line.startswith("Loaded image")]
        return ", ".join(lines) or "no named image"

    def ask_registry(self, image: str) -> None:
        """Raise ContainerError when the registry does not have an image, or cannot be asked."""
        said = self._refusal(image)
        if not said:
            return
        if ONLY_LISTS.search(said):
            # This command of both engines is made for lists of manifests; an image alone is there all the same.
            scheme, status = manifest_status(image) or ("", 0)
            if status == 200 and not (scheme == "http" and self.engine == "docker" and not self._is_insecure(image)):
                return
            if status == 200:
                said = INSECURE_ONLY
            elif status != 404:
                said += f" (HTTP status {status or 'none'}; where it is there, set vllm_check_registry: false)"
        raise ContainerError(trouble_with(self.engine, image, said))

    def _refusal(self, image: str) -> str:
        """Return what the engine says of an image that it would not have, empty where it would."""
        rc, out, err = self._with_login("manifest", "inspect", image)
        if rc == 0:
            return ""
        if self.engine != "docker":
            return err or out or "no reason"
        # This command does not read the daemon's configuration, and calls every trouble a missing image.
        rc, out, err = self._with_login("manifest", "inspect", "--insecure", image)
        if rc:
            return err or out or "no reason"
        return "" if self._is_insecure(image) else INSECURE_ONLY

    def _is_insecure(self, image: str) -> bool:
        _rc, out, _err = self._run("info", "--format", "{{json .RegistryConfig}}")
        config = json.loads(out or "{}")
        entry = (config.get("IndexConfigs") or {}).get(registry_of(image)) or {}
        return entry.get("Secure") is False

    def _with_login(self, *words: str) -> tuple[int, str, str]:
        if not self._auth_file:
            return self._run(*words)
        if not os.path.isfile(self._auth_file):
            raise ContainerError(
                f"auth_file {self._auth_file} is not on this host; put the login for the registry there"
            )
        if self.engine == "podman":
            at = 2 if words[0] == "manifest" else 1
            return self._run(*words[:at], "--authfile", self._auth_file, *words[at:])
        # docker wants a directory, and the file in it by one name.
        directory = tempfile.mkdtemp(dir=self._module.tmpdir)
        shutil.copyfile(self._auth_file, os.path.join(directory, "config.json"))
        try:
            return self._run("--config", directory, *words)
        finally:
            shutil.rmtree(directory)

    def _run(self, *words: str) -> tuple[int, str, str]:
        result: tuple[int, str, str] = self._module.run_command([self._command, *words])
        return result


def ensure(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Have the image in the store, and return the module's result."""
    image, archive = reference(module.params["image"]), module.params["archive"]
    before = store.find(image)
    if before and module.params["pull"] == "missing":
        return {"changed": False, **described(image, before)}
    if archive and not os.path.isfile(archive):
        raise ContainerError(
            f"archive {archive} is not on this host; carry it there, or leave out archive to pull {image}"
        )
    if module.check_mode:
        if not archive and module.params["check_registry"]:
            store.ask_registry(image)
        return {"changed": not before, **described(image, before), "diff": diff(image, before, {"Id": "(to be had)"})}
    if archive:
        holds = store.load(archive)
        where = f"archive {archive} holds {holds}, which is not"
    else:
        store.pull(image)
        where = "after it was pulled the store has no"
    after = store.find(image)
    if not after:
        raise ContainerError(f"{where} {image}{_about_digest(image, archive)}")
    changed = before.get("Id") != after["Id"]
    return {"changed": changed, **described(image, after), "diff": diff(image, before, after)}


def described(image: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return what the result says of an image in the store."""
    digests = sorted(found.get("RepoDigests") or [])
    name = image.partition("@")[0].rpartition(":")[0] if "@" not in image else image.partition("@")[0]
    short = name[len("docker.io/") :].replace("library/", "", 1) if name.startswith("docker.io/") else name
    own = [entry.partition("@")[2] for entry in digests if entry.partition("@")[0] in (name, short)]
    return {
        "image": image,
        "id": found.get("Id", ""),
        "digest": found.get("Digest") or (own or [""])[0],
        "repo_digests": digests,
    }


def diff(image: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Return the difference between two looks into the store."""
    lines = [f"{image} {found['Id']}\n" if found else "" for found in (before, after)]
    return {"before": lines[0], "after": lines[1], "before_header": image, "after_header": image}


def _about_digest(image: str, archive: str | None) -> str:
    if not archive or "@" not in image:
        return ""
    return "; its digest is another, or the archive holds none: use an OCI archive, or name the image by a tag"


def _last(text: str) -> str:
    return " ".join(text.split())[-400:]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "image": {"type": "str", "required": True},
            "archive": {"type": "path"},
            "pull": {"type": "str", "choices": ["missing", "always"], "default": "missing"},
            # The path is no secret, and hiding it would hide it in the errors about it.
            "auth_file": {"type": "path", "no_log": False},
            "check_registry": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}
    try:
        result = ensure(module, Store(module))
    except (ContainerError, OSError) as exc:
        module.fail_json(msg=str(exc), image=reference(module.params["image"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
