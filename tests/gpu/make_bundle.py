#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the bundle that a GPU machine without a network needs for tests/gpu/run.sh, in parts of 43 MiB: OUT/part-NN.

It holds a root file system of Debian 13, the wheels of vLLM 0.33.0 (with its PyTorch) and of vLLM 0.25.1 with an index,
ansible-core, the built collection, the smoke model and the site's files. CUDA's libraries, Python 3.12 and the PyTorch
of 0.25.1 are taken from the machine: a wheel of one line leads to the latter. Large wheels are packed again without
compression, because zstd then makes the bundle a third smaller; their locks have the hashes of what is carried.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import (
    Pin,
    parse_lock,
    render_lock,
)

HERE = Path(__file__).resolve().parent
REQUIREMENTS = TOP / "catalog/releases/requirements"
# A call carries 64 MiB, the checkout included.
PART = 43 << 20
# Wheels above this size are packed again without compression.
LARGE = 1 << 20
# Where run.sh links the machine's PyTorch and what else the lock has, for Python 3.12.
TORCH = "/opt/machine-torch"
# CUDA's libraries, which run.sh adds to the linker's path, and kernels that neither gpt-oss nor the smoke model needs.
LEFT_OUT = {
    "cuda-toolkit", "nvidia-cublas", "nvidia-cuda-cupti", "nvidia-cuda-nvrtc", "nvidia-cudnn-cu13", "nvidia-cufft",
    "nvidia-cufile", "nvidia-cusolver", "nvidia-cusparse", "nvidia-cusparselt-cu13", "nvidia-cutlass-dsl-libs-cu12",
    "nvidia-nvjitlink", "nvidia-nvshmem-cu13", "nvidia-nvtx", "flashinfer-cubin", "pynvvideocodec", "tilelang",
    "tokenspeed-mla", "tokenspeed-triton", "torchcodec", "z3-solver",
}  # fmt: skip
# What else 0.25.1 takes from the machine's PyTorch environment, and further kernels.
LEFT_OUT_25 = {
    "cuda-bindings", "cuda-core", "cuda-pathfinder", "cuda-python", "cuda-tile", "humming-kernels", "llvmlite",
    "nccl4py", "networkx", "numba", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-cu13", "nvidia-nccl-cu13", "opencv-python-headless", "quack-kernels", "sympy", "torch",
    "torch-c-dlpack-ext", "torchaudio", "torchvision", "triton",
}  # fmt: skip
# The lock of each release file of the site, its wheels that stay here, and whether it uses the machine's PyTorch.
RELEASES = {
    "gpu-test": ("0.33.0-cuda-cp312-x86_64.txt", LEFT_OUT, False),
    "gpu-test-25": ("0.25.1-cuda-cp312-x86_64.txt", LEFT_OUT | LEFT_OUT_25, True),
}
# What runs inside of the Debian.
INSIDE = (
    "setup.sh", "measure.sh", "inside.sh", "two.sh", "big.sh", "first_minute.sh", "variants.sh", "presets.sh",
    "load.py", "follow.sh", "shape.py", "answers.py", "sweep.py", "group.sh", "faults.py", "one.sh", "gateway.py",
    "compare.sh", "real.py", "starts.sh", "pair.sh", "fair.py", "containers.sh",
)  # fmt: skip
ANSIBLE = "ansible-core==2.19.14"
# The encodings come out of this wheel.
HARMONY = "oss-harmony==0.0.11"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "python3", "gcc", "g++", "libc6-dev", "iproute2", "kmod", "pciutils", "curl",
    "procps", "libnuma1", "sudo", "ca-certificates", "libexpat1", "libffi8", "libsqlite3-0", "openssh-server",
    "openssh-client", "nftables", "iputils-ping", "podman", "crun", "docker.io", "docker-cli",
    "haproxy",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="directory for what is made and downloaded; kept for the next time")
    parser.add_argument("out", type=Path, help="directory of the parts, which git ignores, such as .gpu")
    parser.add_argument("--only", choices=sorted(RELEASES), help="carry this release alone, which halves the bundle")
    parser.add_argument("--container-toolkit", type=Path, help="directory of nvidia-ctk and nvidia-cdi-hook")
    parser.add_argument("--real-models", action="store_true", help="carry the models with real weights, 360 MB")
    arguments = parser.parse_args()
    stage = arguments.work / "stage"
    for name in set(RELEASES) - {arguments.only or name for name in RELEASES}:
        del RELEASES[name]
    if arguments.real_models:
        run(sys.executable, "tools/real_models/build.py", stage)
    if arguments.container_toolkit:
        shutil.copytree(arguments.container_toolkit, stage / "ctk", dirs_exist_ok=True)
    for step in (make_root, make_mirror, fetch_ansible, build_collection, build_model, copy_site):
        print(f"{step.__name__} ...", flush=True)
        step(stage)
    split(stage, arguments.out)
    return 0


