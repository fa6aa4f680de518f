# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand in for get-pip.py, which ansible-test downloads: install pip from Python's own copy, then what is asked for."""

from __future__ import annotations

import subprocess
import sys

# get-pip.py's own switches; all others are pip's.
OWN = ("--no-setuptools", "--no-wheel")

# Its own process: ensurepip turns pip's configuration off for the process that it runs in.
subprocess.run([sys.executable, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
words = [word for word in sys.argv[1:] if word not in OWN]
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *words], check=True)
