# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import stat

import pytest

from tests.fakes.wheelhouse import run_module

# Does what the environment's Python does with the module's program: compiles into the cache that the variables name.
PYTHON = """#!/bin/sh
case "$3" in *gen_sampling_module*build_and_load*jit_library_path*) ;; *) echo "another program" >&2; exit 2 ;; esac
place="$FLASHINFER_WORKSPACE_BASE/.cache/flashinfer/1/90a/cached_ops/sampling"
mkdir -p "$place"
echo "$FLASHINFER_CUDA_ARCH_LIST by $CUDA_HOME, chips: $CUDA_VISIBLE_DEVICES." > "$place/sampling.so"
echo "some words of ninja"
echo "$place/sampling.so"
"""
BROKEN = "#!/bin/sh\necho 'ninja: build stopped' >&2\necho 'nvcc: not found' >&2\nexit 1\n"


@pytest.fixture
def environment(tmp_path):
    class Environment:
        path = tmp_path / "0.32.0-cuda-0123456789ab"
        package = path / "lib/python3.12/site-packages/flashinfer"
        place = package / "data/aot/sampling"

        def python(self, program):
            (self.path / "bin/python").write_text(program)
            (self.path / "bin/python").chmod(0o755)

        def ensure(self, capability="9.0", **arguments):
            return run_module(
                "flashinfer_sampler",
                path=str(self.path),
                compute_capability=capability,
                environment={"CUDA_HOME": "/opt/cuda"},
                **arguments,
            )

        def files(self):
            return sorted(path.relative_to(self.package).as_posix() for path in self.package.rglob("*"))

    made = Environment()
    (made.path / "bin").mkdir(parents=True)
    (made.package / "data").mkdir(parents=True)
    made.python(PYTHON)
    return made


COMPLETE = ["data", "data/aot", "data/aot/sampling", "data/aot/sampling/compute_capability"]


def test_compiles_once_where_flashinfer_looks_first(environment):
    first = environment.ensure()
    assert (first["rc"], first["changed"]) == (0, True)
    assert first["library"] == str(environment.place / "sampling.so")
    # The chips are hidden, because running instances may fill them.
    assert (environment.place / "sampling.so").read_text() == "9.0 by /opt/cuda, chips: .\n"
    assert environment.files() == [*COMPLETE, "data/aot/sampling/sampling.so"]
    for path in (environment.place, environment.place / "sampling.so"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    environment.python(BROKEN)
    assert environment.ensure()["changed"] is False


def test_check_mode_says_what_would_be_done_and_does_nothing(environment):
    found = environment.ensure(_ansible_check_mode=True)
    assert (found["changed"], found["diff"]) == (True, {"before": "", "after": "9.0\n"})
    assert environment.files() == ["data"]
    environment.ensure()
    assert environment.ensure(_ansible_check_mode=True)["changed"] is False
    environment.path = environment.path.with_name("not-made-yet")
    assert environment.ensure(_ansible_check_mode=True)["changed"] is True


def test_other_chips_get_another_library(environment):
    environment.ensure()
    found = environment.ensure("8.9")
    assert (found["changed"], found["diff"]) == (True, {"before": "9.0\n", "after": "8.9\n"})
    assert (environment.place / "sampling.so").read_text().startswith("8.9 ")


def test_a_library_of_a_package_stays(environment):
    environment.place.mkdir(parents=True)
    (environment.place / "sampling.so").write_text("prebuilt")
    assert environment.ensure()["changed"] is False
    assert (environment.place / "sampling.so").read_text() == "prebuilt"


def test_an_interrupted_compilation_is_done_again(environment):
    environment.place.mkdir(parents=True)
    (environment.place / "compute_capability").write_text("9.0\n")
    (environment.package / "data/.sampler-abc/half").mkdir(parents=True)
    assert environment.ensure()["changed"] is True
    assert environment.files() == [*COMPLETE, "data/aot/sampling/sampling.so"]


def test_a_failed_compilation_says_what_to_do_and_leaves_nothing(environment):
    environment.python(BROKEN)
    found = environment.ensure()
    assert found["rc"] == 1
    assert found["msg"] == (
        f"{environment.path}: FlashInfer's sampler cannot be compiled: ninja: build stopped / nvcc: not found; with "
        "vllm_compile_sampler: false the first start of each instance compiles it"
    )
    assert environment.files() == ["data"]


@pytest.mark.parametrize("check", [True, False])
def test_an_environment_without_flashinfer_is_refused(environment, check):
    environment.package.rename(environment.package.with_name("other"))
    assert "has no FlashInfer" in environment.ensure(_ansible_check_mode=check)["msg"]
