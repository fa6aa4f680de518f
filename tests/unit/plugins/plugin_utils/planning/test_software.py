# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError, SiteSettings
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.software import choose_software

H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, 141 * 1024)
MI300X = Accelerator("mi300x", "rocm", "gfx942", "amd", 8, 192 * 1024)
CPU = Accelerator("cpu", "cpu", "cpu", "cpu", 1, 8 * 1024)
SITE = SiteSettings("0.33.0", "/srv/models", "/srv/encodings", "/var/cache/vllm", "/opt/vllm", 60)
STACK = {"runtime": "container", "image": "vllm/vllm-openai:v0.33.0", "cuda": "13.0.3"}
WHERE = "vllm_instances.chat"


def software(model=None, accelerator=H200, variant=None, runtime="container", site=None, **sections):
    recipe = {"model": {"model_id": "org/model", **(model or {})}, **sections}
    settings = SiteSettings(**{**SITE.__dict__, **(site or {})})
    return choose_software(recipe, variant or {}, accelerator, STACK, runtime, "0.33.0", "0.33.0", settings, WHERE)


def refusal(*arguments, **options):
    with pytest.raises(PlanError) as caught:
        software(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("image", "accelerator", "found"),
    [
        # Upstream's rule: a plain text is NVIDIA's.
        ("vllm/vllm-openai:minimax-m3", H200, "vllm/vllm-openai:minimax-m3"),
        ("vllm/vllm-openai:minimax-m3", MI300X, None),
        ({"nvidia": "a/b:c", "amd": "d/e:f"}, MI300X, "d/e:f"),
        ({"nvidia": {"cu129": "a/b:old", "cu130": "a/b:new"}}, H200, "a/b:new"),
        ({"cu129": "a/b:old"}, H200, "a/b:old"),
        ({"cu130": "a/b:new"}, MI300X, None),
        ({"amd": "d/e:f"}, H200, None),
        # Releases of vLLM: the release that the site chose is as new, or newer.
        ("vllm/vllm-openai:latest", H200, None),
        ("vllm/vllm-openai", H200, None),
        ("vllm/vllm-openai:v0.20.2", H200, None),
        ("docker.io/vllm/vllm-openai:v0.25.0-x86_64", H200, None),
        ("vllm/vllm-openai@sha256:" + "0" * 64, H200, None),
        ("eugr/spark-vllm:latest", H200, "eugr/spark-vllm:latest"),
        ("localhost:5000/vllm:v0.20.2", H200, "localhost:5000/vllm:v0.20.2"),
        ("docker pull a/b:c", H200, "a/b:c"),
        (None, H200, None),
        ("", H200, None),
    ],
)
def test_a_build_of_its_own_is_used_and_a_release_is_the_site_s(image, accelerator, found):
    result = software({"docker_image": image}, accelerator)
    assert result.image == found
    assert bool(result.warnings) == bool(found)
    assert not found or f"its own build of vLLM, {found}, which is used instead" in result.warnings[0]


def test_the_exact_hardware_s_image_goes_before_the_variant_s_and_the_model_s():
    variant = {"docker_image": "a/variant:1", "hardware_overrides": {"mi300x": {"docker_image": "a/exact:1"}}}
    model = {"docker_image": {"nvidia": "a/model:1", "amd": "a/amd:1"}}
    assert software(model, MI300X, variant).image == "a/exact:1"
    assert software(model, H200, variant).image == "a/variant:1"
    assert software(model, MI300X, {"docker_image": "a/variant:1"}).image == "a/amd:1"


def test_the_command_of_an_image_belongs_to_it():
    block = {"docker_image": "a/exact:1", "docker_serve_command": "vllm  serve"}
    variant = {"hardware_overrides": {"h200": block}}
    assert software(variant=variant).command == ("vllm", "serve")
    assert software(variant=variant, accelerator=MI300X).command == ()
    release = {"hardware_overrides": {"h200": {**block, "docker_image": "vllm/vllm-openai:v0.33.0"}}}
    assert software(variant=release).command == ()


@pytest.mark.parametrize(
    "image",
    [
        "--privileged",
        "--volume=./../../../:/h:rw",
        "a/b:1 --privileged",
        "a/b:1\n-v=/:/h",
        "a/../b",
        "a/b:--init",
        "a b/c:@",
        # podman refuses these names too: capitals in a repository, a digest that is cut, odd signs.
        "Abc",
        "a.b/C:1",
        "vllm/foo@sha256:abc",
        "a/b@" + "0" * 64,
        "a/b:.x",
        "a/b:",
        "a//b",
        "a..b:1",
    ],
)
def test_an_image_is_a_name_and_no_option_of_the_container_engine(image):
    assert "docker_image of recipe org/model: found " in refusal({"docker_image": image})


@pytest.mark.parametrize("image", ["a/b:c", "host:5000/a/b@sha256:" + "0" * 64, "quay.io/a/vllm-ascend:v0.23.0-a5"])
def test_images_of_registries_are_names(image):
    assert software({"docker_image": image}).image == image


@pytest.mark.parametrize(
    ("image", "moves"),
    [("a/b:latest", True), ("a/b", True), ("h:5000/a/b", True), ("a/b:1", False), ("a/b@sha256:" + "0" * 64, False),
     ("a/b:latest@sha256:" + "0" * 64, False), ("vllm/vllm-openai:latest", False), ("vllm/vllm-openai", False)],
)  # fmt: skip
def test_a_build_without_a_version_is_a_warning(image, moves):
    moving = [text for text in software({"docker_image": image}).warnings if "another build" in text]
    assert [image in text and "vllm_image" in text for text in moving] == [True] * moves


