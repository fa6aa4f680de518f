#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge commands as vLLM's start does before it loads anything: a line of JSON in, a line of JSON out.

    PYTHON tools/vllm/real_engine.py        PYTHON can import that vLLM (a CPU build needs no accelerator)

A request is {"words": [...], "env": {...}, "config": {...}, "chip": {...}}: the command, its environment, the model's
config.json, and the chip (stack, name, count, memory_mib, capability, architecture). vLLM parses the command, checks
the arguments (validate_parsed_serve_args) and builds its configuration (create_engine_config). The answer is {} or
{"error": "vLLM's own message"}.

The platform is upstream's own class of CUDA, ROCm or CPU; only the functions that ask a driver have the answers of the
request. Models are inspected as the CPU build does it, because their modules load kernels of the platform.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import importlib
import json
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.vllm.real_parser import CommandLine, Refused, answers

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {"id": number, "content": word, "special": True, "normalized": False, "lstrip": False, "rstrip": False}
        | {"single_word": False}
        for number, word in enumerate(("<unk>", "<think>", "</think>", "<|channel|>", "<|message|>", "<|end|>"))
    ],
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},
}
KERNELS = ("vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C", "vllm._rocm_C", "amdsmi")


class Switch:
    """Stands in for vLLM's current_platform, which modules keep when they are imported; ``target`` is the platform."""

    target: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(Switch.target, name)


def cuda(chip: Mapping[str, Any]) -> Any:
    """Return vLLM's platform of NVIDIA with the answers of a chip."""
    base = importlib.import_module("vllm.platforms.cuda").CudaPlatformBase
    return type("Cuda", (base,), _driver(chip))()


def rocm(chip: Mapping[str, Any]) -> Any:
    """Return vLLM's platform of AMD with the answers of a chip."""
    torch = importlib.import_module("torch")
    # The module asks for the architecture when it is imported.
    torch.cuda.get_device_properties = lambda _device: types.SimpleNamespace(gcnArchName=chip["architecture"])
    module = importlib.import_module("vllm.platforms.rocm")
    vars(module)["_GCN_ARCH"] = chip["architecture"]
    return type("Rocm", (module.RocmPlatform,), _driver(chip))()


PLATFORMS = {"cuda": cuda, "rocm": rocm}


def _driver(chip: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions of a platform that ask a driver."""
    capability = importlib.import_module("vllm.platforms.interface").DeviceCapability(*chip.get("capability") or (9, 4))
    constants = {
        "get_device_capability": capability,
        "get_device_name": chip["name"],
        "get_device_total_memory": chip["memory_mib"] * 1024**2,
        "is_fully_connected": True,
        "device_count": chip["count"],
        "num_compute_units": 132,
        # A CPU build has not the library that answers.
        "is_cumem_allocator_available": True,
        "log_warnings": None,
    }
    return {name: classmethod(lambda *_args, _value=value, **_kwargs: _value) for name, value in constants.items()}


class Kernel:
    """A kernel that is there in all its forms, and supports everything."""

    def __call__(self, *_args: Any, **_kwargs: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return self


def _add_kernels(processor: Any) -> None:
    """Let every kernel of an accelerator exist: vLLM asks which formats they support, and takes the names of others."""
    namespace = importlib.import_module("torch")._ops._OpNamespace
    found = namespace.__getattr__

    kernel = Kernel()

    def look_up(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if Switch.target is processor or name.startswith("__") or not self.name.endswith("_C"):
                raise
            return kernel

    namespace.__getattr__ = look_up


class Engine:
    """The steps of a start up to the configuration."""

    def __init__(self) -> None:
        platforms = importlib.import_module("vllm.platforms")
        Switch.target = self.processor = importlib.import_module("vllm.platforms.cpu").CpuPlatform()
        # It takes vllm._C or another library, by what this processor knows: a wrong one ends the process.
        self.processor.import_kernels()
        for name in KERNELS:
            if name != "vllm._C":
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            sys.modules.setdefault(name, types.ModuleType(name))
        vars(platforms).update(_current_platform=Switch(), _init_trace="")
        self.command_line = CommandLine()
        self.engine = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
        self._inspect_on_processors()
        _add_kernels(self.processor)
        self.scratch = tempfile.TemporaryDirectory()

    def _inspect_on_processors(self) -> None:
        registry = importlib.import_module("vllm.model_executor.models.registry")
        known: dict[Any, Any] = {}

        def inspected(model: Any) -> Any:
            if model not in known:
                now, Switch.target = Switch.target, self.processor
                known[model] = registry._ModelInfo.from_model_cls(model.load_model_cls())
                Switch.target = now
            return known[model]

        registry._LazyRegisteredModel.inspect_model_cls = inspected

    def judge(self, request: Mapping[str, Any]) -> None:
        """Raise Refused where vLLM would not start."""
        chip = request["chip"]
        Switch.target = self.processor if chip["stack"] == "cpu" else PLATFORMS[chip["stack"]](chip)
        # The CPU build has no Triton; hosts with GPUs have, and so another model runner (use_v2_model_runner).
        vars(importlib.import_module("vllm.config.vllm"))["HAS_TRITON"] = chip["stack"] != "cpu"
        words = list(request["words"])
        words[2] = self._model(request["config"])
        with environment(request.get("env") or {}):
            try:
                # A copy: vLLM writes into the parser's defaults (aux_output_config), and the next request has them.
                namespace = copy.deepcopy(self.command_line.command.parse_args(words[1:]))
                namespace.model = namespace.model_tag
                self.command_line.validate(namespace)
                self.engine.from_cli_args(namespace).create_engine_config(headless=namespace.headless)
            except Refused:
                raise
            except (Exception, SystemExit) as exc:
                raise Refused(f"{type(exc).__name__}: {exc}") from exc

    def _model(self, config: Mapping[str, Any]) -> str:
        text = json.dumps(config, sort_keys=True)
        path = Path(self.scratch.name, hashlib.sha256(text.encode()).hexdigest()[:16], "config.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        # Some of the steps read the marks of a reasoning parser in the tokenizer.
        path.with_name("tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
        path.with_name("tokenizer_config.json").write_text(
            '{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8"
        )
        return str(path.parent)


@contextlib.contextmanager
def environment(env: Mapping[str, str]) -> Iterator[None]:
    """Set the VLLM_* variables of a request for its time."""
    own = {name: value for name, value in env.items() if name.startswith("VLLM_")}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with answers() as output:
        # vLLM's argument code looks for --help and subcommands here.
        sys.argv = ["vllm", "serve"]
        engine = Engine()
        version = importlib.import_module("vllm").__version__.partition("+")[0]
        print(json.dumps({"version": version}), file=output, flush=True)
        for line in sys.stdin:
            answer: dict[str, Any] = {}
            try:
                engine.judge(json.loads(line))
            except Refused as exc:
                answer = {"error": str(exc)}
            print(json.dumps(answer), file=output, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
