# SPDX-License-Identifier: GPL-3.0-or-later
"""Push files from a directory of the controller to a host, with rsync over the SSH that Ansible uses for it."""

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from ansible.plugins.action import ActionBase

from ...module_utils.common.kinds import show_value
from ...module_utils.weights.manifest import Manifest, WeightsError, partial_directory
from ...module_utils.weights.sources import Source

# Seconds without a byte after which rsync gives up.
TIMEOUT = 60


@dataclass(frozen=True)
class Lacking:
    """A model of the task, the files of it that a host lacks with their bytes, and where they go on the host."""

    path: str
    partial: str
    files: Mapping[str, int]


def lacking_of(answer: Any, manifests: Sequence[Manifest], root: Any) -> list[Lacking]:
    """Return what a host lacks, by the module's ``unsourced``.

    The host only chooses among the names of the task's manifests. It may belong to somebody else, and its own path,
    size or directory would have the controller send any file that it can read. Raises WeightsError for those.
    """
    known = {manifest.path: manifest for manifest in manifests}
    if not isinstance(root, str) or not root.startswith("/"):
        raise WeightsError(f"weights_root: found {show_value(root)}, expected an absolute path for a push")
    lacking = []
    for entry in answer if isinstance(answer, list) else [answer]:
        path, names = (entry.get("path"), entry.get("files")) if isinstance(entry, Mapping) else (None, None)
        # A path that was taken is taken once.
        manifest = known.pop(path, None) if isinstance(path, str) else None
        if manifest is None:
            raise WeightsError(f"the host's answer names {show_value(path)}, which is no model of this task")
        named: list[Any] = list(names) if isinstance(names, Mapping) else [None]
        sizes = {file.name: file.size for file in manifest.files}
        strange = [name for name in named if name not in sizes]
        if strange:
            raise WeightsError(f"the host's answer names {show_value(strange[0])}, which is no file of {path}")
        partial = partial_directory(os.path.join(root, manifest.path))
        lacking.append(Lacking(manifest.path, partial, {name: sizes[name] for name in named}))
    return lacking


def push_models(
    action: ActionBase, source: Source, models: Sequence[Lacking], bandwidth: int
) -> tuple[list[str], list[str]]:
    """Push the missing files of models into the partial directories on the host.

    Return the paths of the models that the controller has, and the faults of the others. In check mode only check.
    Raises WeightsError where nothing can be pushed.
    """
    here, reasons = [], []
    for model in models:
        try:
            check_files(os.path.join(source.base, model.path), model.files)
        except WeightsError as exc:
            reasons.append(str(exc))
        else:
            here.append(model)
    if here and not action._task.check_mode:
        _push_all(action, source, here, bandwidth)
    return [model.path for model in here], reasons


def _push_all(action: ActionBase, source: Source, models: Sequence[Lacking], bandwidth: int) -> None:
    ssh, login, sudo = connection_words(action)
    for model in models:
        # Every instance's user must read the weights, and nobody else may write them, whatever the umask of the
        # connection is and whatever default ACL the directories above have.
        parent = os.path.dirname(model.partial)
        places = shlex.join([os.path.dirname(parent), parent, model.partial])
        made = action._low_level_execute_command(f"umask 022 && mkdir -p -m 755 -- {places}")
        if made["rc"]:
            raise WeightsError(f"{source.text}: {model.partial} cannot be created: {made['stderr'].strip()}")
        words = rsync_command(os.path.join(source.base, model.path), f"{login}{model.partial}", ssh, sudo, bandwidth)
        run_rsync(words, list(model.files), source.text)


def connection_words(action: ActionBase) -> tuple[list[str], str, bool]:
    """Return the ssh command, the prefix of a path on the host, and whether sudo is needed there."""
    connection, become = action._connection, action._connection.become
    if connection.transport == "local":
        return ["ssh"], "", False
    if connection.transport != "ssh":
        raise WeightsError(f"a source of the controller needs a connection over ssh, found {connection.transport}")
    user = connection.get_option("remote_user") or ""
    is_other = become is not None and (become.get_option("become_user") or "root") != user
    if is_other and become.name != "ansible.builtin.sudo" and become.name != "sudo":
        raise WeightsError(f"a source of the controller needs sudo where it needs another user, found {become.name}")
    login, host = f"{user}@" if user else "", str(connection.get_option("host"))
    # rsync would take an address of IPv6 without brackets for a name, and the rest of it for the path.
    return ssh_command(connection.get_option), f"{login}{f'[{host}]' if ':' in host else host}:", is_other


def ssh_command(option: Callable[[str], Any]) -> list[str]:
    """Return the ssh command of a connection, whose options ``option`` returns by name.

    Without compression: weights do not compress, and it costs more than the link.
    """
    words = ["ssh"]
    for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        words += [word for word in shlex.split(option(name) or "") if word != "-C"]
    if option("port"):
        words += ["-p", str(option("port"))]
    if option("private_key_file"):
        words += ["-i", os.path.expanduser(str(option("private_key_file")))]
    if not option("host_key_checking"):
        words += ["-o", "StrictHostKeyChecking=no"]
    # No interactive questions.
    return [*words, "-o", "BatchMode=yes"]


def rsync_command(source: str, target: str, ssh: Sequence[str], sudo: bool, bandwidth: int) -> list[str]:
    """Return the command that pushes the files named on its standard input below ``source`` to ``target``.

    A partial file is continued. ``bandwidth`` is in megabits per second, 0 for no limit.
    """
    words = [
        "rsync",
        "--times",
        "--perms",
        "--chmod=D0755,F0644",
        "--partial-dir=.rsync-partial",
        f"--timeout={TIMEOUT}",
    ]
    words += ["--files-from=-", "--protect-args", f"--rsh={shlex.join(ssh)}"]
    if sudo:
        words.append("--rsync-path=sudo -n rsync")
    if bandwidth:
        words.append(f"--bwlimit={bandwidth * 1_000_000 // 8 // 1024 or 1}")
    return [*words, f"{source.rstrip('/')}/", f"{target}/"]


def check_files(directory: str, files: Mapping[str, int]) -> None:
    """Raise WeightsError unless a directory of the controller has the files with their sizes."""
    for name, size in files.items():
        path = os.path.join(directory, name)
        try:
            found = os.stat(path).st_size
        except OSError as exc:
            raise WeightsError(f"controller:{path}: {exc.strerror}") from exc
        if found != size:
            raise WeightsError(f"controller:{path}: found {found} bytes, expected {size}")


def run_rsync(words: Sequence[str], files: Sequence[str], where: str) -> None:
    """Run rsync. Raises WeightsError with the last lines of its error."""
    if not shutil.which(words[0]):
        raise WeightsError(f"{where}: rsync is not installed on the controller")
    done = subprocess.run(
        words, input="".join(f"{name}\n" for name in files), capture_output=True, text=True, check=False
    )
    if done.returncode == 127 or "rsync: command not found" in done.stderr:
        raise WeightsError(f"{where}: rsync is not installed on the host")
    if done.returncode:
        reason = "; ".join(done.stderr.strip().splitlines()[-3:])
        raise WeightsError(f"{where}: rsync ended with {done.returncode}: {reason}")
