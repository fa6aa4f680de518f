# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the plans and files of a fleet: DIR/<host>/<instance>/plan.json and, below files/, the role's own files."""

from __future__ import annotations

import difflib
import json
import os
import stat
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

from ansible.template import Templar, generate_ansible_template_vars

from ...module_utils.common.files_host import publish
from ...module_utils.common.foreign_json import load_json
from ...module_utils.containers.run_command import container_settings
from ...module_utils.vllm.files import instance_files, longest_start
from ...module_utils.vllm.plan_document import PlanDocument
from ..common.templates import EVALUATES_ALL, as_template, as_text
from .host_reader import TEMPLATES, constants
from .plans import Alike, Fleet

# A placeholder for the host in texts that many hosts share; no host has such a name.
ANY_HOST = "<host of this plan>"
PLAN = "plan.json"
FILES = "files"

# Files of one instance, by their path below its directory.
Texts = Mapping[str, str]
# The files that the role installs for a plan, as instance_files lists them.
FilesOf = Callable[[PlanDocument, Mapping[str, Any]], List[Dict[str, Any]]]


class RenderError(ValueError):
    """The directory cannot be written as asked; the message is the whole sentence for the user."""


class RoleTemplates:
    """Renders the role's templates as ansible.builtin.template does, each different text once."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def render(self, template: str, item: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        """Return the text of a template of the role vllm for ``item``, one of its files with ``name`` and ``plan``."""
        source = TEMPLATES / template
        given = generate_ansible_template_vars(template, str(source))
        templar = self._templar({**variables, "item": dict(item)}, given)
        text = as_template(source.read_text(encoding="utf-8"))
        options = {"escape_backslashes": False, "overrides": {"trim_blocks": True, "lstrip_blocks": False}}
        # Releases before 2.19 turn a text that looks like data into data, unless do_template is used.
        render = templar.do_template if EVALUATES_ALL else templar.template
        return str(render(text, **options))

    def container(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a host's container engine that are known without asking the host."""
        templar = self._templar(variables)
        names = ("vllm_user", "vllm_engine", "vllm_drain_timeout", "vllm_rocm_guide_flags | default(true) | bool")
        found = (templar.template(as_template(f"{{{{ {name} }}}}")) for name in names)
        user, engine, drain_timeout, flags = found
        return container_settings({}, user, engine, drain_timeout, None, str(flags) == "True")

    def _templar(self, variables: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> Templar:
        """Return what renders the role's own texts; the reader has templated the host's variables already."""
        whole = {**(given or {}), **constants(), **as_text(dict(variables))}
        # Where the templates find what several of them include.
        return Templar(loader=self._loader, variables=whole).copy_with_new_env(searchpath=[str(TEMPLATES)])


def texts_of(group: Alike, templates: RoleTemplates, files_of: FilesOf = instance_files) -> dict[str, Texts]:
    """Return the files of each instance of a group, those with secrets left out.

    Where a file names the host, ANY_HOST stands for it.
    """
    texts: dict[str, Texts] = {}
    container = templates.container(group.variables)
    entries = {name: files_of(plan, container) for name, plan in group.plans.items()}
    longest = {"start_seconds": longest_start(entry for found in entries.values() for entry in found)}
    for name, plan in group.plans.items():
        shared = {**plan, "host": ANY_HOST}
        items = [
            {**entry, **(longest if entry["shared"] else {}), "name": name, "plan": shared} for entry in entries[name]
        ]
        files = {
            f"{FILES}/{item['path'].lstrip('/')}": templates.render(item["template"], item, group.variables)
            for item in items
            if not item["secret"]
        }
        texts[name] = {PLAN: json.dumps(shared, indent=2, ensure_ascii=False) + "\n", **files}
    return texts


def write_fleet(fleet: Fleet, tree: Tree, loader: Any, files_of: FilesOf = instance_files) -> None:
    """Write the files of all hosts of a fleet. Every text is made before the first file is written."""
    templates = RoleTemplates(loader)
    rendered = [(group.hosts, texts_of(group, templates, files_of)) for group in fleet.groups]
    for hosts, texts in rendered:
        for name in (*hosts, *texts):
            _check_name(name)
    for hosts, texts in rendered:
        for host in hosts:
            tree.host(host, texts)
    for host in fleet.skipped:
        tree.host(host, {})


def summary(fleet: Fleet, tree: Tree) -> str:
    """Return what a rendering did, or would do in check mode, as one line."""
    hosts = sum(len(group.hosts) for group in fleet.groups)
    instances = sum(len(group.hosts) * len(group.plans) for group in fleet.groups)
    would = "would be " if tree.check else ""
    changes = [
        f"{len(names)} file{'' if len(names) == 1 else 's'} {would}{verb}"
        for names, verb in ((tree.written, "written"), (tree.removed, "removed"))
        if names
    ]
    return (
        f"{tree.top}: {instances} instance{'' if instances == 1 else 's'} of {hosts} host{'' if hosts == 1 else 's'}; "
        f"{', '.join(changes) or 'nothing changed'}"
    )


class Tree:
    """A directory of rendered files. Keeps unchanged files, and removes outdated files of an earlier rendering.

    With ``check`` nothing is written; ``written`` and ``removed`` name what was or would be, relative to the top.
    """

    def __init__(self, top: Path, check: bool = False, diff: bool = False) -> None:
        self.top = top
        self.written: list[str] = []
        self.removed: list[str] = []
        self.diffs: list[dict[str, str]] = []
        self.check = check
        self._diff = diff
        self._directories: set[str] = set()

    def host(self, host: str, instances: Mapping[str, Texts]) -> None:
        """Update the directory of one host to these instances; raises RenderError if that is not possible."""
        top = f"{self.top}/{host}"
        try:
            for name, texts in instances.items():
                before = _files(f"{top}/{name}") if os.path.isdir(f"{top}/{name}") else []
                for path, text in texts.items():
                    self._write(f"{top}/{name}/{path}", text.replace(ANY_HOST, host))
                self._sweep(f"{top}/{name}", [path for path in before if path not in texts])
            for name in _rendered_before(top, host):
                if name not in instances:
                    self._sweep(f"{top}/{name}", [*_files(f"{top}/{name}"), PLAN])
        except OSError as exc:
            raise RenderError(f"render_dir: {exc.filename}: {exc.strerror}") from exc

    def _write(self, path: str, text: str) -> None:
        before = _text(path)
        if before == text:
            return
        self._note(self.written, path, before or "", text)
        if self.check:
            return
        self._make(os.path.dirname(path))
        # After a crash it is rendered again: nothing waits for the disk.
        publish(path, text, durable=False)

    def _make(self, directory: str) -> None:
        """Create a directory and those above it; one that leads elsewhere is refused."""
        if directory in self._directories:
            return
        inside = directory != str(self.top)
        if inside:
            self._make(os.path.dirname(directory))
        else:
            os.makedirs(os.path.dirname(directory), exist_ok=True)
        if not os.path.lexists(directory):
            os.mkdir(directory)
            os.chmod(directory, 0o755)  # noqa: S103 (nothing secret lies in it)
        elif not os.path.isdir(directory) or (inside and os.path.islink(directory)):
            raise RenderError(f"render_dir: {directory} expected a directory that is not a link")
        self._directories.add(directory)

    def _sweep(self, top: str, stale: Sequence[str]) -> None:
        """Remove files of an earlier rendering from an instance's directory, and directories that are then empty."""
        for path in stale:
            self._note(self.removed, f"{top}/{path}", _text(f"{top}/{path}") or "", "")
            if self.check:
                continue
            os.unlink(f"{top}/{path}")
            directory = os.path.dirname(f"{top}/{path}")
            while directory != str(self.top) and not os.listdir(directory):
                os.rmdir(directory)
                directory = os.path.dirname(directory)

    def _note(self, where: list[str], path: str, before: str, after: str) -> None:
        name = path[len(str(self.top)) + 1 :]
        where.append(name)
        if self._diff:
            lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), name, name)
            # A text without a final line end would run into the next line.
            self.diffs.append({"prepared": "".join(line if line.endswith("\n") else line + "\n" for line in lines)})


def _check_name(name: str) -> None:
    """Raise RenderError for a host or instance whose name is not valid for a directory."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise RenderError(f"render_dir: {name!r} cannot be the name of a directory")


def _text(path: str) -> str | None:
    """Return the text of a file, None if it is missing or not a plain file."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _rendered_before(top: str, host: str) -> Iterator[str]:
    """Yield the instances whose directories have a plan of this host: only those may be changed."""
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        try:
            plan = load_json(_text(f"{top}/{name}/{PLAN}") or "null")
        except ValueError:
            continue
        if isinstance(plan, dict) and (plan.get("host"), plan.get("instance")) == (host, name):
            yield name


def _files(top: str) -> list[str]:
    """Return the files below files/ of an instance's directory, relative to that directory."""
    found = os.walk(f"{top}/{FILES}")
    return [f"{directory}/{name}"[len(top) + 1 :] for directory, _below, names in found for name in sorted(names)]