def run(*command: object, **more: str) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=TOP, env={**os.environ, **more})


def make_root(stage: Path) -> None:
    """Make the root file system of Debian 13, without documentation."""
    target = stage / "rootfs.tar.xz"
    if target.exists():
        return
    stage.mkdir(parents=True, exist_ok=True)
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    plain = stage.parent / "rootfs.tar"
    run("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", *excluded, "trixie", plain,
        "http://deb.debian.org/debian", TMPDIR=str(stage.parent))  # fmt: skip
    run("xz", "-T0", "-2", "--keep", plain)
    plain.with_suffix(".tar.xz").rename(target)


def make_mirror(stage: Path) -> None:
    """Fetch the wheels that are carried, and write their index and the lock of each release."""
    mirror, requirements = stage / "mirror", stage / "site/releases/requirements"
    requirements.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(mirror, ignore_errors=True)
    (mirror / "wheels").mkdir(parents=True)
    for release, (lock, left_out, machine_torch) in RELEASES.items():
        target = requirements / f"{release}-cp312-x86_64.txt"
        make_lock(target, REQUIREMENTS / lock, left_out, mirror / "wheels", machine_torch)
    run(sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--only-binary=:all:", "--python-version=3.12",
        "--platform=manylinux_2_17_x86_64", "--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64",
        "--dest", stage / "harmony", HARMONY)  # fmt: skip
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": {"root": str(mirror)}})
    module = "ansible_collections.baremetal.inference.plugins.modules.wheel_index"
    subprocess.run([sys.executable, "-m", module], input=arguments, text=True, check=True,
                   env={**os.environ, "PYTHONPATH": str(TOP / ".collections")}, stdout=subprocess.DEVNULL)  # fmt: skip


def make_lock(target: Path, source: Path, left_out: set[str], wheels: Path, machine_torch: bool) -> None:
    """Fetch the wheels of a lock that are carried into ``wheels``, and write the lock that names them."""
    lock = parse_lock(source.read_text(encoding="utf-8"))
    pins = [pin for name, pin in lock.pins.items() if name not in left_out]
    comment = f"Made by tests/gpu/make_bundle.py from {source.name}, without what the machine has."
    downloads = wheels.parents[2] / "downloads" / target.stem
    downloads.mkdir(parents=True, exist_ok=True)
    target.write_text(render_lock("cp312-x86_64", comment, pins), encoding="utf-8")
    run(sys.executable, "tools/vllm/fetch_wheels.py", target, downloads)
    repacked: dict[str, str] = {}
    for wheel in sorted((downloads / "wheels").glob("*.whl")):
        shutil.copy(wheel, wheels)
        if wheel.stat().st_size > LARGE:
            repacked[sha256(wheel.read_bytes()).hexdigest()] = store(wheel, wheels / wheel.name)
    carried = [
        dataclasses.replace(pin, hashes=frozenset(repacked.get(each, each) for each in pin.hashes)) for pin in pins
    ]
    if machine_torch:
        carried.append(Pin("machine-torch", "1", frozenset([make_pointer(wheels)])))
    target.write_text(render_lock("cp312-x86_64", comment, carried), encoding="utf-8")


