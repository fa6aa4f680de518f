#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_images
short_description: (internal) Push container images from layouts into a registry
description:
  - Finds the OCI image layouts below O(root), as C(skopeo copy ... oci:ROOT/REPOSITORY:TAG) writes them, and pushes
    each into the registry as C(REPOSITORY:TAG). Hidden directories are ignored.
  - Skips an image whose digest the registry already has under that tag. Digests never change on the way.
  - Nothing is removed from the registry.
  - Every index is read before the first image is pushed.
  - In check mode an unreachable registry counts as empty, because the same run may be about to create it.
requirements:
  - skopeo on the host, if there is anything to push
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  root:
    description: Directory that holds the layouts. A missing directory counts as empty.
    type: path
    required: true
  registry:
    description: Address of the registry, which uses plain HTTP and requires no login.
    type: str
    required: true
"""

EXAMPLES = "\n# roles/mirror/tasks/run.yml\n"

RETURN = "# internal"

import http.client
import time
import urllib.error

from ansible.module_utils.urls import open_url

from ..module_utils.common.deadline import finish_within
from ..module_utils.common.door import start_module
from ..module_utils.common.foreign_text import quote_foreign
from ..module_utils.containers.oci_index import MANIFESTS, Image, OciError, listing
from ..module_utils.containers.push_host import find_images, push

TIMEOUT = 30
# A registry that has just been started may not listen yet.
START_SECONDS = 15


def main() -> None:
    module = start_module({"root": {"type": "path", "required": True}, "registry": {"type": "str", "required": True}})
    root, registry = module.params["root"], module.params["registry"]
    try:
        images = find_images(root)
        present = ask_all(images, registry, module.check_mode)
        missing = [image for image in images if present[image.name] != image.digest]
        if not module.check_mode:
            for image in missing:
                push(module, image, registry)
    except (OSError, OciError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=bool(missing),
        images=[{"name": image.name, "digest": image.digest} for image in images],
        pushed=[image.name for image in missing],
        diff={
            "before_header": registry,
            "after_header": registry,
            "before": listing(images, present),
            "after": listing(images, {image.name: image.digest for image in images}),
        },
    )


def ask_all(images: list[Image], registry: str, check_mode: bool) -> dict[str, str | None]:
    """Return the digest that a registry has for each image."""
    if not images:
        return {}
    if not reachable(registry, 0 if check_mode else START_SECONDS):
        if check_mode:
            return {image.name: None for image in images}
        raise OciError(f"the registry at {registry} does not answer; see `journalctl -u docker-registry` there")
    return {image.name: digest_of(image, registry) for image in images}


def reachable(registry: str, seconds: int) -> bool:
    """Return whether a registry answers within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            ask(f"http://{registry}/v2/", "GET")
            return True
        except urllib.error.HTTPError as exc:
            raise OciError(
                f"http://{registry}/v2/: HTTP status {exc.code} ({quote_foreign(exc.reason)}); expected a registry "
                "without a login"
            ) from exc
        except (OSError, ValueError, http.client.HTTPException):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.5)


def digest_of(image: Image, registry: str) -> str | None:
    """Return the digest that a registry has under the name of an image, None where it has none."""
    url = f"http://{registry}/v2/{image.repository}/manifests/{image.tag}"
    try:
        return ask(url, "HEAD")
    except urllib.error.HTTPError as exc:
        if exc.code == 404:
            return None
        raise OciError(f"{url}: HTTP status {exc.code} ({quote_foreign(exc.reason)})") from exc
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise OciError(f"{url}: no answer of a registry ({quote_foreign(exc)})") from exc


def ask(url: str, method: str) -> str | None:
    """Return the digest in the head of an answer, None without one."""
    headers = {"Accept": ", ".join(MANIFESTS)}
    digest: str | None = finish_within(
        TIMEOUT, lambda: open_url(url, method=method, headers=headers, timeout=TIMEOUT, use_proxy=False)
    ).headers.get("Docker-Content-Digest")
    return digest


if __name__ == "__main__":
    main()
