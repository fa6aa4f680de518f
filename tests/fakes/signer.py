# SPDX-License-Identifier: GPL-3.0-or-later
"""People who sign: a home of GnuPG with a key of its own, removed afterwards together with its agent."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator


class Signer:
    """A key without a passphrase in its own home."""

    def __init__(self, home: Path, at: str, expires: str) -> None:
        self.home = home
        self.clock = ["--faked-system-time", at] if at else []
        self.gpg("--quick-generate-key", "Site <site@example.com>", "ed25519", "sign", expires)

    def gpg(self, *words: str, stdin: bytes = b"") -> bytes:
        """Run gpg and return its output."""
        argv = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *self.clock, *words]
        environment = {**os.environ, "GNUPGHOME": str(self.home)}
        return subprocess.run(argv, input=stdin, env=environment, check=True, capture_output=True).stdout

    def public(self, *, armour: bool = False) -> bytes:
        """Return the public key, as a user exports it."""
        return self.gpg(*(["--armor"] if armour else []), "--export")

    def secret(self) -> bytes:
        """Return the secret key, which a user exports by mistake."""
        return self.gpg("--export-secret-keys")

    def sign(self, path: Path) -> None:
        """Write the signature of a file beside it."""
        Path(f"{path}.asc").write_bytes(self.gpg("--armor", "--detach-sign", "-o", "-", str(path)))


@contextlib.contextmanager
def signer(at: str = "", expires: str = "never") -> Iterator[Signer]:
    """Make a signer whose clock stands at a time, such as 20200101T120000, or runs.

    The home's path is short, because it holds the agent's socket.
    """
    home = Path(tempfile.mkdtemp(prefix="signer-"))
    try:
        yield Signer(home, at, expires)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(home, ignore_errors=True)
