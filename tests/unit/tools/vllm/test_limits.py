# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import textwrap

import pytest

from tools.vllm.limits import Limits

FILES = {
    "config/cache.py": """
        from pydantic import Field
        CacheDType = Literal["auto", "fp8"]

        class Base:
            inherited: int = Field(default=1, ge=1, le=256)

        class CacheConfig(Base):
            block_size: int = Field(default=None, gt=0)
            share: float = Field(default=0.92, gt=0, le=1)
            count: PositiveInt | None = None
            annotated: Annotated[int, Field(ge=-1)] = 3
            cache_dtype: CacheDType | str = "auto"
            plain: int = 1
            checked: int = 0
            chosen: int = Field(default=-1, ge=-1)
            nested: int = 1
            asserted: int = 1

            def validate(self):
                if not isinstance(self.chosen, int) or self.chosen < 1:
                    raise ValueError("chosen")
                if self.checked <= 0:
                    raise ValueError("checked")
                if self.plain > 1 and self.count > 4:
                    raise ValueError("only together")
                if self.plain:
                    if self.nested < 3:
                        raise ValueError("only then")
                if self.plain < 5:
                    self.plain = 5

            def sizes(self, asserted):
                if self.plain:
                    assert asserted >= 2, "at least two"

        Worded = Literal["ray", "mp"]

        class Level(IntEnum):
            O0 = 0
            O1 = 1

        class Mode(enum.Enum):
            NONE = 0
            BOTH = (1, 0)

        class Kernel(str, Enum):
            TRITON = "triton"
            CUTE = "cute"

        class Place(Enum):
            HERE = "a.b"

        class AttentionConfig:
            level: Level = 1
            mode: Mode | None = None
            kernel: Kernel = "cute"
            place: Place = "a.b"
            backend: AttentionBackendEnum | None = None
            cache: CacheConfig = None

        class Order:
            first: list[str] = None
            @field_validator("*", mode="before")
            def read(cls, value):
                return value.split(",")

        class Kernels:
            backend_word: Word = "one"
            exact: Word = "one"
            order: Order = None
            @field_validator("backend_word", "automatic", mode="before")
            def fold(cls, value):
                return None if value == "auto" else value.lower().replace("-", "_")
            capital: Word = "one"
            @field_validator("capital", mode="before")
            def rise(cls, value):
                return Word[value.upper()]
            automatic: AttentionBackendEnum = None
            worded: Worded | None = None
            @field_validator("exact")
            def check(cls, value):
                return value.lower()

        class Both:
            kernels: Kernels = None
    """,
    "engine/arg_utils.py": """
        _DTYPE = (
            "--cache-dtype is deprecated and will "
            "be removed."
        )

        class EngineArgs:
            count: int = 1

            def add_cli_args(parser):
                cache_kwargs = get_kwargs(CacheConfig)
                attention_kwargs = get_kwargs(AttentionConfig)
                both_kwargs = get_kwargs(Both)
                group.add_argument("--block-size", **cache_kwargs["block_size"])
                group.add_argument("--kv-dtype", "-kv", **{**cache_kwargs["cache_dtype"], "default": None})
                group.add_argument("--old", deprecated=True)
    """,
    "entrypoints/common/cli_args.py": """
        class FrontendArgs:
            interval: int = 0

            def add_cli_args(parser):
                frontend_kwargs = get_kwargs(FrontendArgs)

        def validate_parsed_serve_args(args):
            if getattr(args, "interval", 0) < 0:
                raise ValueError("interval")
    """,
    "v1/attention/backends/registry.py": """
        class AttentionBackendEnum(Enum):
            FLASH_ATTN = "a.b"
            CUSTOM = None

            def path(self):
                LOCAL = 1
    """,
    "v1/attention/backends/flash.py": """
        class Backend:
            def get_supported_kernel_block_sizes():
                if current_platform.is_device_capability_family(90):
                    return [64 if current_platform.is_device_capability_family(90) else 128]
                return [1, MultipleOf(16), 48]
    """,
}


