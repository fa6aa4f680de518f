#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: flashinfer_sampler
short_description: (internal) Compile FlashInfer's sampler into a virtual environment of vLLM
description:
  - Compiles the sampler with the environment's own FlashInfer, ninja and nvcc, at a low priority, and puts it where
    FlashInfer looks first. Instances then start without compiling it.
  - It needs no chip, so running instances are not disturbed. It takes one to two minutes.
  - A sampler that is there for the same compute capability stays, and so does one that came with a package.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  path:
    description: The virtual environment. In check mode it need not exist yet.
    type: path
    required: true
  compute_capability:
    description: That of the host's chips, like V(9.0).
    type: str
    required: true
  environment:
    description: Variables for the compilation (C(PATH), C(CUDA_HOME), C(LIBRARY_PATH)).
    type: dict
    default: {}
"""

EXAMPLES = "\n# roles/vllm/tasks/sampler.yml\n"

import glob
import os
import tempfile

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.common.files_host import bytes_of, make_directories, publish
from ..module_utils.common.foreign_trees_host import remove_tree
from ..module_utils.vllm.sampler import LIBRARY, MARK, PLACE, PROGRAM, describe_failure, is_current, variables

UNFINISHED = ".sampler-"


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    path, capability = module.params["path"], module.params["compute_capability"]
    packages = glob.glob(os.path.join(glob.escape(path), "lib", "python3*", "site-packages", "flashinfer"))
    if not packages and module.check_mode and not os.path.isdir(path):
        return {"changed": True, "library": "", "diff": difference(None, capability)}
    if not packages:
        module.fail_json(msg=f"{path} has no FlashInfer (lib/python3*/site-packages/flashinfer), expected one with it")
    place = os.path.join(packages[0], *PLACE)
    library, mark = os.path.join(place, LIBRARY), read_mark(place)
    current = is_current(os.path.isfile(library), mark, capability)
    if not current and not module.check_mode:
        compile_into(module, packages[0], place)
    return {"changed": not current, "library": library, "diff": difference(mark, mark if current else capability)}


def difference(before: str | None, after: str | None) -> dict[str, str]:
    """Return the compute capabilities before and after as a diff."""
    return {"before": f"{before.strip()}\n" if before else "", "after": f"{after.strip()}\n" if after else ""}


def read_mark(place: str) -> str | None:
    """Return the compute capability that the library was compiled for, None without a mark."""
    try:
        with open(os.path.join(place, MARK), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def compile_into(module: AnsibleModule, package: str, place: str) -> None:
    """Compile the library and put it into its place beside its mark; fail if it cannot be compiled."""
    # The service's user must read the file, whatever root's umask is.
    os.umask(0o022)
    data = os.path.join(package, "data")
    # FlashInfer would take the old library in place of compiling one. What has loaded it keeps it.
    for leftover in (place, *glob.glob(os.path.join(glob.escape(data), f"{UNFINISHED}*"))):
        if os.path.isdir(leftover):
            remove_tree(leftover)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=data) as work:
        library = bytes_of(compiled(module, work))
    make_directories(place)
    # The library last: alone it would be one that came with a package.
    publish(os.path.join(place, MARK), module.params["compute_capability"] + "\n")
    publish(os.path.join(place, LIBRARY), library, mode=0o755)


def compiled(module: AnsibleModule, work: str) -> str:
    """Run FlashInfer's own compilation in ``work`` and return the path of the library; fail with what it said."""
    path = module.params["path"]
    env = variables(module.params["environment"], module.params["compute_capability"], work)
    # Running instances go first.
    command = ["nice", "-n", "10", f"{path}/bin/python", "-I", "-c", PROGRAM]
    rc, out, err = module.run_command(command, environ_update=env, cwd=work)
    made = out.strip().splitlines()[-1] if out.strip() else ""
    if rc or not os.path.isfile(made):
        module.fail_json(msg=describe_failure(path, err or out))
    return made


if __name__ == "__main__":
    main()
