# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure many configurations of one server in little time:  sweep.py VARIANTS BASE_YAML CHIP PORT RESULTS SECONDS

VARIANTS is YAML: {base: {...}, variants: [{name: ..., args: {...}, env: {...}, loads: [[at once, requests], ...]}]}.
Each variant is what BASE_YAML (a file that the role wrote for a unit) says, with the changes of "base" and its own;
null removes a setting. A variant with "plan" takes the file of that name beside BASE_YAML, and one with "profile"
records what the chip does under its first load. "fresh" starts a process that imports everything again, as another
PYTHONPATH needs it; "replace" is [module, function, old, new]: the function with other text. Several of these
programs, each with a chip of its own, share the list: one takes what no other has taken. ONLY in the environment names
variants and leaves out the others. RESULTS is a directory with one file for each variant, and those that are there
already are not measured again. No variant begins when SECONDS are over, or is left running then.

This process imports vLLM once, and forks for each variant, so that a start takes 20 to 40 s in place of 55 to 100. It
never touches the chip itself. Runs with the Python of vLLM's environment, and with the variables of the unit.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import operator
import os
import signal
import subprocess
import sys
import textwrap
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
START_SECONDS = 180
# A variant that cannot have a start and its loads in what is left is not begun.
SHORTEST = 45
# What is imported once; what is missing in a release is imported by the server itself.
IMPORTS = (
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.core",
    "vllm.v1.worker.gpu_worker",
    "vllm.model_executor.models.gpt_oss",
    "vllm.model_executor.layers.quantization.utils.mxfp4_utils",
)


def say(text: str) -> None:
    """Print a line with the time."""
    print(time.strftime("%H:%M:%S", time.gmtime()), text, flush=True)


def import_once() -> None:
    """Import what every server imports, without a chip."""
    began = time.monotonic()
    for name in IMPORTS:
        try:
            __import__(name)
        except Exception as error:  # a release without it, or one that wants a chip
            say(f"not imported beforehand: {name}: {error!r}")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        say("WARNING: the imports have touched the chip; vLLM will not fork")
    say(f"imports took {time.monotonic() - began:.1f} s")


def change(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return settings with changes, of which null removes one."""
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def spell(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as vLLM's configuration file has them: it passes over what is false."""
    return {f"no-{key}" if value is False else key: value is False or value for key, value in settings.items()}


def replace(module_name: str, function: str, old: str, new: str) -> None:
    """Give a function of a module other text, which has to be there, wherever it was imported already."""
    module = importlib.import_module(module_name)
    target = operator.attrgetter(function)(module)
    text = textwrap.dedent(inspect.getsource(target))
    if old not in text:
        raise ValueError(f"{module_name}.{function} does not contain {old!r}")
    made: dict[str, Any] = {}
    exec(compile(text.replace(old, new), f"{function}, replaced", "exec"), vars(module), made)
    inspect.unwrap(target).__code__ = inspect.unwrap(made[target.__name__]).__code__


def serve(variant: dict[str, Any], config: Path, log: Path, chip: str, fresh: bool) -> int:
    """Fork a server in a session of its own, or a fresh one that imports everything again; return its process."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        env = {"CUDA_VISIBLE_DEVICES": chip, "VLLM_WORKER_MULTIPROC_METHOD": "fork", **variant.get("env", {})}
        for key, value in env.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = str(value)
        if fresh:
            program = str(Path(sys.executable).with_name("vllm"))
            os.execv(sys.executable, [sys.executable, program, "serve", "--config", str(config)])
        if "replace" in variant:
            replace(*variant["replace"])
        sys.argv = ["vllm", "serve", "--config", str(config)]
        from vllm.entrypoints.cli.main import main as serve_main

        serve_main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def has_ended(process: int) -> bool:
    """Return whether a forked server has ended."""
    try:
        return os.waitpid(process, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def wait_for_answer(process: int, port: int, until: float) -> str:
    """Wait until the server is healthy; return why it is not, or nothing."""
    while time.monotonic() < until:
        if has_ended(process):
            return "it ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return ""
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.2)
    return "it did not answer in time"


def end(process: int) -> None:
    """End a server and its processes, and wait until the chip is free."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    for _attempt in range(100):
        if has_ended(process):
            break
        time.sleep(0.1)


def wait_for_memory(chip: str) -> None:
    """Wait until the processes of the last server have left the chip."""
    for _attempt in range(60):
        command = ["nvidia-smi", "-i", chip, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
        except OSError:
            return
        if not said.isdigit() or int(said) < 2000:
            return
        time.sleep(0.25)


def load(port: int, chip: str, at_once: int, requests: int, target: Path, **more: str) -> dict[str, Any]:
    """Put a load on the server; return its figures without those of each request."""
    seed = int.from_bytes(os.urandom(3))
    clients = str(4 if at_once > 64 else 1)
    env = {**os.environ, "CHIP": chip, "CLIENTS": clients, **more}
    command = [sys.executable, str(HERE / "load.py"), *map(str, (port, at_once, requests, seed, target))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"load {at_once}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(target.read_text())
    del found["each"]
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in found.items()}


def compiled(since: float) -> int:
    """Return how many kernels of Triton were compiled since then."""
    cache = os.environ.get("TRITON_CACHE_DIR")
    return sum(path.stat().st_mtime > since for path in Path(cache).rglob("*.cubin")) if cache else -1


def call(port: int, path: str) -> float:
    """Call an endpoint of vLLM's development mode; return the seconds."""
    began = time.monotonic()
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="POST"), timeout=120):
        return round(time.monotonic() - began, 2)


