# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory that the plan computes against the logs of starts that others published."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.engine_memory import Engine
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.memory import Request
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import shape_of

GIB = 1024**3
CHIPS = yaml.safe_load((Path(__file__).parents[5] / "catalog/accelerators/nvidia.yml").read_text(encoding="utf-8"))[
    "models"
]
PUBLISHED = yaml.safe_load((Path(__file__).parents[4] / "fixtures/published_starts.yml").read_text(encoding="utf-8"))
STARTS = [pytest.param(start, id=f"{start['model']}-{number}") for number, start in enumerate(PUBLISHED["starts"])]


def request_of(start):
    model, chip = PUBLISHED["models"][start["model"]], start["chip"]
    config = dict(model["config"])
    if "alternating" in config:
        config["layer_types"] = config.pop("alternating") * (config["num_hidden_layers"] // 2)
    shape = shape_of(config)
    capability = CHIPS.get(chip["name"], {}).get("compute_capability")
    accelerator = Accelerator(chip["name"], chip["stack"], "", "", 8, chip["mib"], compute_capability=capability)
    engine = Engine(chip["release"], chip.get("flashinfer", True))
    precision = model.get("precision", "")
    return Request(shape, model.get("bytes", 0), start["args"], accelerator, shape.context, precision, engine)


@pytest.mark.parametrize("start", STARTS)
def test_what_the_log_says(start):
    request, log = request_of(start), start["log"]
    footprint = request.footprint()
    if "weights_gib" in log:
        assert footprint.weights / GIB == pytest.approx(log["weights_gib"], rel=0.05)
    if "requests" in log:
        length, number = log["requests"]
        cache = (
            log["cache_gib"] * GIB if "cache_gib" in log else request.room() - footprint.weights - footprint.overhead
        )
        # Releases before 0.28 padded the blocks of DeepSeek V4; without GiB in the log all other memory counts too.
        close = 0.05 if request.shape.layers[0].page else 0.02
        assert cache / request.footprint(length).cache == pytest.approx(number, rel=close)
    if footprint.weights and "cache_gib" in log and request.room():
        room = (request.room() - footprint.weights - footprint.overhead) / GIB
        # CUDA has 0.5 GiB less of a chip than nvidia-smi, which counts where little is left.
        assert room == pytest.approx(log["cache_gib"], rel=0.1, abs=0.5)
    if "fits" in start:
        assert request.fits() == start["fits"]


def test_the_table_has_each_stack_and_starts_that_failed():
    assert len(STARTS) == 42
    assert {start["chip"]["stack"] for start in PUBLISHED["starts"]} == {"cuda", "rocm", "cann", "xpu"}
    assert sum(start.get("fits") is False for start in PUBLISHED["starts"]) == 7
