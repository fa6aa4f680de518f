# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the inventories of the scripts beside this file: one host that is the machine itself, or for pair.sh two."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Several chips without NVLink multicast, for a server that has other users.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
}  # fmt: skip
FEW_SIZES = [str(size) for size in (*(1 << n for n in range(9)), 96, 192, 384, 768, 512, 1024, 2048, 4096, 8192)]
TEAMS = {"product": "gold", "nightly": "batch"}
MODEL = sys.argv[1] if len(sys.argv) > 1 else "h200"
# Where run.sh has booted two hosts: the PCI devices of this one.
SYSFS = {"accelerator_sysfs_root": "/opt/sys"} if Path("/opt/sys").is_dir() else {}
NO_FUSION = {"compilation-config": {"pass_config": {"fuse_allreduce_rms": False}}}


def instance(preset: str, chips: list[int], port: int, **args: Any) -> dict[str, Any]:
    """Return an instance with random weights."""
    given = {
        "load-format": "dummy",
        "tensor-parallel-size": len(chips),
        **(NO_FUSION if len(chips) > 1 else {}),
        **args,
    }
    return {"recipe": "openai/gpt-oss-20b", "preset": preset, "chips": chips, "port": port, "args": given}


def write(name: str, more: dict[str, Any] | None = None, /, **instances: dict[str, Any]) -> None:
    """Write an inventory, whose host loses the instances that it does not name; ``more`` are variables of the host."""
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3.13",
        "weights_manifest_path": ["/carried/site/weights"],
        "vllm_verify_expect": "",
        "vllm_remove_unlisted": True,
        "vllm_instances": instances,
        **SYSFS,
        **(more or {}),
    }
    (HERE / f"{name}.yml").write_text(json.dumps({"inference": {"hosts": {"gpu-test": host}}}, indent=1))


def write_pair(name: str, **instances: dict[str, Any]) -> None:
    """Write an inventory of gpu-a and gpu-b with the same instances, and a gateway with two teams on gpu-a."""
    member = {
        "ansible_python_interpreter": "/usr/bin/python3.13",
        "accelerator_sysfs_root": "/opt/sys",
        # A gateway plans hosts that it does not ask.
        "accelerator": MODEL,
        "accelerator_count": 1,
        "weights_manifest_path": ["/carried/site/weights"],
        "vllm_verify_expect": "",
        "vllm_remove_unlisted": True,
        "vllm_instances": instances,
    }
    gateway = {
        "gateway_listen": "127.0.0.1",
        "gateway_port": 8080,
        "gateway_tls": "off",
        "gateway_clients": {team: {"key_file": f"/carried/keys/{team}.key", "team": team} for team in TEAMS},
        "gateway_teams": {team: {"class": name} for team, name in TEAMS.items()},
    }
    here = {"ansible_connection": "local", "gateway_host_address": "10.20.0.1"}
    there = {"ansible_host": "10.20.0.2", "ansible_user": "root"}
    # Of this visit alone: it proves nothing to anybody else.
    common = {"gateway_secret": hashlib.sha256(b"tests/gpu").hexdigest()}
    groups = {
        "all": {"vars": common},
        "inference": {"hosts": {"gpu-a": {**member, **here}, "gpu-b": {**member, **there}}},
        "gateways": {"hosts": {"gpu-a": {}}, "vars": gateway},
    }
    (HERE / f"{name}.yml").write_text(json.dumps(groups, indent=1))


