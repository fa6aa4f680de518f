# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: file_errors
short_description: Name the file, line and column of an error in group_vars or host_vars
version_added: 0.7.0
author:
  - the baremetal.inference authors (@baremetal-inference)
description:
  - Sets no variables. Reads the files that C(ansible.builtin.host_group_vars) is about to read, and raises an error in
    one of them with its place. From ansible-core 2.19 on, C(host_group_vars) itself passes only the text of the error
    on, such as C(YAML parsing failed), without the file.
  - A key that stands twice in such a file is an error too. Ansible itself warns, and takes the last value.
  - List it before C(host_group_vars) in C(vars_plugins_enabled) of C(ansible.cfg), as the checkout of this collection
    does.
"""

from typing import Any, Callable

from ansible import constants
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.vars import BaseVarsPlugin, host_group_vars

from ..plugin_utils.common.variable_files import TOO_DEEP, Fault, deep_variable, doubled_key, fault_of


class VarsModule(BaseVarsPlugin):
    """Read each file once; Ansible's loader keeps the content for host_group_vars."""

    is_stateless = True

    def __init__(self) -> None:
        super().__init__()
        self._reader = host_group_vars.VarsModule()
        self._read: set[tuple[str, str, Any]] = set()

    def get_vars(self, loader: Any, path: str, entities: Any, cache: bool = True) -> dict[str, Any]:
        """Return no variables. Raises AnsibleError with the place of the error for a file that cannot be read."""
        for entity in entities if isinstance(entities, list) else [entities]:
            key = (path, entity.name, entity.base_type)
            if key not in self._read:
                self._check(loader, path, entity, cache)
                self._read.add(key)
        return {}

    def _check(self, loader: Any, path: str, entity: Any, cache: bool) -> None:
        try:
            found = self._reader.get_vars(loader, path, [entity], cache)
        except AnsibleParserError as exc:
            # The original error, from whose text this one was made.
            first = exc.__context__
            # Ansible escapes a byte that it cannot decode, and its parser refuses the escape.
            if "surrogates not allowed" in str(first):
                place = getattr(first, "obj", None)
                raise AnsibleParserError("the file is not UTF-8; save it as UTF-8", obj=place) from None
            if not getattr(getattr(first, "obj", None), "line_num", None):
                self._refuse(loader, path, entity, fault_of)
            if not isinstance(first, AnsibleError):
                raise
            raise first from first.__cause__

        if constants.config.get_config_value("DUPLICATE_YAML_DICT_KEY") != "ignore":
            self._refuse(loader, path, entity, doubled_key)
        deep = deep_variable(found)
        if deep:
            raise AnsibleParserError(f"{deep}: {TOO_DEEP}", obj=deep)

    def _refuse(self, loader: Any, path: str, entity: Any, find: Callable[[str], Fault | None]) -> None:
        """Raise AnsibleParserError with the place of a fault that Ansible does not place, if a file has one."""
        top = host_group_vars.CANONICAL_PATHS.get(path, path)
        files = (
            name
            for key, found in host_group_vars.FOUND.items()
            if key.startswith(f"{entity.name}.{top}/")
            for name in found
        )
        for file in files:
            data, _shown = loader._get_file_contents(file)  # decrypts a file of ansible-vault
            fault = find(data.decode("utf-8", "replace"))
            if fault:
                raise AnsibleParserError(f"{file}:{fault.line}:{fault.column}: {fault.text}") from None
