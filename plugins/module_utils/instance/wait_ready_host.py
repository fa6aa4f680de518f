# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until an instance serves at full speed, or its process ends."""

import contextlib
import hashlib
import os
import time

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from .api_host import ask
from .config_file import InstanceError, Listening, read_flat_yaml
from .config_host import group_in, listening_in
from .listener_host import StrangerError
from .marks import CACHE_DIR, CONFIG_DIR, GROUP_RUN_DIR, PROBE, READY, RUN_DIR, STATE_DIR
from .warm_up import Limits, read_kept
from .warm_up_host import WarmUp, WarmUpError

# Used if the model's vocabulary is unknown: small enough for any.
VOCABULARY = 1000
LARGEST_VOCABULARY = 10**8
MAX_CONFIG_BYTES = 16 * 1024 * 1024
# Among the kernels that it speaks of, so that it goes with them, and with their archive to equal hosts.
WARM = "warm-up.json"
# Where an instance listens changes no kernel.
_ADDRESS = ("host:", "port:")


class EndedError(Exception):
    """vLLM ended before it answered."""


def wait_ready(name: str, main_pid: str, seconds: float) -> str:
    """Wait until an instance is ready, warm it up for about ``seconds``, and tell gateways; return what was done.

    Raises EndedError, StrangerError, and InstanceError where nobody could ask the instance.
    """
    group = group_in(CONFIG_DIR, name)
    worker = group.get("role") == "worker"
    listening = None if worker else listening_in(CONFIG_DIR, name)
    # A worker is ready when it has joined; a head when it answers and all hosts are connected.
    while not ((listening is None or healthy(listening)) and (not group or connected(name))):
        if not os.path.exists(f"/proc/{main_pid}"):
            raise EndedError("vLLM ended before it answered")
        time.sleep(0.5)
    if listening is None:
        return "Joined the head"
    began = time.monotonic()
    told = warm_up(name, listening, seconds) if seconds else ""
    marks = ForeignDirectory(f"{RUN_DIR}/{name}")
    # The unit of an instance that an older release installed has no such directory.
    if marks.exists():
        # The service of the role health reads how long the warm-up took.
        marks.replace(READY, f"{time.monotonic() - began:.3f}\n")
    return told


def healthy(listening: Listening) -> bool:
    """Return whether vLLM itself answers with 200. Raises StrangerError."""
    try:
        return ask(listening, "GET", "/health", 5.0, headers=PROBE).status == 200
    except StrangerError:
        # vLLM cannot listen there, and gateways may not be told that it does.
        raise
    except OSError:
        return False


def warm_up(name: str, listening: Listening, seconds: float) -> str:
    """Warm an instance up; return a line for the journal."""
    caches, engine = ForeignDirectory(f"{CACHE_DIR}/{name}/vllm"), engine_of(name)
    known = read_kept(caches.text(WARM), engine)
    run = WarmUp(listening, limits_of(name), vocabulary_of(name), seconds, known)
    try:
        told = run.run()
    except WarmUpError as exc:
        # Not an error: models that cannot complete text cannot be warmed up in this way.
        return f"Warm-up ended: {exc}"
    # docker's unit may not write there, and there each size runs twice at each start.
    with contextlib.suppress(OSError):
        caches.replace(WARM, run.progress.to_keep(engine))
    return told


def engine_of(name: str) -> str:
    """Return what tells an instance from one with another model, release or arguments, on this host or an equal one."""
    parts = [os.path.realpath(f"{STATE_DIR}/{name}/model"), os.environ.get("PATH", "")]
    with contextlib.suppress(OSError):
        lines = _text(f"{CONFIG_DIR}/{name}.yaml").splitlines()
        parts.extend(line for line in lines if not line.startswith(_ADDRESS))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def limits_of(name: str) -> Limits:
    """Return the limits of an instance's batches that its configuration sets."""
    try:
        found = read_flat_yaml(_text(f"{CONFIG_DIR}/{name}.yaml"))
    except (OSError, InstanceError):
        return Limits()
    texts = (str(found.get(key, "")) for key in ("max-num-seqs", "max-model-len", "max-num-batched-tokens"))
    return Limits(*(int(text) if text.isdecimal() else 0 for text in texts))


def connected(name: str) -> bool:
    """Return whether the watchdog has seen all hosts of the group connected in this run of the unit."""
    try:
        found = load_json(_text(f"{GROUP_RUN_DIR}/{name}/state"))
        return bool(found["complete"]) and found["invocation"] == os.environ.get("INVOCATION_ID")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def vocabulary_of(name: str) -> int:
    """Return the size of the model's vocabulary."""
    try:
        model = ForeignDirectory(os.path.realpath(f"{STATE_DIR}/{name}/model"))
        config = load_json(model.read("config.json", MAX_CONFIG_BYTES))
        found = config.get("vocab_size") or config["text_config"]["vocab_size"]
        # Each token of a prompt is a number below it.
        return found if isinstance(found, int) and 1 < found < LARGEST_VOCABULARY else VOCABULARY
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return VOCABULARY


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