def main() -> None:
    """Write all of them."""
    fork = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}
    write("presets-first", both={**instance("latency", [0, 1], 8030), "env": {**NO_MULTICAST, **fork}})
    big = instance("throughput", [0], 8010, **{"jit-monitor-verbose": True})
    write("presets-second", big={**big, "env": fork}, tuned={**instance("latency", [1], 8020), "env": fork})
    # For one.sh. FlashInfer's sampler would be compiled for 100 s at the first start.
    write("one-latency", tuned=instance("latency", [0], 8020))
    without = {"env": {"VLLM_USE_FLASHINFER_SAMPLER": "0"}}
    write("one-balanced", big={**instance("balanced", [0], 8010), **without})
    write("one-servers", big={**instance("balanced", [0], 8010, **{"api-server-count": 4}), **without})
    smoke = {"recipe": "baremetal/gpt-oss-smoke", "port": 8040, "args": {"gpu-memory-utilization": 0.3}, **without}
    container = {
        "vllm_runtime": "container",
        "vllm_image": "localhost/vllm:gpu-test",
        "container_runtime_source": "none",
        "container_runtime_toolkit": "none",
        "vllm_verify_expect": "The fleet is ready.",
    }
    for engine in ("podman", "docker"):
        for script in ("one", "starts"):
            write(f"{script}-{engine}", {**container, "container_runtime_engine": engine}, chat=smoke)
    # Two that share the chip. The right answer of the smoke model shows that its weights come back.
    shared = {"residents": "gpu0"}
    asleep = {"recipe": "baremetal/gpt-oss-smoke", "port": 8040, **without, **shared}
    write("one-shared", big={**instance("balanced", [0], 8010), **without, **shared}, chat=asleep)
    # For compare.sh: what the presets would serve, each as on a chip of its own.
    presets = ("plain", "balanced", "latency", "throughput")
    declared = {"accelerator": MODEL, "accelerator_count": len(presets)}
    plans = {name: instance(name, [chip], 8010 + chip) for chip, name in enumerate(presets)}
    del plans["plain"]["preset"]
    write("compare-plans", declared, **plans)
    on = {"env": {"VLLM_USE_FLASHINFER_SAMPLER": "0"}}
    write("compare-chat", {"vllm_verify_expect": "The fleet is ready."},
          chat={"recipe": "baremetal/gpt-oss-smoke", "port": 8040, "chips": [0], **on})  # fmt: skip
    write("compare-real", real={"recipe": "real/SmolLM2-135M-Instruct", "port": 8050, "chips": [1],
                                "args": {"gpu-memory-utilization": 0.2}, **on})  # fmt: skip
    starts = {
        "tuned": instance("latency", [1], 8020),
        "big": instance("balanced", [1], 8010),
        "throughput": instance("throughput", [1], 8010),
    }
    for name, one in starts.items():
        write(f"compare-{name}", **{name: {**one, **on}})
    # For starts.sh: one instance after the other on one chip.
    for preset in ("latency", "balanced", "throughput"):
        write(f"starts-{preset}", **{preset: {**instance(preset, [0], 8010), **on}})
    # Fewer sizes of graphs than the preset has, and the preset with a short warm-up and without one.
    fewer = instance("throughput", [0], 8010, **{"cudagraph-capture-sizes": FEW_SIZES})
    write("starts-throughput-fewer", throughput={**fewer, **on})
    preset = {**instance("throughput", [0], 8010), **on}
    write("starts-throughput-short", {"vllm_warmup_seconds": 3}, throughput=preset)
    write("starts-throughput-cold", {"vllm_warmup": False}, throughput=preset)
    # For pair.sh: one on each chip behind a gateway, then two that share each chip.
    chat = {**instance("throughput", [0], 8010, **{"max-num-seqs": 256}), **on, "host": "0.0.0.0"}
    write_pair("pair-fair", chat=chat)
    small = {
        "recipe": "baremetal/gpt-oss-smoke",
        "port": 8040,
        "host": "0.0.0.0",
        "args": {"enforce-eager": True},
        **on,
        **shared,
    }
    write_pair("pair-scale", chat={**chat, **shared, "scale": {"min": 1, "max": 2}}, small=small)
    heavy = {"weights_manifest_path": ["/carried/site/heavy"], "weights_sources": ["file:///carried/heavy"],
             "vllm_recipe_path": ["/carried/site/recipes"]}  # fmt: skip
    few = {"max-model-len": 8192, "max-num-seqs": 8, "max-cudagraph-capture-size": 8}
    more = {**few, "max-num-seqs": 16, "max-cudagraph-capture-size": 16}
    for model in ("dense", "dense-32b"):
        held = {"recipe": f"real/{model}", "chips": [0], "port": 8010, "args": few, **on}
        write(f"starts-{model}-files", heavy, held=held)
        write(f"starts-{model}-held", heavy, held={**held, "preload": True})
        write(f"starts-{model}-changed", heavy, held={**held, "preload": True, "args": more})


if __name__ == "__main__":
    main()
