#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: (internal) Write the files, directories and links of a role in one step
description:
  - Does for a list what M(ansible.builtin.template), M(ansible.builtin.copy) and M(ansible.builtin.file) do for one
    path each. A task that loops over ten files runs some twenty modules on the host; this one runs one, so that a run
    with nothing to do is short.
  - Templates are rendered on the controller by the action plugin of the same name.
  - A file is replaced in one durable step. Everything belongs to the user that the module runs as.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  files:
    description: What to put in place, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path on the host.
        type: str
        required: true
      state:
        description: What the path is to be. A directory's missing parents are made too. V(absent) removes a file or a
          link, no directory. V(removed) removes a directory too, with everything that other users have put into it.
        type: str
        choices: [file, directory, link, absent, removed]
        default: file
      template:
        description:
          - For a file, the template of the role that makes its content; it finds this entry as the variable C(item).
        type: str
      src:
        description: For a file, the file of the role or of the controller with its content.
        type: str
      content:
        description: For a file, its content.
        type: str
      target:
        description: For a link, what it points to.
        type: str
      mode:
        description: Mode of a file or directory, as four octal digits in quotes.
        type: str
      group:
        description: Group of a file or directory; that of the user by default.
        type: str
      secret:
        description: Whether a file's content is a secret. Neither a difference nor the module's options show it then.
        type: bool
        default: false
      live_keys:
        description: For a file that holds a mapping in YAML, keys of which a running program takes over a change; see
          C(live) in C(results).
        type: list
        elements: str
        default: []
      validate:
        description:
          - For a file, a command that accepts the new content; C(%s) is the path of a temporary file that holds it.
          - Nothing is changed when a command refuses.
        type: str
  secrets:
    description: The contents of the entries with O(files[].secret), by path. The action plugin fills it.
    type: dict
    default: {}
"""

EXAMPLES = "\n# roles/gateway/tasks/configure.yml\n"

import tempfile
from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.common.file_set_host import (
    ABSENT,
    FILE,
    LINK,
    REMOVED,
    Entry,
    FileSetError,
    Found,
    differs,
    group_id,
    inspect,
    put_in_place,
)
from ..module_utils.common.live_keys import differs_only_in


def main() -> None:
    module = start_module(
        DOCUMENTATION,
        secret=("secrets",),
        # The contents of files do not belong in the host's log.
        no_log=True,
    )
    diffs: list[dict[str, str]] = []
    done = False
    try:
        entries = [entry_of(options, module.params["secrets"]) for options in module.params["files"]]
        # A path that cannot be replaced is reported before any other is changed.
        before = [inspect(entry) for entry in entries]
        changes = [differs(entry, found, group_id(entry)) for entry, found in zip(entries, before)]
        for entry, options, change in zip(entries, module.params["files"], changes):
            if change and options["validate"]:
                validate(module, entry, options["validate"])
        for entry, options, found, change in zip(entries, module.params["files"], before, changes):
            if not change:
                continue
            diffs.append(describe(entry, found, options["secret"]))
            if not module.check_mode:
                put_in_place(entry, found)
                done = True
    except (FileSetError, OSError) as exc:
        module.fail_json(msg=str(exc), changed=done)
    options = module.params["files"]
    live = [change and is_live(*each) for change, *each in zip(changes, entries, before, options)]
    module.exit_json(changed=any(changes), written=changes, live=live, **({"diff": diffs} if module._diff else {}))


def entry_of(options: dict[str, Any], secrets: dict[str, str]) -> Entry:
    """Return the entry that options request, with its content from the secrets. Raises FileSetError."""
    if options["secret"] and options["path"] not in secrets:
        raise FileSetError(f"{options['path']}: secrets lacks the content of this file")
    return Entry.from_dict({**options, "content": secrets[options["path"]]} if options["secret"] else options)


def is_live(entry: Entry, found: Found, options: dict[str, Any]) -> bool:
    """Return whether a running program takes over all that changes in a file."""
    before, after = found.content.decode(errors="replace"), entry.content.decode(errors="replace")
    return found.type == FILE and differs_only_in(before, after, options["live_keys"])


def validate(module: AnsibleModule, entry: Entry, command: str) -> None:
    """Raise FileSetError if the command refuses the entry's new content."""
    with tempfile.NamedTemporaryFile(dir=module.tmpdir) as file:
        file.write(entry.content)
        file.flush()
        rc, out, err = module.run_command(command.replace("%s", file.name))
    if rc:
        text = (err.strip() or out.strip()).replace(file.name, entry.path)
        raise FileSetError(f"{entry.path}: the new content was refused, and nothing was changed: {text}")


def describe(entry: Entry, found: Found, secret: bool = False) -> dict[str, str]:
    """Return the difference as Ansible shows it: of contents or targets, and of mode, owner and group."""
    if entry.state in (ABSENT, REMOVED):
        before, after = f"{found.type}\n", "absent\n"
    elif secret and found.content != entry.content:
        before, after = "(content hidden)\n" if found.type else "", "(other content, hidden)\n"
    elif entry.state == FILE and found.content != entry.content:
        before, after = found.content.decode(errors="replace"), entry.content.decode(errors="replace")
    elif entry.state == LINK:
        before, after = f"{found.target}\n" if found.target else "", f"{entry.target}\n"
    else:
        before = f"{found.type} {found.mode:04o} {found.uid}:{found.gid}\n" if found.mode is not None else ""
        group = group_id(entry)
        owner = f"{found.uid if found.uid >= 0 else 0}:{entry.group if group is None else group}"
        after = f"{entry.state} {entry.mode or 0:04o} {owner}\n"
    return {"before_header": entry.path, "after_header": entry.path, "before": before, "after": after}


if __name__ == "__main__":
    main()
