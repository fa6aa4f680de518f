# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool on a small release written here; on a real one where VLLM_SITE_PACKAGES names its directory.

With VLLM_PYTHON too (a Python that can import that vLLM, a CPU build) its real parser must agree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
TOOL = ROOT / "tools" / "vllm" / "read_options.py"

FILES = {
    "vllm/__init__.py": "",
    "vllm/envs.py": """
        import json
        import os
        import sys
        import torch

        def chosen(env_name, choices, case_sensitive=True):
            def read():
                value = os.environ[env_name]
                known = choices() if callable(choices) else choices
                if value not in known and (case_sensitive or value.lower() not in map(str.lower, known)):
                    raise ValueError(value)
                return value
            return read

        def listed(env_name, choices):
            def read():
                for value in os.environ[env_name].split(","):
                    choices.index(value)
            return read

        def file_or_text():
            text = os.environ["VLLM_FILE"]
            return json.load(open(text)) if os.path.exists(text) else json.loads(text)

        def port():
            from vllm.utils import nothing
            return int(os.environ["VLLM_PORT"])

        environment_variables: dict[str, object] = {
            "VLLM_B": lambda: 1,
            "VLLM_PORT": port,
            'VLLM_A': lambda: int(os.getenv("VLLM_A", "8" if __import__("torch").version.hip else "4")),
            "VLLM_ON": lambda: bool(int(os.environ["VLLM_ON"])),
            "VLLM_FLAG": lambda: os.environ["VLLM_FLAG"].lower() in ("true", "1"),
            "VLLM_ONE": lambda: os.environ["VLLM_ONE"] == "1",
            "VLLM_TRUE": lambda: os.environ["VLLM_TRUE"].lower() == "true",
            "VLLM_TWO": lambda: {"1": True, "0": False}.get(os.environ["VLLM_TWO"]),
            "VLLM_NOT": lambda: os.environ["VLLM_NOT"] != "0",
            "VLLM_NAMES": lambda: os.environ["VLLM_NAMES"].split(","),
            "VLLM_LOGGING_LEVEL": lambda: os.environ["VLLM_LOGGING_LEVEL"].upper(),
            "VLLM_LOGGING_STREAM": lambda: os.environ["VLLM_LOGGING_STREAM"],
            "VLLM_SHARE": lambda: float(os.environ["VLLM_SHARE"]),
            "VLLM_JSON": lambda: json.loads(os.environ["VLLM_JSON"]),
            "VLLM_FILE": file_or_text,
            "VLLM_WAY": chosen("VLLM_WAY", ["fork", "spawn"]),
            "VLLM_CASE": chosen("VLLM_CASE", ["High"], case_sensitive=False),
            "VLLM_LIST": listed("VLLM_LIST", ["a", "b"]),
            "VLLM_ASKED": chosen("VLLM_ASKED", lambda: torch.names.__members__),
            "CUDA_HOME": lambda: sys.modules[__name__].port,
        }
    """,
    "vllm/config/__init__.py": "from vllm.config.model import ModelConfig\nfrom vllm.config.vllm import VllmConfig\n",
    "vllm/config/utils.py": "def config(cls): return cls\n",
    "vllm/config/types.py": 'from typing import Literal\nDType = Literal["fp8", "auto"]\n',
    "vllm/config/model.py": """
        import torch
        from typing import Literal, TYPE_CHECKING
        from pydantic import Field, SkipValidation
        from .utils import config
        from .types import *
        if TYPE_CHECKING:
            from transformers import Nothing
        else:
            Nothing = object

        @config
        class Inner:
            fuse: bool = False
            names: list[str] | None = None
            made_here: int = Field(init=False)
            _private: int = 0
            depth: "int" = 1

        @config
        class ModelConfig:
            name: str | None = None
            length: int = Field(default=1, ge=0)
            dtype: SkipValidation[DType] = "auto"
            backend: Literal["a", "b"] | str = "a"
            on: bool = True
            inner: Inner = Field(default_factory=Inner)
            device: torch.device = torch.device("cuda")
    """,
    "vllm/config/vllm.py": """
        from vllm.config.utils import config
        from vllm.config.model import Inner
        @config
        class VllmConfig:
            later: Inner | None = None
    """,
    "vllm/utils/__init__.py": "import torch\n",
    "vllm/utils/argparse_utils.py": """
        from argparse import ArgumentParser, _ArgumentGroup
        import regex as re

        def human_readable_int(value: str) -> int:
            return int(value)

        class FlexibleArgumentParser(ArgumentParser):
            tip: str = "x"
            def add_argument(self, *args, **kwargs):
                kwargs.pop("deprecated", None)
                return super().add_argument(*args, **kwargs)
    """,
    "vllm/engine/arg_utils.py": """
        import argparse, json, torch
        from dataclasses import dataclass, fields, is_dataclass
        from typing import Literal, Union, get_args, get_origin
        from types import UnionType
        from pydantic import TypeAdapter
        from vllm.config import ModelConfig, VllmConfig
        from vllm.plugins import load_general_plugins
        from vllm.utils.argparse_utils import FlexibleArgumentParser, human_readable_int

        def optional_type(return_type):
            def _optional_type(val: str):
                return None if val == "None" else return_type(val)
            return _optional_type

        def get_kwargs(cls) -> dict:
            kwargs = {}
            for field in fields(cls):
                hints = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
                inner = next((hint for hint in hints if is_dataclass(hint)), None)
                literal = next((hint for hint in hints if get_origin(hint) is Literal), None)
                if inner:
                    def parse_dataclass(val: str, cls=inner):
                        return TypeAdapter(cls).validate_json(val)
                    kwargs[field.name] = {"type": parse_dataclass}
                elif bool in hints:
                    kwargs[field.name] = {"action": argparse.BooleanOptionalAction}
                elif literal:
                    word = "metavar" if str in hints else "choices"
                    kwargs[field.name] = {"type": str, word: sorted(get_args(literal))}
                elif int in hints:
                    kwargs[field.name] = {"type": human_readable_int}
                else:
                    kwargs[field.name] = {"type": optional_type(str)}
            return kwargs

        @dataclass
        class AsyncEngineArgs:
            name: str = ModelConfig.name

            def create(self) -> VllmConfig:
                raise AssertionError("nobody makes an engine here")

            @staticmethod
            def add_cli_args(parser: FlexibleArgumentParser) -> FlexibleArgumentParser:
                from vllm.platforms import current_platform
                load_general_plugins()
                kwargs = get_kwargs(ModelConfig)
                group = parser.add_argument_group(title="ModelConfig")
                group.add_argument("--name", "-n", **kwargs["name"])
                group.add_argument("--length", **kwargs["length"])
                group.add_argument("--dtype", **kwargs["dtype"])
                group.add_argument("--backend", **kwargs["backend"])
                group.add_argument("--enable-on", **kwargs["on"])
                group.add_argument("--inner-config", **kwargs["inner"])
                group.add_argument("--device", **kwargs["device"])
                parser.add_argument("--later", type=optional_type(json.loads), deprecated=True)
                parser.add_argument("--old", action="store_true", deprecated=True)
                parser.add_argument("--port", type=int, nargs="+")
                parser.add_argument("--tool-call-parser", type=str)
                parser.add_argument("--tool-parser-plugin", type=str)
                parser.add_argument("--reasoning-parser", type=str)
                current_platform.pre_register_and_update(parser)
                return parser
    """,
    "vllm/entrypoints/openai/cli_args.py": """
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        def make_arg_parser(parser: FlexibleArgumentParser) -> FlexibleArgumentParser:
            parser.add_argument("model_tag", nargs="?")
            return AsyncEngineArgs.add_cli_args(parser)
    """,
    "vllm/tool_parsers/__init__.py": """
        _TOOL_PARSERS_TO_REGISTER = {
            "openai": ("a", "A"),
            "hermes": ("b", "B"),
        }
    """,
    "vllm/reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER: dict = {'deepseek_r1': ('a', 'A')}",
    "vllm-1.2.3.dist-info/METADATA": "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2.3+cu129\n",
}
EXPECTED = """\
version: 1.2.3
flags:
  backend: {kind: text, known: [a, b]}
  device: {kind: text}
  dtype: {kind: choice, values: [auto, fp8]}
  enable-on: {kind: switch, negatable: true}
  inner-config: {kind: json, keys: {depth: integer, fuse: boolean, names: {kind: list, of: text}}}
  later:
    kind: json
    deprecated: "argument 'later' is deprecated"
    keys: {depth: integer, fuse: boolean, names: {kind: list, of: text}}
  length: {kind: integer, ge: 0, suffix: true}
  name: {kind: text, aliases: [-n]}
  old: {kind: switch, deprecated: "argument 'old' is deprecated"}
  port: {kind: list, of: integer}
  reasoning-parser: {kind: text, known: [deepseek_r1]}
  tool-call-parser: {kind: text, known: [hermes, openai], plugin: tool-parser-plugin}
  tool-parser-plugin: {kind: text}
env:
  boolean: [VLLM_FLAG]
  choice:
    VLLM_CASE: {values: [High], any_case: true}
    VLLM_LIST: {values: [a, b], many: true}
    VLLM_TRUE: {values: ["0", "false", "true"], any_case: true}
    VLLM_TWO: {values: ["0", "1"]}
    VLLM_WAY: {values: [fork, spawn]}
  integer: [VLLM_A, VLLM_PORT]
  json: [VLLM_JSON]
  level: [VLLM_LOGGING_LEVEL]
  number: [VLLM_SHARE]
  one: [VLLM_ONE]
  stream: [VLLM_LOGGING_STREAM]
  switch: [VLLM_ON]
  text: [CUDA_HOME, VLLM_ASKED, VLLM_B, VLLM_FILE, VLLM_NAMES, VLLM_NOT]
"""


