#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_manifest
short_description: (internal) Pin a model and write the manifest of its weights
description:
  - Writes C(DEST/ORGANISATION/NAME.yml), which pins one revision of a model with the size and the sha256 of every file
    that vLLM needs. M(baremetal.inference.weights) and the plans take the weights from there.
  - A branch or a tag becomes the commit that it is at now. Run again, a branch that has moved shows as the difference
    and nothing else does.
  - On the Hugging Face hub the sha256 of large files is in the listing. Small files are fetched, checked against
    the listing and hashed. ModelScope lists the sha256 of nearly all files. Of directories and mirrors every byte that
    goes into the manifest is read.
  - Refuses a source that has only some of the shards that the model's index names.
  - Meant for the controller (C(hosts=localhost)). The file is written by one rename.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  model:
    description: The model as C(ORGANISATION/NAME). It names the file, and the directory of the weights on hosts.
    type: str
    required: true
  source:
    description:
      - Where the model is.
      - V(hub) is the Hugging Face hub, V(hub:URL) another one that speaks its API; V(modelscope) and V(modelscope:URL)
        likewise.
      - The address (C(http), C(https)) of a directory that its server lists, as nginx does with C(autoindex on) in HTML
        or JSON and as C(python3 -m http.server) does.
      - An absolute path or a C(file) address of a directory, such as C(hf download --local-dir) makes, or the cache of
        the hub's client.
      - The files may lie in the directory itself, in C(ORGANISATION/NAME/REVISION) below it as on this collection's
        mirror, or where the hub's client keeps its cache.
    type: str
    default: hub
  revision:
    description:
      - A branch, a tag or a commit. V(main) on the hub and V(master) on ModelScope when it is not given.
      - A directory has no branches. Its revision is the commit that its name or the notes of the hub's client give,
        else the commit given here, else 40 hexadecimal digits that are made from the hashes of its files.
    type: str
    default: ""
  dest:
    description: Directory of manifests, such as one of the role's C(weights_manifest_path).
    type: path
    required: true
  beside:
    description: Whether to write C(DEST/ORGANISATION/NAME@REVISION.yml), beside the manifest of another revision. An
      instance with C(revision) takes it.
    type: bool
    default: false
  include:
    description:
      - Patterns of the files to take, over the whole path, where C(*) goes over slashes. Without them all are taken but
        what vLLM does not need beside safetensors - the folders C(original), C(metal), C(onnx), C(openvino), C(coreml),
        C(runs) and C(logs); other formats (C(.bin), C(.pt), C(.pth), C(.ckpt), C(.gguf), C(.onnx), C(.msgpack), C(.h5)
        and the like); C(consolidated*.safetensors) beside C(model*.safetensors) (see O(load_format)); licences,
        C(README), other C(.md) files, images and sounds.
      - Dot files are never taken.
    type: list
    elements: str
    default: []
  exclude:
    description: Patterns of files to leave out, beside those that are left out anyway.
    type: list
    elements: str
    default: []
  modelscope_model:
    description:
      - What ModelScope calls the model. With another O(source) ModelScope is asked, and refused where its files are
        not the same files; the manifest then has their locations there.
      - If not set, a manifest of exactly the same files keeps its entries for ModelScope.
    type: str
    default: ""
  modelscope_revision:
    description: The branch, tag or commit that has them there; V(master) when it is not given. With
      O(source=modelscope) it is O(revision) that counts.
    type: str
    default: ""
  modelscope_endpoint:
    description: Where ModelScope is, for O(modelscope_model).
    type: str
    default: https://www.modelscope.cn
  token_file:
    description: File with the token for O(source). Without it the token is taken from E(HF_TOKEN) for the hub and from
      E(MODELSCOPE_API_TOKEN) for ModelScope. It goes to that server only, and to no address that it leads on to.
    type: path
  ca_file:
    description: PEM file with certificate authorities that are trusted beside the system's.
    type: path
  load_format:
    description:
      - Which of two formats of the weights to take, where the model has both. V(mistral) is
        C(consolidated*.safetensors), V(auto) is C(model*.safetensors).
      - When it is not given, it is what the model's recipe reads (C(--load-format)); V(auto) without a recipe.
    type: str
    choices: [auto, mistral, both]
    default: auto
  recipe_path:
    description: Directories on the controller that are searched for the model's recipe before the collection's own
      C(catalog/recipes).
    type: list
    elements: path
    default: []
notes:
  - Proxies are taken from the environment.
seealso:
  - module: baremetal.inference.weights
"""

EXAMPLES = "\n# playbooks/import_models.yml\n"

import os

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.pinning.contents import revision_of
from ..module_utils.pinning.write_host import Request, Written, compare_manifest, pin_model, write_manifest


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    written = run(module)
    if written.lost_modelscope:
        module.warn(
            f"{written.path}: the name on ModelScope was removed, because the files have changed; "
            "set modelscope_model to check it and write it again"
        )
    return result(written)


def run(module: AnsibleModule) -> Written:
    """Read the model, compare its manifest, and write it where it differs. Raises WeightsError, OSError."""
    params = dict(module.params)
    dest, beside = params.pop("dest"), params.pop("beside")
    # The action plugin has read the recipe.
    params.pop("recipe_path")
    params["token_file"] = params["token_file"] or ""
    written = compare_manifest(pin_model(Request(**params), os.environ), dest, beside)
    if written.changed and not module.check_mode:
        write_manifest(written)
    return written


def result(written: Written) -> dict[str, object]:
    """Return the result of the task."""
    manifest = written.pinned.manifest
    return {
        "changed": written.changed,
        "manifest": written.path,
        "revision": manifest.revision,
        "previous_revision": revision_of(written.before),
        "derived": written.pinned.derived,
        "files": len(manifest.files),
        "size": sum(file.size for file in manifest.files),
        "left_out": list(written.pinned.left_out),
        "diff": {
            "before": written.before,
            "after": written.after,
            "before_header": written.path,
            "after_header": written.path,
        },
    }


if __name__ == "__main__":
    main()
