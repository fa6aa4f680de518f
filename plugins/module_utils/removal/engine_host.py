# SPDX-License-Identifier: GPL-3.0-or-later
"""The images and containers of the engines of this host."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Mapping, Tuple

from ..common.foreign_json import load_json
from .model import RemovalError, StoredImage

CommandResult = Tuple[int, str, str]
ENGINES = ("docker", "podman")
# What rm reports about an image or a container that does not exist.
_GONE = ("no such", "not known", "not found", "does not exist")


class Engines:
    """Query docker and podman, whichever are installed."""

    def __init__(self, run: Callable[..., CommandResult]) -> None:
        # Without this option Ansible ends the module where the command is missing.
        self._run = partial(run, handle_exceptions=False)
        # Engines that are installed and did not answer, each as a clause with its reason.
        self.trouble: dict[str, str] = {}

    def images(self) -> list[StoredImage]:
        """Return the images of all engines that answer; ``trouble`` has the others."""
        return [image for engine in ENGINES for image in self._images_of(engine)]

    def containers(self) -> dict[str, str]:
        """Return the instance of each container of an instance, by the container's id."""
        found: dict[str, str] = {}
        for engine in ENGINES:
            for line in self._lines(engine, "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}") or []:
                identity, _blank, name = line.partition(" ")
                if name.startswith("vllm-"):
                    found[identity] = name[len("vllm-") :]
        return found

    def other_containers(self) -> list[str]:
        """Return the containers that are no instance's."""
        found = []
        for engine in ENGINES:
            names = self._lines(engine, "ps", "--all", "--format", "{{.Names}}") or []
            found += [f"the container {name} of {engine}" for name in names if not name.startswith("vllm-")]
        return found

    def remove_image(self, engine: str, name: str) -> None:
        """Remove a name of an image, and the image with its last name. Raises RemovalError."""
        self._remove(engine, "image", "rm", name)

    def remove_container(self, name: str) -> None:
        """Remove the container of an instance that a crash has left. Raises RemovalError."""
        for engine in ENGINES:
            if self._lines(engine, "container", "inspect", "--format", "{{.Id}}", name):
                self._remove(engine, "rm", "--force", name)

    def _images_of(self, engine: str) -> list[StoredImage]:
        ids = self._lines(engine, "image", "ls", "--quiet", "--no-trunc")
        if not ids:
            return []
        out = "\n".join(self._lines(engine, "image", "inspect", *dict.fromkeys(ids)) or ["[]"])
        return [self._image(engine, entry) for entry in load_json(out)]

    def _image(self, engine: str, entry: Mapping[str, Any]) -> StoredImage:
        identity = str(entry["Id"])
        tags = [*(entry.get("RepoTags") or []), *(entry.get("RepoDigests") or [])]
        users = self._lines(engine, "ps", "--all", "--filter", f"ancestor={identity}", "--format", "{{.Names}}")
        return StoredImage(engine, identity, tuple(tags), int(entry.get("Size") or 0), tuple(users or ()))

    def _lines(self, engine: str, *words: str) -> list[str] | None:
        """Return the lines of an answer, None where the engine is missing, does not answer or does not know it."""
        rc, out, err = self._call(engine, *words)
        if rc == 0:
            return [line.strip() for line in out.splitlines() if line.strip()]
        if rc != _MISSING and not any(text in err.lower() for text in _GONE):
            self.trouble[engine] = f"{engine} {' '.join(words[:2])}: {(err or out).strip()[-300:]}"
        return None

    def _remove(self, engine: str, *words: str) -> None:
        rc, out, err = self._call(engine, *words)
        if rc and not any(text in (err or out).lower() for text in _GONE):
            raise RemovalError(f"{engine} {' '.join(words)}: {(err or out).strip()[-300:]}")

    def _call(self, engine: str, *words: str) -> CommandResult:
        try:
            return self._run([engine, *words])
        except OSError as exc:
            return _MISSING, "", str(exc)


_MISSING = 127
