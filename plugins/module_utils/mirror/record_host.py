# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a carried directory holds, and compare it with its record and its signature."""

from __future__ import annotations

import base64
import binascii
import os
import time
from typing import Any

from ..common.files_host import make_directories, publish, text_of
from ..common.module import Module
from ..mirror import bill, checksums
from .bill_host import read_knowledge
from .bundle import (
    NAME,
    BundleError,
    Holds,
    all_files,
    carried_holds,
    format_bytes,
    merge_holds,
    parse_holds,
    render_bundle,
    size_of,
    summarise_holds,
)
from .bundle_host import (
    check_room,
    find_foreign_entries,
    find_missing_files,
    list_carried_files,
    partial_bytes,
    read_bundle,
    read_notes,
    sizes_of,
    verify_bundle,
    write_documents,
)
from .signature_host import check_age, check_signature, digests_of_documents

SHOWN = 20


def planned(module: Module) -> dict[str, Any]:
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


def present(module: Module) -> dict[str, Any]:
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
    new = {**new, **carried_holds(list_carried_files(root))}
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


def documents(module: Module, holds: Holds) -> dict[str, str]:
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


def verified(module: Module) -> dict[str, Any]:
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


def note_accepted(module: Module, root: str) -> bool:
    """Note how new the accepted content is; return whether that is new. Raises BundleError for older content."""
    record = module.params["record"]
    written = str(check_age(root, record))
    if text_of(record).strip() == written:
        return False
    if not module.check_mode:
        make_directories(os.path.dirname(record))
        publish(record, f"{written}\n")
    return True


def decoded(keyring: str) -> bytes:
    """Return the bytes of the keyring. Raises BundleError."""
    try:
        return base64.b64decode(keyring, validate=True)
    except binascii.Error as exc:
        raise BundleError(f"keyring: expected public keys, encoded with Base64 ({exc})") from exc