def used_memory(chip: str) -> str:
    """Return the used memory of a chip as its tool prints it."""
    command = ["nvidia-smi", "-i", chip, "--query-gpu=memory.used", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()


def sleep_and_wake(port: int, chip: str, times: int) -> list[dict[str, Any]]:
    """Put the engine to sleep, its weights in the host's memory, and wake it; return seconds and used memory."""
    found = []
    for _number in range(times):
        one: dict[str, Any] = {"sleep_seconds": call(port, "/sleep?level=1"), "memory_asleep": used_memory(chip)}
        time.sleep(1)
        one |= {"wake_seconds": call(port, "/wake_up"), "memory_awake": used_memory(chip)}
        say(f"SLEEP {one}")
        found.append(one)
    return found


def warm_up(port: int, chip: str, loads: list[list[int]], scratch: Path) -> float:
    """Send short requests of each size; return the seconds."""
    began = time.monotonic()
    for at_once, _requests in loads:
        load(port, chip, at_once, at_once * (2 if at_once < 64 else 1), scratch, TOKENS_OUT="16")
    return round(time.monotonic() - began, 1)


def profile(port: int, chip: str, load_of: list[int], scratch: Path, directory: Path) -> list[str]:
    """Record some steps under a load; return the lines of PyTorch's table, most time on the chip first."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "load.py"), *map(str, (port, load_of[0], load_of[0], 1, scratch))],
        env={**os.environ, "CHIP": chip, "TOKENS_OUT": "256"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ):  # fmt: skip
        time.sleep(1.5)
        call(port, "/start_profile")
        time.sleep(0.5)
        call(port, "/stop_profile")
    return [line for path in directory.rglob("*profiler_out*.txt") for line in path.read_text().splitlines()[:70]]


def measure(
    variant: dict[str, Any], base: dict[str, Any], chip: str, port: int, results: Path, until: float, fresh: bool
) -> dict[str, Any]:
    """Start one variant and put its loads on it; return what was found."""
    name = variant["name"]
    config, log, scratch = (results / f"{name}.{kind}" for kind in ("yaml", "log", "load"))
    settings = change(base, variant.get("args", {}))
    if variant.get("profile"):
        settings["profiler-config"] = {
            "profiler": "torch",
            "torch_profiler_dir": str(results / f"{name}.profile"),
            "torch_profiler_with_stack": False,
        }
    config.write_text(yaml.safe_dump({**spell(settings), "port": port, "host": "127.0.0.1"}))
    found: dict[str, Any] = {"name": name, "args": variant.get("args", {}), "env": variant.get("env", {}), "chip": chip}
    found |= {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "loads": []}
    began = time.monotonic()
    process = serve(variant, config, log, chip, fresh or variant.get("fresh", False))
    try:
        wrong = wait_for_answer(process, port, min(began + START_SECONDS, until))
        found["start_seconds"] = round(time.monotonic() - began, 1)
        if wrong:
            return {**found, "failed": wrong, "unfinished": time.monotonic() >= until}
        found["warm_up_seconds"] = warm_up(port, chip, variant["loads"], scratch)
        if variant.get("sleeps"):
            found["sleeps"] = sleep_and_wake(port, chip, variant["sleeps"])
        if variant.get("profile"):
            found["profile"] = profile(port, chip, variant["loads"][0], scratch, results / f"{name}.profile")
        for at_once, requests in variant["loads"]:
            if time.monotonic() > until - 8:
                return {**found, "unfinished": True}
            since = time.time()
            figures = load(port, chip, at_once, requests, scratch)
            found["loads"].append({**figures, "kernels_compiled": compiled(since)})
        return found
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return {**found, "failed": str(error)}
    finally:
        end(process)
        scratch.unlink(missing_ok=True)
        wait_for_memory(chip)


def claim(results: Path, name: str, chip: str) -> bool:
    """Take a variant that has no result and that no other program has taken."""
    if (results / f"{name}.json").exists():
        return False
    try:
        (results / f"{name}.claim").open("x").write(chip)
    except FileExistsError:
        return False
    return True


def describe(found: dict[str, Any]) -> str:
    """Return a result in one line."""
    loads = ", ".join(
        f"{one['at_once']}: {one['output_tokens_per_second']:.0f} tok/s (TTFT {one['median_ttft_ms']:.0f}, "
        f"p99 {one['p99_ttft_ms']:.0f}, TPOT {one['median_tpot_ms']:.1f} ms, compiled {one['kernels_compiled']})"
        for one in found["loads"]
    )
    ended = f" FAILED: {found['failed']}" if "failed" in found else " unfinished" if found.get("unfinished") else ""
    warm = f", warm-up {found['warm_up_seconds']} s" if "warm_up_seconds" in found else ""
    return f"SWEEP chip {found['chip']} {found['name']}: start {found.get('start_seconds')} s{warm}; {loads}{ended}"


def why(log: Path) -> str:
    """Return the lines of a log that say why a server ended."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if "rror" in line]
    return "\n".join(f"    {line[:300]}" for line in [*lines[:2], *lines[-3:]])


def main() -> int:
    given, base_file, chip, port, directory, seconds = sys.argv[1:7]
    until = time.monotonic() + float(seconds)
    results = Path(directory)
    results.mkdir(parents=True, exist_ok=True)
    listed = yaml.safe_load(Path(given).read_text())
    only = os.environ.get("ONLY", "").split()
    import_once()
    fresh = proven = False
    for variant in listed["variants"]:
        if time.monotonic() > until - SHORTEST:
            break
        if (only and variant["name"] not in only) or not claim(results, variant["name"], chip):
            continue
        plan = Path(base_file).with_stem(variant["plan"]) if "plan" in variant else Path(base_file)
        base = change(yaml.safe_load(plan.read_text()), listed.get("base", {}))
        found = measure(variant, base, chip, int(port), results, until, fresh)
        if "failed" in found and not proven:
            print(why(results / f"{variant['name']}.log"), flush=True)
            say(f"{variant['name']} failed ({found['failed']}) before any other has started: a fresh process is tried")
            found = measure(variant, base, chip, int(port), results, until, fresh=True)
            fresh = proven = "failed" not in found
        proven = proven or "failed" not in found
        if not found.get("unfinished"):
            (results / f"{variant['name']}.json").write_text(json.dumps(found, indent=1) + "\n")
        say(describe(found))
        if "failed" in found:
            print(why(results / f"{variant['name']}.log"), flush=True)
    say(f"chip {chip}: the list is done, or its time is over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
