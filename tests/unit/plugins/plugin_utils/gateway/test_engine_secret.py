# SPDX-License-Identifier: GPL-3.0-or-later
"""The secret between gateways and instances: made once, the same for all hosts, and in no message."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.engine_secret import (
    SecretError,
    engine_secret,
)

GOOD, OTHER = "a" * 32, "b._~+/=-" * 4


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "state" / "gateway-secret")


def test_the_first_run_makes_it_and_all_others_read_it(path):
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _n: engine_secret("", path, True), range(64)))
    (made,) = found
    assert re.fullmatch("[0-9a-f]{64}", made) and engine_secret("", path, False) == made
    assert oct(os.stat(path).st_mode)[-3:] == "600" and oct(os.stat(os.path.dirname(path)).st_mode)[-3:] == "700"
    assert os.listdir(os.path.dirname(path)) == ["gateway-secret"]


def test_check_mode_makes_nothing(path):
    assert len(engine_secret("", path, False)) == 64 and not os.path.exists(os.path.dirname(path))


def test_without_a_state_directory_and_the_option_there_is_none():
    assert engine_secret("", "", True) == ""


@pytest.mark.parametrize("given", [GOOD, f"{GOOD} {OTHER}", f"{GOOD}\n{OTHER}\n"])
def test_the_option_counts_before_the_file(path, given):
    assert engine_secret(given, path, True) == " ".join(given.split()) and not os.path.exists(path)


@pytest.mark.parametrize(
    "bad", ["short", f"{GOOD} {GOOD} {GOOD}", " ", "a" * 129, "a" * 31 + "$", "a" * 31 + '"', GOOD + ",x"]
)
def test_what_would_not_arrive_is_refused_without_its_text(path, bad):
    os.makedirs(os.path.dirname(path))
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(bad)
    for given, where in ((bad, "gateway_secret"), ("", path)):
        with pytest.raises(SecretError, match=f"^{where}: found words of .* expected one of 32 to 128") as caught:
            engine_secret(given, path, True)
        assert bad not in str(caught.value) or not bad.strip()


def test_a_file_that_others_can_read_is_refused(path):
    secret = engine_secret("", path, True)
    os.chmod(path, 0o640)
    with pytest.raises(SecretError, match="found the mode 0640, expected 0600") as caught:
        engine_secret("", path, True)
    assert secret not in str(caught.value)