def store(wheel: Path, target: Path) -> str:
    """Write a wheel without compression, with the same members; return its sha256."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as stored:
        for member in source.infolist():
            plain = zipfile.ZipInfo(member.filename)
            plain.external_attr = member.external_attr
            stored.writestr(plain, source.read(member))
    return sha256(target.read_bytes()).hexdigest()


def make_pointer(wheels: Path) -> str:
    """Write the wheel whose one line leads Python to the machine's PyTorch last of all; return its sha256."""
    path, info = wheels / "machine_torch-1-py3-none-any.whl", "machine_torch-1.dist-info"
    files = {
        "machine_torch.pth": f"{TORCH}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: machine-torch\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests/gpu\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,{len(text)}\n" for name, text in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            # The same bytes each time, so that the lock stays as it is.
            archive.writestr(zipfile.ZipInfo(name), text)
    return sha256(path.read_bytes()).hexdigest()


def fetch_ansible(stage: Path) -> None:
    """Fetch ansible-core for the Python of Debian 13."""
    target = stage / "ansible"
    if target.exists():
        return
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28, 34)]
    run(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.13", *platforms,
        "--platform=manylinux2014_x86_64", "--dest", target, ANSIBLE)  # fmt: skip


def build_collection(stage: Path) -> None:
    """Build the collection of this checkout."""
    for old in (stage / "collection").glob("*.tar.gz"):
        old.unlink()
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    run(galaxy, "collection", "build", "--force", "--output-path", stage / "collection", TOP)


def build_model(stage: Path) -> None:
    """Build the smoke model, packed: most of its weights are alike."""
    target = stage / "weights.tar.xz"
    if target.exists():
        return
    wheel = next((stage / "harmony").glob("oss_harmony-*.whl"))
    made = stage.parent / "made"
    run(sys.executable, "tools/smoke_model/build.py", made, "--vocabulary", wheel)
    with tarfile.open(target, "w:xz", preset=2) as archive:
        archive.add(made / "weights", "weights")


def copy_site(stage: Path) -> None:
    """Copy the site's files and the scripts that run inside."""
    for source in sorted((HERE / "site").rglob("*")):
        if source.is_file():
            target = stage / "site" / source.relative_to(HERE / "site")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    for name in INSIDE:
        (stage / name).write_bytes((HERE / name).read_bytes())
    # The gateway of the tests, which the collection does not have.
    (stage / "fakes").mkdir(exist_ok=True)
    shutil.copy(TOP / "tests/fakes/gateways.py", stage / "fakes")
    # What real.py asks.
    shutil.copy(TOP / "catalog/evaluation/basics.jsonl", stage / "site")
    # What sweep.py has measured on earlier visits.
    (stage / "site/measured").mkdir(exist_ok=True)
    for source in sorted((HERE / "results").glob("*/sweep/*.json")):
        (stage / "site/measured" / source.name).write_bytes(source.read_bytes())


def split(stage: Path, out: Path) -> None:
    """Pack the stage, compress it, and cut it into parts; zstd travels along as the first of them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("part-*"):
        old.unlink()
    whole = stage.parent / "bundle.tar.zst"
    packer = subprocess.Popen(["tar", "-C", stage, "-cf", "-", *sorted(os.listdir(stage))], stdout=subprocess.PIPE)
    with packer:
        run_from(packer, "zstd", "-q", "-f", "-6", "--long=27", "-T2", "-o", whole)
    shutil.copy(str(shutil.which("zstd")), out / "zstd")
    with whole.open("rb") as file:
        for number, data in enumerate(iter(lambda: file.read(PART), b"")):
            (out / f"part-{number:02d}").write_bytes(data)
    print(f"{out}: {len(list(out.glob('part-*')))} parts, {whole.stat().st_size / 1e6:.0f} MB")


def run_from(source: subprocess.Popen[bytes], *command: object) -> None:
    """Run a command that reads what another one writes."""
    subprocess.run([str(word) for word in command], check=True, stdin=source.stdout)


if __name__ == "__main__":
    sys.exit(main())
