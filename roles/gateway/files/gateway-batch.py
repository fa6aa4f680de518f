# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer a batch file through a gateway, as `vllm run-batch` does with a separate engine.

    gateway-batch.py --url https://GATEWAY --key-file FILE [--ca FILE] INPUT OUTPUT

Each line of INPUT is a request of OpenAI's batch format, each line of OUTPUT its answer. After an interrupt it goes on.
"""

from __future__ import annotations

import argparse
import os
import signal
import ssl
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import LockedError
from ansible_collections.baremetal.inference.plugins.module_utils.common.lines_host import write_error
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.batch import BatchError
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.batch_host import run
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import AddressError, TimedClient


def main() -> None:
    """Read the arguments, and end with one sentence where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key-file", required=True)
    parser.add_argument("--ca", help="the certificate of the site's CA")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("input")
    parser.add_argument("output")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with open(given.key_file, encoding="ascii") as file:
            key = file.readline().strip()
        client = TimedClient(given.url, key, ssl.create_default_context(cafile=given.ca))
        run(given.input, given.output, client, max(1, given.at_once), given.timeout, write_error)
    except (BatchError, AddressError, LockedError, OSError, UnicodeDecodeError) as exc:
        raise SystemExit(f"{given.input}: {exc}") from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted: what ran is written; run it again to go on") from None


if __name__ == "__main__":
    main()