def test_a_recipe_alone_chooses_no_other_command():
    block = {"docker_image": "vllm/vllm-openai:gemma", "docker_serve_command": "sh -c id"}
    with pytest.raises(
        PlanError, match="found 'sh -c id', expected 'vllm serve', because a recipe alone runs no other"
    ):
        software(variant={"hardware_overrides": {"h200": block}})


def test_a_newer_release_than_the_site_s_is_refused():
    assert refusal({"docker_image": "vllm/vllm-openai:v0.34.0"}) == (
        "vllm_instances.chat.recipe: org/model needs vLLM 0.34.0 or newer (the recipe's docker_image is "
        "vllm/vllm-openai:v0.34.0), release '0.33.0' has 0.33.0; choose a newer vllm_release"
    )


def test_a_virtual_environment_has_no_build_of_its_own():
    assert "names its own build of vLLM, a/b:c, which no virtual environment has" in refusal(
        {"docker_image": "a/b:c"}, runtime="venv"
    )


@pytest.mark.parametrize(("model", "variant"), [({"nightly_required": True}, {}), ({}, {"nightly_required": True})])
def test_a_nightly_is_a_warning(model, variant):
    assert software(model, H200, variant).warnings == (
        "vllm_instances.chat.recipe: org/model was written for a nightly of vLLM; release '0.33.0' may be too old for "
        "it",
    )
    assert not any("nightly" in text for text in software({**model, "docker_image": "a/b:c"}, H200, variant).warnings)


def test_the_image_of_a_nightly_is_named():
    (warning,) = software({"docker_image": "vllm/vllm-openai:cu130-nightly"}).warnings
    assert warning.endswith("; to use it, set vllm_image to vllm/vllm-openai:cu130-nightly with its digest")


PIP = {"command": "uv pip install  -U\n'x>=1'", "note": "Newer than any release"}


def test_a_container_is_assumed_to_have_the_packages_of_a_virtual_environment():
    (warning,) = software(dependencies=[PIP]).warnings
    assert "without a container org/model needs `uv pip install -U 'x>=1'`; the plan assumes that the image" in warning


@pytest.mark.parametrize(
    ("runtime", "step"), [("venv", PIP), ("container", {**PIP, "install_modes": ["pip", "docker"]})]
)
def test_a_step_that_nothing_here_runs_is_refused(runtime, step):
    message = refusal(runtime=runtime, dependencies=[step])
    assert "`uv pip install -U 'x>=1'` (Newer than any release); build an image" in message
    assert "mark the step `optional: true` in a recipe file of your own (vllm_recipe_path)" in message
    # A lenient site is warned, and the site's own image has what it needs.
    assert "needs more than" in software(runtime=runtime, dependencies=[step], site={"strict": False}).warnings[0]
    assert software(runtime=runtime, dependencies=[step], site={"image": "mine:1"}).warnings == ()


@pytest.mark.parametrize(
    "step",
    [
        {**PIP, "optional": True},
        {**PIP, "brand": "AMD"},
        {**PIP, "brand": ["AMD", "Intel"]},
    ],
)
def test_a_step_that_is_optional_or_of_another_vendor_counts_for_nothing(step):
    assert software(dependencies=[step], runtime="venv").warnings == ()


@pytest.mark.parametrize("package", ["git+https://github.com/deepseek-ai/DeepGEMM.git", "paddlepaddle-gpu==3.2.1"])
def test_a_package_for_cuda_is_needed_on_cuda_only(package):
    step = {"command": f"uv pip install {package}"}
    assert package in refusal(dependencies=[step], runtime="venv")
    assert software(accelerator=MI300X, dependencies=[step], runtime="venv").warnings == ()
    assert software(accelerator=MI300X, dependencies=[step]).warnings == ()


def test_a_step_of_this_vendor_counts():
    assert refusal(dependencies=[{**PIP, "brand": ["Intel"]}], runtime="venv", accelerator=CPU)


@pytest.mark.parametrize(
    ("model", "runtime", "message"),
    [
        ({"install": {"docker": False}}, "container", "upstream has no image for org/model; set vllm_image"),
        ({"install": {"pip": False}}, "venv", "upstream has no wheels for org/model; use the runtime 'container'"),
        ({"install": {"pip": {"command": "pip install y"}}}, "venv", "`pip install y`; use the runtime 'container'"),
        ({"docker_source": {"mount_path": "/x"}}, "container", "needs sources beside its image"),
    ],
)
def test_what_upstream_does_not_have_for_this_runtime(model, runtime, message):
    assert message in refusal(model, runtime=runtime)


def test_another_server_than_vllm_is_refused_whatever_the_image():
    for site in ({}, {"image": "mine:1"}):
        assert "is served by vLLM-Omni (vllm serve --omni)" in refusal(omni={"port": 8000}, site=site)


def test_notes_on_the_installation_are_warnings_of_one_short_line():
    found = software(
        {"install": {"docker": {"note": "Line\none"}, "pip": {"note": "not this"}}},
        hardware_overrides={"hopper": {"install_note": "x" * 999}, "amd": {"install_note": "not this"}},
    ).warnings
    assert found[0] == "vllm_instances.chat.recipe: org/model, on its installation: Line one"
    assert found[1].endswith("x ...") and len(found[1]) < 400 and len(found) == 2
