#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: container_runtime_daemon
short_description: (internal) Merge settings into docker's configuration file
description:
  - Merges settings into docker's C(daemon.json) on the host. Everything else in the file stays, and its mode.
  - The file may hold credentials, such as the password of a proxy. They are in no result, difference or message.
  - The file is replaced in one durable step, or stays unchanged.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  path:
    description: The file. Its directory must exist, except in check mode.
    type: path
    default: /etc/docker/daemon.json
  settings:
    description:
      - Keys to set, with their values.
      - C(features) and C(runtimes) are merged by their keys, C(exec-opts) by the part before C(=). Any other value is
        replaced.
    type: dict
    required: true
  validate:
    description:
      - A command that accepts the new file; C(%s) is the path of a temporary file that holds it.
      - Nothing is changed when it refuses.
    type: str
    default: ""
"""

EXAMPLES = "\n# roles/container_runtime/tasks/files.yml\n"

import tempfile

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.container_runtime.daemon_file import describe_settings, merge_text, redact_output
from ..module_utils.container_runtime.daemon_host import read_text, write_text
from ..module_utils.container_runtime.facts import RuntimePlanError


def main() -> None:
    module = start_module(DOCUMENTATION)
    path, settings = module.params["path"], module.params["settings"]
    try:
        before = read_text(path)
        after = merge_text(before, settings, path)
        if after != before:
            validate(module, after)
            if not module.check_mode:
                write_text(path, after)
    except RuntimePlanError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{path}: {exc.strerror}")
    shown = [describe_settings(text, list(settings), path) for text in (before, after)]
    diff = {"before": shown[0], "after": shown[1], "before_header": path, "after_header": path}
    module.exit_json(changed=after != before, **({"diff": diff} if module._diff and after != before else {}))


def validate(module: AnsibleModule, text: str) -> None:
    """Raise RuntimePlanError if the command refuses the new text."""
    path, settings, command = (module.params[name] for name in ("path", "settings", "validate"))
    if not command:
        return
    with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        rc, out, err = module.run_command(command.replace("%s", file.name))
    if rc:
        output = redact_output((err.strip() or out.strip()).replace(file.name, path), text, settings)
        raise RuntimePlanError(f"{path}: the new content was refused, and nothing was changed: {output}")


if __name__ == "__main__":
    main()
