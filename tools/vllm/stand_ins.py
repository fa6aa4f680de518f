# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for names of a release's sources that read_options does not rebuild."""

from __future__ import annotations

import types
from typing import Any, Iterator


class StandInType(type):
    """The type of stand-ins: classes that can be called, subscripted and iterated (empty), and have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # A decorator without arguments of its own returns its function.
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return args[0]
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __contains__(cls, item: Any) -> bool:
        return False

    def __bool__(cls) -> bool:
        return False

    def __enter__(cls) -> Any:
        return cls

    def __exit__(cls, *args: object) -> None:
        return None


def stand_in(name: str) -> Any:
    """Return a stand-in called ``name``, a class that the argument code does not take for a built-in type."""
    return StandInType(name, (), {"__module__": "vllm"})


class _Inner:
    """pydantic's wrappers that do not change the type: ``SkipValidation[X]`` is X."""

    def __class_getitem__(cls, item: Any) -> Any:
        return item


class Platform:
    """The platform: CUDA's and ROCm's device is "cuda", a choice of --mm-processor-device from 0.32 on."""

    device_type = "cuda"

    def __getattr__(self, name: str) -> Any:
        return stand_in(name)


PYDANTIC: dict[str, Any] = {
    "SkipValidation": _Inner,
    "InstanceOf": _Inner,
    "NonNegativeInt": int,
    "PositiveInt": int,
    "NonNegativeFloat": float,
    "PositiveFloat": float,
}
