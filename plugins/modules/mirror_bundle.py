#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mirror_bundle
short_description: (internal) Record what a carried directory holds, and check that it has arrived
version_added: 0.5.0
description:
  - Internal to the role P(baremetal.inference.mirror#role).
  - V(planned) lists the files that a directory lacks and fails where there is too little space for them.
  - V(present) writes C(ROOT/bundle.json), which names every file with its size and sha256, by one rename. Every file
    must exist with its size. Items of an earlier fill stay named as long as their files exist. Whatever is in
    C(ROOT/controller/) is named too.
  - Before it, V(present) writes C(ROOT/bundle.cdx.json), the same content as a bill of materials in CycloneDX 1.6, and
    C(ROOT/SHA256SUMS), which people sign. It removes the signature C(ROOT/SHA256SUMS.asc) when these lines change.
  - V(verified) compares a directory with its C(bundle.json), and fails with the files that are missing or damaged. With
    O(keyring) the signature is checked first, and links and files that it does not cover are an error. It changes
    nothing but O(record).
requirements:
  - gpgv or sqv, with O(keyring)
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  root:
    description:
      - The directory, laid out as the role P(baremetal.inference.mirror#role) serves it.
    type: path
    required: true
  state:
    description:
      - What to do.
    type: str
    choices: [planned, present, verified]
    default: present
  holds:
    description:
      - What the directory is to hold, a mapping of V(weights), V(encodings), V(wheels) and V(images) to items, of items
        to files, and of files, by their paths below O(root), to C(size) and C(sha256).
    type: dict
    default: {}
  more:
    description:
      - Bytes that are needed beside O(holds) with O(state=planned), for files that have no names yet.
    type: int
    default: 0
  read:
    description:
      - V(sizes) compares names and sizes, V(all) reads every file and compares its sha256. For O(state=verified).
    type: str
    choices: [sizes, all]
    default: all
  required:
    description:
      - Whether a directory without C(bundle.json) is an error with O(state=verified).
    type: bool
    default: true
  collection_version:
    description:
      - The version of this collection, for the bill of materials with O(state=present).
    type: str
    default: ""
    version_added: 0.7.0
  keyring:
    description:
      - The public keys, encoded with Base64, of which one must have signed the directory with O(state=verified).
        Without them, no signature is required.
    type: str
    default: ""
    version_added: 0.7.0
  record:
    description:
      - The file that notes how new the accepted content is, for O(state=verified) with O(keyring). Older content than
        it notes is refused. Empty for none.
    type: path
    default: ""
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Check a disk that has just arrived
  baremetal.inference.mirror_bundle:
    root: /media/disk
    state: verified
"""

RETURN = r"""
summary:
  description: A line for each kind that the directory holds.
  type: list
  elements: str
  returned: success
  sample:
    - "encodings: o200k_base.tiktoken (1 file, 3.6 MB)"
files:
  description: Number of files.
  type: int
  returned: success
bytes:
  description: Their bytes.
  type: int
  returned: success
missing:
  description: Files that are missing or have another size.
  type: list
  elements: str
  returned: with O(state=planned)
missing_bytes:
  description: Bytes that will be fetched, including O(more).
  type: int
  returned: with O(state=planned)
free_bytes:
  description: Bytes that are free.
  type: int
  returned: with O(state=planned)
dropped:
  description: Items of an earlier fill that are incomplete now and therefore no longer named.
  type: list
  elements: str
  returned: with O(state=present)
problems:
  description: A line for each file that is missing or damaged or, with O(keyring), not signed.
  type: list
  elements: str
  returned: with O(state=verified), also when it fails
"""

import base64
import binascii
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.common.files_host import publish, text_of
from ..module_utils.mirror import bill, checksums
from ..module_utils.mirror.bill_host import read_knowledge
from ..module_utils.mirror.bundle import (
    NAME,
    BundleError,
    Holds,
    all_files,
    controller_holds,
    format_bytes,
    merge_holds,
    parse_holds,
    render_bundle,
    size_of,
    summarise_holds,
)
from ..module_utils.mirror.bundle_host import (
    check_room,
    find_foreign_entries,
    find_missing_files,
    list_controller_files,
    partial_bytes,
    read_bundle,
    read_notes,
    sizes_of,
    verify_bundle,
    write_documents,
)
from ..module_utils.mirror.signature_host import check_age, check_signature, digests_of_documents

SHOWN = 20


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["planned", "present", "verified"], "default": "present"},
            "holds": {"type": "dict", "default": {}},
            "more": {"type": "int", "default": 0},
            "read": {"type": "str", "choices": ["sizes", "all"], "default": "all"},
            "required": {"type": "bool", "default": True},
            "collection_version": {"type": "str", "default": ""},
            "keyring": {"type": "str", "default": "", "no_log": False},
            "record": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        result = {"planned": planned, "present": present, "verified": verified}[module.params["state"]](module)
    except (BundleError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


def planned(module: AnsibleModule) -> dict[str, Any]:
    """Return what is missing. Raises BundleError where there is too little room."""
    root, holds = module.params["root"], parse_holds(module.params["holds"], "holds")
    files = all_files(holds)
    missing = find_missing_files(root, files)
    to_come = sum(files[path].size for path in missing) - partial_bytes(root, missing, files)
    figures = check_room(root, to_come + module.params["more"])
    return {
        "changed": False,
        "missing": missing,
        "missing_bytes": figures.missing,
        "free_bytes": figures.free,
        **described(holds),
    }


def described(holds: Holds) -> dict[str, Any]:
    """Return the keys that every state returns about the content."""
    return {"summary": summarise_holds(holds), "files": len(all_files(holds)), "bytes": size_of(holds)}


def present(module: AnsibleModule) -> dict[str, Any]:
    """Write bundle.json and the documents beside it if they differ. Raises BundleError for missing files."""
    root, new = module.params["root"], parse_holds(module.params["holds"], "holds")
    missing = find_missing_files(root, all_files(new))
    if missing and not module.check_mode:
        raise BundleError(f"{root}: {', '.join(missing[:SHOWN])} are missing after the fill; fill the directory again")
    try:
        before = read_bundle(root) or {}
    except BundleError as exc:
        module.warn(f"{exc}; it is written again")
        before = {}
    new = {**new, **controller_holds(list_controller_files(root))}
    holds, dropped = merge_holds(new, before, sizes_of(root, all_files(before)))
    for item in dropped:
        module.warn(f"{root}/{NAME}: {item}, from an earlier fill, is incomplete now and no longer listed")
    texts = documents(module, holds)
    changed = any(text_of(os.path.join(root, name)) != text for name, text in texts.items())
    if changed and not module.check_mode and write_documents(root, texts):
        module.warn(
            f"{root}/{checksums.SIGNATURE} was of other content and is removed; sign the directory again: "
            f"gpg --armor --detach-sign {checksums.NAME}"
        )
    diff = {"before_header": NAME, "after_header": NAME, "before": lines(before), "after": lines(holds)}
    return {"changed": changed, "dropped": dropped, "diff": diff, **described(holds)}


def documents(module: AnsibleModule, holds: Holds) -> dict[str, str]:
    """Return the text of each document by its name, in the order in which they are written: bundle.json last."""
    root = module.params["root"]
    now = time.strftime(bill.TIME, time.gmtime())
    former = text_of(os.path.join(root, bill.NAME))
    version = module.params["collection_version"]
    last = {NAME: render_bundle(holds)}
    texts = {bill.NAME: bill.render_bill(holds, read_knowledge(root, holds), version, now, former)}
    files = all_files(holds)
    sums = checksums.render_checksums(files, {**texts, **last}, read_notes(root, files))
    return {**texts, checksums.NAME: sums, **last}


def lines(holds: Holds) -> str:
    """Return a side of the diff."""
    return "".join(f"{line}\n" for line in summarise_holds(holds))


def verified(module: AnsibleModule) -> dict[str, Any]:
    """Compare the directory with its signature, if one is required, and with its bundle.json. Raises BundleError."""
    root = module.params["root"]
    signed = check_signature(root, decoded(module.params["keyring"])) if module.params["keyring"] else None
    holds = read_bundle(root)
    if holds is None and module.params["required"]:
        raise BundleError(
            f"{root}/{NAME}: not found; check that the disk is mounted, and that playbooks/mirror.yml had finished "
            "before the disk was removed"
        )
    expected = holds or {}
    problems = verify_bundle(root, expected, module.params["read"] == "all")
    if signed is not None:
        # Also what bundle.json does not name: the signature covers nothing of it.
        problems += checksums.compare_lists(signed, all_files(expected), digests_of_documents(root, signed))
        problems += find_foreign_entries(root, signed)
    problems = list(dict.fromkeys(problems))
    if problems:
        count = f"{len(all_files(expected))} files ({format_bytes(size_of(expected))})"
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        module.fail_json(
            msg=f"{root}: {len(problems)} of {count} are missing or differ from {NAME}"
            f"{' or are not signed' if signed is not None else ''}: {'; '.join(problems[:SHOWN])}{more}; fill the disk "
            "again with playbooks/mirror.yml -e bundle_check=full, which fetches only those, or copy them again"
            + (f"; sign {checksums.NAME} afterwards" if signed is not None else ""),
            problems=problems,
        )
    changed = signed is not None and bool(module.params["record"]) and note_accepted(module, root)
    return {"changed": changed, "problems": [], **described(expected)}


def note_accepted(module: AnsibleModule, root: str) -> bool:
    """Note how new the accepted content is; return whether that is new. Raises BundleError for older content."""
    record = module.params["record"]
    written = str(check_age(root, record))
    if text_of(record).strip() == written:
        return False
    if not module.check_mode:
        os.makedirs(os.path.dirname(record), exist_ok=True)
        publish(record, f"{written}\n")
    return True


def decoded(keyring: str) -> bytes:
    """Return the bytes of the keyring. Raises BundleError."""
    try:
        return base64.b64decode(keyring, validate=True)
    except binascii.Error as exc:
        raise BundleError(f"keyring: expected public keys, encoded with Base64 ({exc})") from exc


if __name__ == "__main__":
    main()
