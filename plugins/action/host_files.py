# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible.release import __version__

from ..plugin_utils.common.documented_options import documented_options
from ..plugin_utils.common.versions import satisfies

ENTRY_OPTIONS = documented_options("host_files")["files"]["options"]
SOURCES = ("template", "src", "content")


class _Shared(dict[str, Any]):
    """Variables that the lookup copies as they are: a deep copy for each template takes longer than everything else."""

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)


class ActionModule(ActionBase):
    """Render the templates and read the files of the role; the module writes them all on the host."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        # The original entries are returned, because a role keeps keys of its own in them.
        given: list[dict[str, Any]] = [dict(entry) for entry in self._task.args.get("files") or []]
        entries = [self._complete(entry, variables) for entry in given]
        # Contents that are secrets go apart, in an option that no result shows.
        secrets = {entry["path"]: entry.pop("content", "") for entry in entries if entry.get("secret")}
        found = self._execute_module(module_args={"files": entries, "secrets": secrets}, task_vars=variables)
        changes = zip(given, found.pop("written", []), found.pop("live", []))
        found["results"] = [{"item": entry, "changed": changed, "live": live} for entry, changed, live in changes]
        return {**result, **found}

    def _complete(self, entry: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the options of the module for one entry, with the content instead of a template or a source."""
        named = [key for key in SOURCES if entry.get(key) is not None]
        is_file = entry.get("state", "file") == "file"
        if len(named) != is_file:
            expected = f"exactly one of {', '.join(SOURCES)}" if is_file else f"none of {', '.join(SOURCES)}"
            raise AnsibleActionFail(f"{entry.get('path')}: found {', '.join(named) or 'none'}; expected {expected}")
        options = {key: entry[key] for key in ENTRY_OPTIONS if key in entry and key not in ("template", "src")}
        if "template" in named:
            options["content"] = self._rendered(str(entry["template"]), entry, variables)
        elif "src" in named:
            with open(self._find_needle("files", str(entry["src"])), encoding="utf-8") as file:
                options["content"] = file.read()
        return options

    def _rendered(self, name: str, entry: Mapping[str, Any], variables: dict[str, Any]) -> str:
        """Return the text that the template makes, rendered as the module ansible.builtin.template does."""
        lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
        # Older releases convert a text that looks like JSON into data; newer ones deprecate the option.
        options = {"convert_data": False} if satisfies(__version__, "<2.19.0b1") else {}
        text: str = lookup.run([name], _Shared(variables), template_vars={"item": dict(entry)}, **options)[0]
        return text
