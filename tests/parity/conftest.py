# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parity tests stand on. Where vLLM cannot be fetched they are skipped, with PARITY_REQUIRED=1 they fail."""

from __future__ import annotations

import os

import pytest

from tests.parity.engine import manifests, start_engines
from tests.parity.real import NEWEST, start_all
from tools.vllm.fetch_vllm_release import FetchError, sources


def fetched(fetch, *arguments):
    try:
        return fetch(*arguments)
    except FetchError as exc:
        if os.environ.get("PARITY_REQUIRED"):
            raise
        pytest.skip(f"vLLM cannot be fetched here: {exc}")


@pytest.fixture(scope="session")
def real_parsers():
    """The real parsers by release."""
    parsers = fetched(start_all)
    yield parsers
    for parser in parsers.values():
        parser.stop()


@pytest.fixture(scope="session")
def real_engines():
    """The configuration steps by release."""
    engines = fetched(start_engines)
    yield engines
    for engine in engines.values():
        engine.stop()


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A directory with manifests of the models of shapes.yml."""
    return manifests(tmp_path_factory.mktemp("manifests"))


@pytest.fixture(scope="session")
def upstream_recipes():
    """The directory recipes/models of vLLM 0.33.0's source distribution."""
    return fetched(sources, NEWEST) / "recipes" / "models"
