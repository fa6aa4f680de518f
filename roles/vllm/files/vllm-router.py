# SPDX-License-Identifier: GPL-3.0-or-later
"""Start vllm-router for an instance with prefill and decode, from the file that describes its hosts.

vllm-router's own command imports a second router, for tests, which needs a web framework and other packages. This
program starts itself again in the router's virtual environment, and there calls the router without them. The directory
beside this file has what it imports of the collection.
"""

from __future__ import annotations

import argparse
import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.host_group.router import arguments_of
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_host import group_in
from ansible_collections.baremetal.inference.plugins.module_utils.instance.marks import CONFIG_DIR


def run() -> None:
    """Run the router with the words of the command line."""
    from vllm_router.router import Router  # type: ignore[import-not-found]
    from vllm_router.router_args import RouterArgs  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(description="vllm-router")
    RouterArgs.add_cli_args(parser, use_router_prefix=False)
    Router.from_args(RouterArgs.from_cli_args(parser.parse_args(), use_router_prefix=False)).start()


def main() -> None:
    """Start in the router's environment what the file of an instance describes."""
    if sys.argv[1].startswith("--"):
        run()
        return
    group = group_in(CONFIG_DIR, sys.argv[1])
    python = f"{group['router']['venv']}/bin/python"
    # -I: nothing of the host's own Python packages.
    os.execv(python, [python, "-I", os.path.abspath(__file__), *arguments_of(group)])  # noqa: S606


if __name__ == "__main__":
    main()
