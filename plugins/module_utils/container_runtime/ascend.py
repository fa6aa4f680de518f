# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the Ascend Docker Runtime, Huawei's runtime for docker."""

import re

TITLE = "Ascend Docker Runtime"
HOME = "/usr/local/Ascend/Ascend-Docker-Runtime"
PROGRAM = f"{HOME}/ascend-docker-runtime"
# The installer writes it last, so an interrupted installation has none.
INFO = f"{HOME}/ascend_docker_runtime_install.info"
LOG = "/var/log/ascend-docker-runtime/installer.log"

_VERSION = re.compile(r"^version=v?(?P<version>\S+)$", re.MULTILINE)


def installed_version(info: str) -> str:
    """Return the version in the text of the installer's information file; empty if there is none."""
    found = _VERSION.search(info)
    return found.group("version") if found else ""
