#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: uv_venv
short_description: (internal) Make a virtual environment from a hash-locked list of wheels
description:
  - Makes C(ROOT/NAME-HASH), where HASH are the first 12 digits of the sha256 of O(requirements). The path names the
    content, so a complete environment stays unchanged; another lock gets another directory beside it.
  - An existing environment is compared with the lock and with what its packages record of their files. All must be
    there in their sizes, and those that have changed since it was made must have their hashes. A damaged one is
    reported in C(damage), and a new one takes its place.
  - It is built under a hidden name and renamed at the end, so nothing can start from an incomplete environment.
  - Only wheels are installed, only from O(index_url) and only with the sha256 that the lock gives. The host's
    configuration of uv or pip is ignored.
  - Bytecode is compiled at once, because the users that run the environment may not write to it.
  - uv itself is pinned in the lock and comes from the same index, to C(ROOT/uv-VERSION/uv). The host needs Python, but
    neither pip nor the venv package. uv is not installed into the environment.
  - Check mode checks everything that can be known beforehand - Python's version, the machine, the free space, the
    index and that it lists every project.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  root:
    description: Directory of all environments and of uv.
    type: path
    required: true
  name:
    description: Name of the environment, like C(0.32.0-cpu); its directory has this name, followed by the hash.
    type: str
    required: true
  requirements:
    description:
      - Text of the lock, every line C(NAME==VERSION) with at least one C(--hash=sha256:...), one of them for uv.
      - "A line C(# target: cp311-x86_64) says which Python and machine it is for; the host is checked against it."
    type: str
    required: true
  index_url:
    description: Address of the simple index (PEP 503) that has every wheel of the lock. It must not need a login.
    type: str
    required: true
  ca_file:
    description: CA bundle on the host that signs the index's certificate; the system's own when empty.
    type: path
  python:
    description: Python on the host that the environment belongs to.
    type: path
    default: /usr/bin/python3
  check_index:
    description: Whether check mode asks the index. Set V(false) for check mode over a whole site whose mirror the same
      run would create. Without check mode the index is always asked first.
    type: bool
    default: true
  size_bytes:
    description: Bytes that must be free in O(root) before the environment is made.
    type: int
    default: 0
"""

EXAMPLES = "\n# roles/vllm/tasks/host.yml\n"

import os
from http import HTTPStatus
from urllib.parse import urlsplit

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.pinning.web import RetryingClient, TooLargeError
from ..module_utils.weights.manifest import WeightsError
from ..module_utils.wheels.build_host import ensure
from ..module_utils.wheels.index import Link, parse_links
from ..module_utils.wheels.venv import VenvError

TIMEOUT = 30  # seconds without a byte from the index
# A site's mirror lists hundreds of projects. A public index lists them all, in a page too large to be worth reading.
ROOT_PAGE_LIMIT = 4 << 20


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    return ensure(module, lambda: Index(module.params["index_url"], module.params["ca_file"]))


# The variables of the role vllm that set the options: a user knows these names only.
INDEX = "vllm_wheel_index"
CA = "vllm_wheel_ca_file"


class Index:
    """A simple index, read over HTTP."""

    def __init__(self, url: str, ca_file: str | None) -> None:
        if not url:
            raise VenvError(
                "vllm_wheel_index: found nothing, expected the address of an index with the wheels of the lock, such "
                "as http://mirror/simple/"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise VenvError(f"{INDEX} {url!r} is not an address; expected one like http://mirror/simple/")
        if "@" in parts.netloc:
            raise VenvError(f"{INDEX} holds a login, which would appear in logs; expected an index without a login")
        if ca_file and not os.access(ca_file, os.R_OK):
            raise VenvError(
                f"{CA} {ca_file} cannot be read on this host; put the site's CA bundle there, or leave it out"
            )
        self.url = url.rstrip("/") + "/"
        try:
            self._client = RetryingClient(self.url, {}, ca_file or None, TIMEOUT)
        except WeightsError as exc:
            raise VenvError(f"{CA} {exc}") from exc

    def get(self, url: str, most: int) -> bytes:
        """Return the content of url, at most ``most`` bytes. Raises VenvError where it cannot be had."""
        try:
            answer = self._client.get(url, most)
        except WeightsError as exc:
            raise VenvError(f"{exc}; check that the mirror is running and {INDEX} is right") from exc
        if answer.status != HTTPStatus.OK:
            raise VenvError(f"{url}: HTTP status {answer.status}; check that {INDEX} is the address of a simple index")
        return answer.body

    def links(self, url: str, most: int) -> list[Link]:
        """Return what a page of the index links to. Raises VenvError."""
        return parse_links(self.get(url, most).decode(errors="replace"), url)

    def projects(self) -> list[str] | None:
        """Return the projects that the index lists; None if the list is too long for a mirror."""
        try:
            return [link.filename for link in self.links(self.url, ROOT_PAGE_LIMIT)]
        except VenvError as exc:
            if isinstance(exc.__cause__, TooLargeError):
                return None
            raise


if __name__ == "__main__":
    main()
