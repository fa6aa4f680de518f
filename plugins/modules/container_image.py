#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_image
short_description: (internal) Pull or load a container image into a host's store
version_added: 0.2.0
description:
  - Internal to the role P(baremetal.inference.vllm#role).
  - Pulls an image with docker or podman, or loads it from an archive, unless the store has it.
  - Uses the engine's own command and configuration. The engine's files in C(/etc/docker) or C(/etc/containers) define
    how a registry is reached (plain HTTP, the site's certificate authority, mirrors, proxies).
author:
  - the baremetal.inference authors (@baremetal-inference)
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
    details:
      - Queries the store. With O(check_registry) it also asks the registry whether it has the image to pull.
  diff_mode:
    support: full
options:
  engine:
    description:
      - The engine, by name or by the path of its command.
    type: str
    required: true
  image:
    description:
      - Reference of the image, C(name:tag) or C(name@sha256:...). The default registry is C(docker.io).
    type: str
    required: true
  archive:
    description:
      - File on the host to load the image from, as C(docker save) or C(podman save) writes it, instead of pulling it.
      - An archive in docker's own format holds no registry digest. An image named by a digest can only be loaded from
        an OCI archive, and only into a store that keeps digests.
    type: path
  pull:
    description:
      - V(missing) does nothing if the store has the image. V(always) asks the registry, or loads the archive, every
        time, because a tag may refer to another image by now.
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
- name: Pull the image of vLLM
  baremetal.inference.container_image:
    engine: docker
    image: mirror.example:5000/vllm/vllm-openai:v0.33.0

- name: Load the image from a file on the host
  baremetal.inference.container_image:
    engine: podman
    image: docker.io/vllm/vllm-openai:v0.33.0
    archive: /srv/carried/vllm-openai-v0.33.0.tar
"""

RETURN = r"""
image:
  description: The full reference.
  type: str
  returned: always
id:
  description: The image's ID in the store; empty if the store does not have it (in check mode).
  type: str
  returned: success
digest:
  description: The image's digest in a registry; empty if the store has none.
  type: str
  returned: success
repo_digests:
  description: The store's references to the image by digest.
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

from ..module_utils.common.kinds import show_value
from ..module_utils.containers.engine import ENGINES, ContainerError
from ..module_utils.containers.image_names import reference, registry_of, trouble_with, unanswered
from ..module_utils.containers.registry_host import manifest_status

# The error of docker's daemon about a registry that only --insecure reaches.
INSECURE_ONLY = "server gave HTTP response to HTTPS client, or one with a certificate that is not trusted"

# The errors of docker 20.10 and podman 5.4 about an image that is not a manifest list.
ONLY_LISTS = re.compile(r"no such manifest|single images as manifest lists", re.IGNORECASE)


class Store:
    """The images of one engine on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        given = module.params["engine"]
        self.engine = os.path.basename(given)
        if self.engine not in ENGINES:
            raise ContainerError(f"engine: found {show_value(given)}, expected docker or podman, or the path of one")
        command = given if "/" in given else module.get_bin_path(given)
        if not command or not os.access(command, os.X_OK):
            raise ContainerError(f"engine: {given} is not on this host; install it first")
        self._command = command
        self._auth_file = module.params["auth_file"]

    def find(self, image: str) -> dict[str, Any]:
        """Return what the store knows about an image, empty if it has none. Raises ContainerError without an answer."""
        rc, out, err = self._run("image", "inspect", image)
        if rc == 0:
            found: dict[str, Any] = json.loads(out)[0]
            return found
        if unanswered(err):
            raise ContainerError(f"{self.engine} does not answer: {_last_output(err)}")
        return {}

    def pull(self, image: str) -> None:
        rc, out, err = self._with_login("pull", "--quiet", image)
        if rc:
            raise ContainerError(trouble_with(self.engine, image, err or out))

    def load(self, archive: str) -> str:
        """Load an archive and return the names that the engine found in it."""
        rc, out, err = self._run("load", "--input", archive)
        if rc:
            raise ContainerError(
                f"archive {archive} cannot be loaded: {self.engine} reported: {_last_output(err or out)}"
            )
        lines = [line.partition(": ")[2].strip() for line in out.splitlines() if line.startswith("Loaded image")]
        return ", ".join(lines) or "no named image"

    def ask_registry(self, image: str) -> None:
        """Raise ContainerError if the registry does not have an image, or cannot be asked."""
        reason = self._refusal(image)
        if not reason:
            return
        if ONLY_LISTS.search(reason):
            # This command of both engines accepts only manifest lists, but a single image may still exist.
            scheme, status = manifest_status(image) or ("", 0)
            if status == 200 and not (scheme == "http" and self.engine == "docker" and not self._is_insecure(image)):
                return
            if status == 200:
                reason = INSECURE_ONLY
            elif status != 404:
                reason += f" (HTTP status {status or 'none'}; if it is there, set vllm_check_registry: false)"
        raise ContainerError(trouble_with(self.engine, image, reason))

    def _refusal(self, image: str) -> str:
        """Return the engine's reason for refusing an image, empty if it accepts it."""
        rc, out, err = self._with_login("manifest", "inspect", image)
        if rc == 0:
            return ""
        if self.engine != "docker":
            return err or out or "no reason"
        # This command ignores the daemon's configuration and reports every problem as a missing image.
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
        # docker requires a directory that contains a file of this name.
        directory = tempfile.mkdtemp(dir=self._module.tmpdir)
        shutil.copyfile(self._auth_file, os.path.join(directory, "config.json"))
        try:
            return self._run("--config", directory, *words)
        finally:
            shutil.rmtree(directory)

    def _run(self, *words: str) -> tuple[int, str, str]:
        result: tuple[int, str, str] = self._module.run_command([self._command, *words])
        return result


def ensure_image(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Pull or load the image where needed, and return the module's result."""
    image, archive = reference(module.params["image"]), module.params["archive"]
    before = store.find(image)
    if before and module.params["pull"] == "missing":
        return {"changed": False, **describe_image(image, before)}
    if archive and not os.path.isfile(archive):
        raise ContainerError(f"archive {archive} is not on this host; copy it there, or omit archive to pull {image}")
    if module.check_mode:
        if not archive and module.params["check_registry"]:
            store.ask_registry(image)
        return {
            "changed": not before,
            **describe_image(image, before),
            "diff": diff_of(image, before, {"Id": "(to be pulled)"}),
        }
    if archive:
        holds = store.load(archive)
        where = f"archive {archive} holds {holds}, which is not"
    else:
        store.pull(image)
        where = "after the pull the store has no"
    after = store.find(image)
    if not after:
        raise ContainerError(f"{where} {image}{_about_digest(image, archive)}")
    changed = before.get("Id") != after["Id"]
    return {"changed": changed, **describe_image(image, after), "diff": diff_of(image, before, after)}


def describe_image(image: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of the result about an image in the store."""
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


def diff_of(image: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Return the diff between two states of the store."""
    lines = [f"{image} {found['Id']}\n" if found else "" for found in (before, after)]
    return {"before": lines[0], "after": lines[1], "before_header": image, "after_header": image}


def _about_digest(image: str, archive: str | None) -> str:
    if not archive or "@" not in image:
        return ""
    return "; its digest differs, or the archive has none: use an OCI archive, or name the image by a tag"


def _last_output(text: str) -> str:
    return " ".join(text.split())[-400:]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "image": {"type": "str", "required": True},
            "archive": {"type": "path"},
            "pull": {"type": "str", "choices": ["missing", "always"], "default": "missing"},
            # The path is not a secret. Masking it would hide it in the errors about it.
            "auth_file": {"type": "path", "no_log": False},
            "check_registry": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}
    try:
        result = ensure_image(module, Store(module))
    except (ContainerError, OSError) as exc:
        module.fail_json(msg=str(exc), image=reference(module.params["image"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
