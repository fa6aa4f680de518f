# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that stores the tokens of a gateway's clients, beside the gateway of a test."""

from __future__ import annotations

import contextlib
import json
import subprocess

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_host import UsageError, read_usage
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.usage import merge_rows

from tests.fakes.gateways import HANGS, program


@contextlib.contextmanager
def service(directory, name, engines, port, output=None, **more):
    """Run the program that stores tokens, as the unit does; ``output`` is a file for what it logs."""
    config = {
        "gateway": name, "gateways": ["gw", "gw1", "gw2", "gw-a", "gw-b"],
        "servers": {
            f"127.0.0.1:{each.port}": {"name": f"gpu{n}--chat", "service": "chat", "models": ["m"]}
            for n, each in enumerate(engines)
        },
        "database": str(directory / f"{name}.sqlite"), "months": 13, "port": port,
        "log": False, "budgets": {}, "map": str(directory / name / "maps/over.map"),
        "stats": str(directory / name / "stats"), "secret": str(directory / name / "secret"), **more,
    }  # fmt: skip
    (directory / f"{name}.json").write_text(json.dumps(config))
    command, environ = program("gateway-usage", directory / f"{name}.json")
    process = subprocess.Popen(command, env=environ, stdout=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(HANGS)


def stored(tmp_path, *names):
    with contextlib.suppress(UsageError):
        return merge_rows(
            row for name in names for row in read_usage(str(tmp_path / f"{name}.sqlite"), 0, 2**40)["rows"]
        )
    return []
