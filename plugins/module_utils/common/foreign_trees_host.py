# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk and remove directories that another user fills, as deep as that user likes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import Iterator


def walk_tree(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what os.walk yields, however deep another user has made the directories; a link to one is a file.

    os.walk calls itself up to Python 3.11. What lies behind the kernel's longest path is left out.
    """
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as found:
                kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}
        except OSError:
            continue
        below = [name for name, is_directory in kinds.items() if is_directory]
        yield directory, below, [name for name in kinds if not kinds[name]]
        waiting += [os.path.join(directory, name) for name in below]


def remove_tree(path: str, ignore_errors: bool = False) -> None:
    """Remove a directory, however deep another user has made it. shutil.rmtree calls itself and opens each level.

    Raises OSError.
    """
    try:
        shutil.rmtree(path)
        return
    except RecursionError:
        pass
    except OSError as exc:
        if exc.errno != errno.EMFILE and not ignore_errors:
            raise
        if not os.path.lexists(path):
            return
    words = ["rm", "--recursive", "--force", "--one-file-system", "--", path]
    done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode and not ignore_errors:
        raise OSError(errno.ENOTEMPTY, done.stderr.decode("utf-8", "replace").strip()[-200:], path)