def read(*words):
    return subprocess.run([sys.executable, TOOL, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture
def site(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path / "site"


@pytest.fixture
def wheel(site):
    path = site.parent / "vllm-1.2.3-cp38-abi3-manylinux1_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in FILES:
            archive.write(site / name, name)
    return path


def test_a_directory_and_a_wheel_give_the_same_table(site, wheel):
    done = read("1.2.3", "--site-packages", site)
    assert done.stderr == ""
    head, _line, body = done.stdout.partition("---\n")
    assert body == EXPECTED
    assert head.startswith("# What vLLM 1.2.3 accepts.")
    assert "# How it was read: its own argument code" in head
    assert read("1.2.3", "--wheel", wheel).stdout == done.stdout


def test_parsers_that_decorators_register_as_until_0_11(site):
    (site / "vllm/tool_parsers/__init__.py").unlink()
    folder = site / "vllm/entrypoints/openai/tool_parsers"
    folder.mkdir()
    (folder / "one.py").write_text(
        '@ToolParserManager.register_module("qwen3_xml")\nclass A: ...\n\n\n'
        '@ToolParserManager.register_module(["kimi_k2"])\nclass B: ...\n'
        '@ReasoningParserManager.register_module("qwen3")\nclass C: ...\n'
    )
    known = "{kind: text, known: [kimi_k2, qwen3_xml], plugin: tool-parser-plugin}"
    assert f"tool-call-parser: {known}" in read("1.2.3", "--site-packages", site).stdout


def test_another_release_than_asked_for(site):
    done = read("1.2.4", "--site-packages", site)
    assert done.returncode == 1
    assert "METADATA is vLLM 1.2.3, expected 1.2.4" in done.stderr


def test_directory_without_vllm(tmp_path):
    done = read("1.2.3", "--site-packages", tmp_path)
    assert done.returncode == 1
    assert "no vLLM there (vllm/envs.py is missing)" in done.stderr


def test_release_with_an_unknown_layout(site):
    (site / "vllm/entrypoints/openai/cli_args.py").unlink()
    done = read("1.2.3", "--site-packages", site)
    assert done.returncode == 1
    assert "no vLLM with a known command line; expected one of vllm.entrypoints.common.cli_args" in done.stderr


def test_wheel_that_is_none(tmp_path):
    (tmp_path / "x.whl").write_text("no")
    done = read("1.2.3", "--wheel", tmp_path / "x.whl")
    assert done.returncode == 1
    assert "File is not a zip file" in done.stderr


SITE = os.environ.get("VLLM_SITE_PACKAGES", "")
needs_release = pytest.mark.skipif(not SITE, reason="VLLM_SITE_PACKAGES names no installed or unpacked vLLM")


def installed():
    (metadata,) = Path(SITE).glob("vllm*.dist-info/METADATA")
    text = metadata.read_text()
    return next(line.split(": ")[1].partition("+")[0] for line in text.splitlines() if line.startswith("Version: "))


@needs_release
def test_the_bundled_table_is_what_the_tool_reads():
    version = installed()
    done = read(version, "--site-packages", SITE)
    assert done.stdout == (ROOT / "catalog" / "options" / f"{version}.yml").read_text()


@needs_release
@pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python that imports vLLM")
def test_the_real_parser_agrees():
    version = installed()
    env = {**os.environ, "PYTHONPATH": SITE, "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [os.environ["VLLM_PYTHON"], TOOL, version, "--real"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    real = yaml.safe_load(done.stdout[done.stdout.index("# What vLLM") :])
    ours = yaml.safe_load((ROOT / "catalog" / "options" / f"{version}.yml").read_text())
    # The one flag whose choices depend on the platform: a CPU build leaves its accelerators out.
    for table in (real, ours):
        table["flags"].pop("mm-processor-device", None)
    assert real == ours
