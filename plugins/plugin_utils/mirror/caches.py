# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the archives of compiled caches that hosts have made, for the mirror. Other hosts run the code in them.

So a host chooses neither the name of an archive nor what its manifest says of it: the controller computes the key from
its own plan. The host is believed what no plan knows: the id of the image, its driver, processor and system. It can
claim to be another kind of host, for an instance with the same plan only, and replaces no archive of another host.
"""

import contextlib
import os
import stat
from typing import Any, Mapping

from ...module_utils.common.files_host import locked, publish, sha256_of
from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.kinds import show_value
from ...module_utils.slots.caches import MAX_BYTES, Archive, CacheError, identity_of, key_of, software_of
from ...module_utils.vllm.plan_document import PlanDocument

_LONGEST, _MOST_FACTS, _MOST_MANIFEST = 400, 16, 1 << 20


def keep_archive(
    directory: str, host: str, plan: PlanDocument, packed: Mapping[str, Any], fetched: str
) -> tuple[str, str]:
    """Give a fetched archive the name of its key, and write its manifest; return the name and a warning.

    With a warning, the archive of another host stays and this one is removed. Raises CacheError.
    """
    where = f"{host}: {plan['instance']}"
    try:
        identity = _identity(where, plan, packed)
        archive = _archive(where, key_of(identity), packed.get("unpacked"), fetched)
        manifest = os.path.join(directory, f"{archive.key}.json")
        with locked(os.path.join(directory, ".lock")):
            maker = _maker_of(manifest) if os.path.lexists(os.path.join(directory, archive.name)) else ""
            if maker not in ("", host):
                return archive.name, (
                    f"{where}: {manifest} is of an archive that {maker} made, which stays; remove it to keep that of "
                    f"{host} instead"
                )
            # First, because it needs room: an archive without a manifest would be nobody's, and another host's next.
            publish(manifest, archive.manifest(identity, host))
            os.replace(fetched, os.path.join(directory, archive.name))
    except OSError as exc:
        raise CacheError(f"{where}: {exc.filename or directory}: {exc.strerror or exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            os.unlink(fetched)
    return archive.name, ""


def _identity(where: str, plan: PlanDocument, packed: Mapping[str, Any]) -> dict[str, Any]:
    image, facts = packed.get("software"), packed.get("host")
    if not _is_text(image) or not isinstance(facts, Mapping) or len(facts) > _MOST_FACTS:
        raise CacheError(f"{where}: found {show_value(dict(packed))}, expected software and host of an archive")
    if not all(_is_text(word) for pair in facts.items() for word in pair):
        raise CacheError(f"{where}: host: found {show_value(facts)}, expected texts of {_LONGEST} characters at most")
    return identity_of(plan, software_of(plan, str(image)), {str(name): str(text) for name, text in facts.items()})


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _archive(where: str, key: str, unpacked: Any, fetched: str) -> Archive:
    found = os.lstat(fetched)
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    count = unpacked if isinstance(unpacked, int) and not isinstance(unpacked, bool) else 0
    if not all(0 < number <= MAX_BYTES for number in (size, count)):
        raise CacheError(
            f"{where}: found an archive of {size} bytes, unpacked {show_value(unpacked)}, expected numbers from 1 to "
            f"{MAX_BYTES}"
        )
    return Archive(key, size, sha256_of(fetched), count)


def _maker_of(manifest: str) -> str:
    """Return which host made the archive of a manifest, empty where there is none."""
    try:
        with open(manifest, encoding="utf-8") as file:
            made_by = load_json(file.read(_MOST_MANIFEST)).get("made_by")
    except FileNotFoundError:
        return ""
    except (ValueError, AttributeError):
        made_by = None
    return made_by if isinstance(made_by, str) and made_by else "an unknown host"