@pytest.fixture
def limits(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return Limits(tmp_path)


@pytest.mark.parametrize(
    ("flag", "entry", "expected"),
    [
        ("block-size", {"kind": "integer"}, {"kind": "integer", "gt": 0, "step": 16}),
        ("share", {"kind": "number"}, {"kind": "number", "gt": 0, "le": 1}),
        ("count", {"kind": "integer"}, {"kind": "integer", "gt": 0}),
        ("annotated", {"kind": "integer"}, {"kind": "integer", "ge": -1}),
        ("inherited", {"kind": "integer"}, {"kind": "integer", "ge": 1, "le": 256}),
        ("plain", {"kind": "integer"}, {"kind": "integer"}),
        # By the code that checks them.
        ("checked", {"kind": "integer"}, {"kind": "integer", "gt": 0}),
        ("chosen", {"kind": "integer", "words": ["auto"]}, {"kind": "integer", "ge": 1, "words": ["-1", "auto"]}),
        ("nested", {"kind": "integer"}, {"kind": "integer"}),
        ("asserted", {"kind": "integer"}, {"kind": "integer", "ge": 2}),
        ("interval", {"kind": "integer"}, {"kind": "integer", "ge": 0}),
        ("elsewhere", {"kind": "integer"}, {"kind": "integer"}),
        # By the name of the field, where the flag has another one.
        ("kv-dtype", {"kind": "text"}, {"kind": "text", "known": "CacheDType", "closed": True, "exact": True}),
        # The parser's own choices stay.
        ("kv-dtype", {"kind": "choice", "values": ["auto"]}, {"kind": "choice", "values": ["auto"]}),
        ("backend", {"kind": "text"}, {"kind": "text", "known": "AttentionBackendEnum", "closed": True}),
        ("level", {"kind": "text"}, {"kind": "choice", "values": ["0", "1"]}),
        ("level", {"kind": "any"}, {"kind": "choice", "values": ["O0", "O1", "0", "1"]}),
        ("mode", {"kind": "any"}, {"kind": "choice", "values": ["NONE", "BOTH", "0"]}),
        ("kernel", {"kind": "text"}, {"kind": "choice", "values": ["cute", "triton"]}),
        ("place", {"kind": "text"}, {"kind": "text"}),
        ("old", {"kind": "text"}, {"kind": "text", "deprecated": "argument 'old' is deprecated"}),
        ("cache-dtype", {"kind": "text"}, "--cache-dtype is deprecated and will be removed."),
        (
            "kernels",
            {
                "kind": "json",
                "keys": {
                    "backend_word": {"kind": "choice", "values": ["one"]},
                    "capital": {"kind": "choice", "values": ["ONE"]},
                    "exact": {"kind": "choice", "values": ["one"]},
                    "automatic": "any",
                    "worded": "text",
                    "order": {"kind": "json", "keys": {"first": {"kind": "list", "of": "text"}}},
                },
            },
            {
                "kind": "json",
                "keys": {
                    "backend_word": {"kind": "choice", "values": ["one"], "any_case": True, "dashes": True},
                    "capital": {"kind": "choice", "values": ["ONE"], "any_case": True},
                    "exact": {"kind": "choice", "values": ["one"]},
                    "automatic": {"kind": "text", "known": "AttentionBackendEnum", "closed": True, "words": ["auto"]},
                    "worded": {"kind": "choice", "values": ["mp", "ray"]},
                    "order": {"kind": "json", "keys": {"first": {"kind": "list", "of": "text", "text": True}}},
                },
            },
        ),
        (
            "cache",
            {"kind": "json", "keys": {"share": "number", "plain": "integer", "cache_dtype": "any"}},
            {
                "kind": "json",
                "keys": {
                    "share": {"kind": "number", "gt": 0, "le": 1},
                    "plain": "integer",
                    "cache_dtype": {"kind": "text", "known": "CacheDType", "closed": True, "exact": True},
                },
            },
        ),
    ],
)
def test_limits_of_a_flag(limits, flag, entry, expected):
    found = limits.apply({flag: entry})[flag]
    assert found["deprecated"] == expected if isinstance(expected, str) else found == expected


def test_names_that_a_type_has(limits):
    assert limits.types == {"AttentionBackendEnum": ["CUSTOM", "FLASH_ATTN"], "CacheDType": ["auto", "fp8"]}
