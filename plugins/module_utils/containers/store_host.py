# SPDX-License-Identifier: GPL-3.0-or-later
"""The images in the store of a host's container engine: pull, load, and ask a registry."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from typing import Any

from ..common.foreign_trees_host import remove_tree
from ..common.kinds import show_value
from ..common.module import Module
from .engine import ENGINES, ContainerError
from .image_names import reference, registry_of, trouble_with, unanswered
from .registry_host import manifest_status

# The error of docker's daemon about a registry that only --insecure reaches.
INSECURE_ONLY = "server gave HTTP response to HTTPS client, or one with a certificate that is not trusted"
# The errors of docker 20.10 and podman 5.4 about an image that is not a manifest list.
ONLY_LISTS = re.compile(r"no such manifest|single images as manifest lists", re.IGNORECASE)


class Store:
    """The images of one engine on this host."""

    def __init__(self, module: Module) -> None:
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
            remove_tree(directory)

    def _run(self, *words: str) -> tuple[int, str, str]:
        result: tuple[int, str, str] = self._module.run_command([self._command, *words])
        return result


def ensure_image(module: Module, store: Store) -> dict[str, Any]:
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
