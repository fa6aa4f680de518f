# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import importlib
import re

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import role_options
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.option_ranges import RANGES
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import ROLES
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import (
    ON_CONTROLLER,
    RoleOptionError,
    check_role_options,
    specs_of,
)


def check(*roles, **variables):
    return check_role_options({"inventory_hostname": "gpu-1", **variables}, roles)


def test_a_misspelt_option_is_an_error_that_names_the_nearest():
    with pytest.raises(RoleOptionError) as caught:
        check("cuda", "weights", weights_source=["x"])
    assert str(caught.value) == "gpu-1: weights_source is not an option of the role weights; nearest: 'weights_sources'"


def test_a_variable_that_nothing_reads_is_a_warning():
    assert check("weights", weights_colour="red") == [
        "gpu-1: the role weights has no option called weights_colour; nothing reads it"
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("vlm_runtime", "vllm_runtime"),
        ("wieghts_sources", "weights_sources"),
        ("acelerator", "accelerator"),
        ("acelerator_count", "accelerator_count"),
    ],
)
def test_an_option_whose_role_is_misspelt_is_an_error(name, near):
    with pytest.raises(RoleOptionError, match=f"^gpu-1: no role has an option {name}; nearest: {near!r}$"):
        check("accelerator", "weights", "vllm", "provisioner", **{name: "x"})


@pytest.mark.parametrize("name", ["accelerators", "provision_bmc_ca_file", "sources", "my_vllm_runtime", "__vllm_port"])
def test_another_variable_is_the_sites_own(name):
    assert check("accelerator", "weights", "vllm", "provisioner", **{name: "x"}) == []


@pytest.mark.parametrize("name, near", [
    ("VLLM_release", "vllm_release"), ("Vllm_runtime", "vllm_runtime"), ("VLLM_RELEASE", "vllm_release"),
    ("vllmrelease", "vllm_release"), ("vllm-release", "vllm_release"), ("gateway-clients", "gateway_clients"),
    ("GATEWAY-CLIENTS", "gateway_clients"), ("Weights_Sources", "weights_sources"),
])  # fmt: skip
def test_an_option_in_capitals_or_with_hyphens_is_an_error(name, near):
    with pytest.raises(RoleOptionError, match=f"^gpu-1: no role has an option {name}; nearest: {near!r}$"):
        check("vllm", "weights", "gateway", **{name: "x"})
    # Where the option is set, the other is a variable of the site's, or was meant to replace it.
    assert check("vllm", "weights", "gateway", **{name: "x", near: ["hub"] if near == "weights_sources" else None}) == [
        f"gpu-1: no role has an option {name}; nearest: {near!r}"
    ]


def test_an_option_of_the_command_line_in_capitals_replaces_none_that_is_set(monkeypatch):
    monkeypatch.setattr(role_options, "load_extra_vars", lambda _loader: {"VLLM_RELEASE": "0.32.0"})
    with pytest.raises(RoleOptionError, match="VLLM_RELEASE; nearest: 'vllm_release'"):
        check("vllm", VLLM_RELEASE="0.32.0", vllm_release="0.33.0")
    assert check("vllm", VLLM_RELEASE="0.32.0", vllm_release="{{ VLLM_RELEASE }}") == []


@pytest.mark.parametrize("name", ["GATEWAY_PORT", "gatewayPort", "CUDA_VERSION", "cudaVersion", "MIRROR_ROOT"])
def test_a_name_that_a_site_may_have_is_a_warning(name):
    assert len(check("gateway", "cuda", "mirror", **{name: "x"})) == 1


@pytest.mark.parametrize("variables", [
    {"VLLM_RELEASE": "0.33.0", "vllm_release": "{{ VLLM_RELEASE }}"},
    {"vllmRelease": "0.33.0", "vllm_instances": {"chat": {"release": "{{ vllmRelease }}"}}},
    {"VLLM_RELEASE": "0.33.0", "tag": "v{{ VLLM_RELEASE }}", "vllm_image": "site/vllm:{{ tag }}"},
    {"VLLM_RELEASE": "0.33.0", "group_names": ["gateways"]},
    {"__vllm_release": "x", "VLLM_API_KEY": "x", "VLLM_PORT": 1, "VLLM_CACHE_ROOT": "x", "vllm_all_reduce_groups": []},
])  # fmt: skip
def test_a_name_that_an_option_uses_and_a_variable_of_an_environment_pass(variables):
    assert check("vllm", **variables) == []


def test_no_variable_that_vllm_reads_is_an_option_in_capitals():
    files = (ROLES.parent / "catalog/options").glob("*.yml")
    known = {name for path in files for name in re.findall(r"\bVLLM_\w+", path.read_text(encoding="utf-8"))}
    assert len(known) > 200 and not known & {option.upper() for option in specs_of("vllm")}


@pytest.mark.parametrize("name", ["Site_health", "site-health", "Site_Health"])
def test_switches_in_capitals_are_errors_too(name):
    with pytest.raises(RoleOptionError, match=f"no role has an option {name}; nearest: 'site_health'"):
        check("vllm", **{name: True})
    assert len(check("vllm", SITE_HEALTH=True)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "gateway_certificate",
        "gateway_certificate_key",
        "health_fault_path",
        "rollout_check_tasks",
        "rollout_gate_tasks",
    ],
)
def test_a_file_of_the_controller_that_is_not_there_is_a_warning(name, tmp_path):
    (tmp_path / "file").touch()
    good = tmp_path if name == "health_fault_path" else tmp_path / "file"
    role = name.partition("_")[0]
    listed = (lambda *values: values[-1]) if role == "gateway" else (lambda *values: list(values))
    assert check(role, **{name: listed("{{ mine }}", str(good))}) == []
    (warning,) = check(role, **{name: listed(str(good), "/nope")})
    assert warning.startswith(f"gpu-1: {name}: '/nope' is not a ")


@pytest.mark.parametrize(
    ("name", "near"), [("accelerator_partion", "accelerator_partition"), ("sit_health", "site_health")]
)
def test_misspelt_facts_and_switches_are_errors(name, near):
    with pytest.raises(RoleOptionError, match=f"{name} is not .*; nearest: {near!r}$"):
        check("accelerator", **{name: "x"})


def test_options_facts_and_the_variables_of_other_roles_are_accepted():
    assert (
        check("accelerator", "vllm", vllm_instances={}, accelerator_detected={}, weights_source="x", target_hosts="all")
        == []
    )


def test_every_role_is_checked_by_the_action_that_it_calls_first():
    checked = set()
    for path in (ROLES.parent / "plugins/action").glob("*.py"):
        module = importlib.import_module(f"ansible_collections.baremetal.inference.plugins.action.{path.stem}")
        checked.update(getattr(module.ActionModule, "ROLES", ()))
    for path in ROLES.glob("*/tasks/preflight.yml"):
        checked.update(re.findall(r"playbook_options:\n    roles: \[(\w+)\]", path.read_text(encoding="utf-8")))
    # vendor_stack is a part of cuda, rocm and cann: people set none of its variables.
    assert {path.name for path in ROLES.iterdir()} - {"vendor_stack"} == checked


@pytest.mark.parametrize(
    ("action", "role"),
    [
        ("accelerator_info", "accelerator"),
        ("driver_plan", "cann"),
        ("container_runtime", "container_runtime"),
        ("driver_plan", "cuda"),
        ("encodings", "encodings"),
        ("driver_plan", "rocm"),
        ("serve_plan", "vllm"),
        ("weights", "weights"),
    ],
)
def test_a_role_is_checked_where_the_hardware_was_detected_before(action, role):
    module = importlib.import_module(f"ansible_collections.baremetal.inference.plugins.action.{action}")
    assert role in module.ActionModule.ROLES


@pytest.mark.parametrize(
    ("role", "name", "value", "words"),
    [
        ("vllm", "vllm_drain_timeout", "abc", "found 'abc', expected a whole number"),
        ("vllm", "vllm_drain_timeout", "²", "found '²', expected a whole number"),
        ("vllm", "vllm_drain_timeout", "1_0", "found '1_0', expected a whole number"),
        ("vllm", "vllm_drain_timeout", 1.5, "found 1.5, expected a whole number"),
        ("vllm", "vllm_drain_timeout", True, "found true, expected a whole number"),
        ("vllm", "vllm_drain_timeout", ["300"], "found a list, expected a whole number"),
        ("vllm", "vllm_drain_timeout", "9" * 5000, f"found '{'9' * 79}, expected a whole number"),
        ("vllm", "vllm_user", ["vllm"], "found a list, expected a text"),
        ("vllm", "vllm_recipe_path", {"a": 1}, "found a mapping, expected a list of texts"),
        ("vllm", "vllm_recipe_path", 5, "found a number, expected a list of texts"),
        ("vllm", "vllm_venv_root", {"path": "/opt"}, "found a mapping, expected a text"),
        ("vllm", "vllm_drain_timeout", "٣", "found '٣', expected a whole number"),
        ("vllm", "vllm_stop_notice", -1, "found -1, expected a whole number from 0"),
        ("gateway", "gateway_port", "70000", "found '70000', expected a whole number from 1 to 65535"),
        ("gateway", "gateway_backends", {"x": 1}, "found a mapping, expected a list of texts"),
        ("weights", "weights_sources", {"a": 1}, "found a mapping, expected a list"),
        ("rollout", "rollout_throughput_share", 80, "found 80, expected a number from 0 to 1"),
        ("rollout", "rollout_prompts", "Hello", "found a text, expected a list of mappings"),
        ("rollout", "rollout_measure", 5, "found a number, expected a mapping"),
        ("vllm", "vllm_runtime", "dockr", "found 'dockr', expected container or venv"),
        ("vllm", "site_health", "maybe", "found 'maybe', expected true or false"),
        ("container_runtime", "container_runtime_engine", "dockr", "found 'dockr', expected docker or podman"),
        ("vllm", "vllm_fabric", ["mlx5"], "found a list, expected a mapping"),
        ("vllm", "vllm_fabric", {"hcas": "mlx5"}, "unknown key 'hcas'; nearest: 'hca'"),
    ],
)
def test_a_number_or_text_of_another_kind_is_an_error_in_plain_words(role, name, value, words):
    with pytest.raises(RoleOptionError) as caught:
        check(role, **{name: value})
    assert str(caught.value) == f"gpu-1: {name}: {words}"


def test_an_entry_of_a_list_or_mapping_is_named_by_its_place():
    with pytest.raises(RoleOptionError, match=r"^gpu-1: vllm_recipe_path\[1\]: found a mapping, expected a text$"):
        check("vllm", vllm_recipe_path=["/srv/recipes", {"path": "/opt"}])
    with pytest.raises(RoleOptionError, match=r"^gpu-1: cann_run_files\[0\]\.name: found a list, expected a text$"):
        check("cann", cann_run_files=[{"name": ["x"]}])


def numbers():
    for role in sorted(path.name for path in ROLES.iterdir()):
        for name, spec in specs_of(role).items():
            if spec.get("type") in ("int", "float"):
                yield role, name, spec


def test_every_number_has_a_range_that_holds_its_default():
    assert {name for _role, name, _spec in numbers()} == set(RANGES)
    for role, name, spec in numbers():
        if "default" in spec:
            assert check(role, **{name: spec["default"]}) == []
        with pytest.raises(RoleOptionError, match=f"^gpu-1: {name}: found .*, expected a .*number from "):
            check(role, **{name: RANGES[name].least - 1})


def test_an_empty_text_is_a_choice_only_where_it_is_listed():
    """Ansible's own words named the option of a module."""
    for role in sorted(path.name for path in ROLES.iterdir()):
        for name, spec in specs_of(role).items():
            if "choices" in spec and "" not in spec["choices"] and spec.get("type", "str") == "str":
                with pytest.raises(RoleOptionError, match=f"{name}: found '', expected "):
                    check(role, **{name: ""})
    assert check("vllm", vllm_runtime="") == []


def test_a_directory_of_caches_that_is_not_there_is_a_warning(tmp_path):
    """Nothing would say that no instance gets any."""
    assert check("vllm", vllm_caches_dir=str(tmp_path)) == check("vllm", vllm_caches_dir="") == []
    assert check("vllm", vllm_caches_dir="{{ inventory_dir }}/caches") == []
    (warning,) = check("vllm", vllm_caches_dir="/nowhere/caches")
    assert warning.startswith("gpu-1: vllm_caches_dir: '/nowhere/caches' is not a directory on this controller")


WRONG = [{"x": 1}, [{"x": [1]}], "²", "٣", "word", 5, 1.5, True, datetime.date(2026, 1, 2)]


@pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir()))
def test_what_ansible_refuses_in_words_of_its_own_is_refused_here(role):
    """Ansible's message would name classes such as _AnsibleTaggedDict."""
    for name, spec in specs_of(role).items():
        # Keys that a mapping requires, and choices, are refused by Ansible in plain words.
        kind = {key: spec[key] for key in ("type", "elements") if key in spec}
        for value in WRONG:
            if ArgumentSpecValidator({name: kind}).validate({name: value}).error_messages:
                with pytest.raises(RoleOptionError) as caught:
                    check(role, **{name: value})
                assert "class" not in str(caught.value), name


def test_numbers_may_be_texts_and_texts_may_be_numbers():
    for value in (300, "300", 300.0):
        assert check("vllm", vllm_drain_timeout=value) == []
    for value in (0.33, "0.33.0"):
        assert check("vllm", vllm_release=value) == []
    # YAML's no of a name, such as that of Norway.
    with pytest.raises(RoleOptionError, match="vllm_user: found false, expected a text"):
        check("vllm", vllm_user=False)
    assert check("vllm", vllm_drain_timeout="{{ somewhere }}") == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm_user", "a text"),
        ("vllm_drain_timeout", "a whole number"),
        ("vllm_strict", "true or false"),
        ("vllm_weights_root", "a path"),
    ],
)
def test_a_key_without_a_value_does_not_replace_the_default_of_the_role(name, expected):
    with pytest.raises(RoleOptionError) as caught:
        check("vllm", **{name: None})
    assert str(caught.value) == f"gpu-1: {name}: found nothing, expected {expected}; remove the key to use the default"
    # Nothing stands for an empty text, list or mapping, and where the role has no default, for what is not declared.
    assert check("vllm", vllm_instances=None, vllm_recipe_path=None, vllm_release=None, vllm_image=None) == []
    assert check("accelerator", accelerator_count=None, accelerator_mec_firmware=None) == []


@pytest.mark.parametrize("value", [10**30, -(10**30), "1" * 30])
def test_a_number_that_systemd_would_ignore_is_refused(value):
    with pytest.raises(RoleOptionError, match=r"vllm_start_timeout: found .*, expected a number up to 1000000000000"):
        check("vllm", vllm_start_timeout=value)


def test_a_word_that_yaml_reads_as_false_is_asked_for_in_quotes():
    with pytest.raises(RoleOptionError, match=r"gateway_admission: found false, expected off or .* or auto, in quotes"):
        check("gateway", gateway_admission=False)


PATHS = [
    (role, name, spec)
    for role in sorted(path.name for path in ROLES.iterdir())
    for name, spec in specs_of(role).items()
    if spec.get("type") == "path" or spec.get("elements") == "path"
]


@pytest.mark.parametrize(
    ("role", "name", "needed"),
    [
        ("weights", "weights_root", True),
        ("vllm", "vllm_venv_root", True),
        ("encodings", "encodings_dir", True),
        ("mirror", "mirror_metrics_file", False),
        ("vllm", "vllm_caches_dir", False),
    ],
)
def test_a_directory_that_a_role_needs_is_not_empty(role, name, needed):
    if not needed:
        check(role, **{name: ""})
        return
    with pytest.raises(RoleOptionError, match=f"{name}: found '', expected an absolute path"):
        check(role, **{name: ""})


@pytest.mark.parametrize(
    "value",
    [
        "/",
        "//",
        "/etc",
        "/usr/",
        "/srv/../etc",
        "/srv/..",
        "/..",
        "/./etc",
        "/etc/x",
        "/var/lib",
        "/usr/local/",
        "/lib32",
        "/dev/shm",
    ],
)
@pytest.mark.parametrize(
    ("role", "name"), [("weights", "weights_root"), ("vllm", "vllm_venv_root"), ("mirror", "mirror_root")]
)
def test_a_role_s_directory_is_none_of_the_system(role, name, value):
    with pytest.raises(RoleOptionError, match=f"{name}: found '{value}', expected a separate directory, such as /"):
        check(role, **{name: value})


def test_others_are_and_those_in_which_a_role_only_reads():
    for value in ("/srv", "/mnt", "/data", "/usr/local/models", "/var/lib/models"):
        check("weights", weights_root=value)
    check("provisioner", provisioner_config_dir="/etc/other")
    check("accelerator", accelerator_proc_root="/proc/", accelerator_sysfs_root="/sys")


@pytest.mark.parametrize(("role", "name", "spec"), PATHS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_path_is_absolute(role, name, spec):
    several = spec["type"] == "list"
    # One of them has to be there.
    there = "/" if name == "vllm_caches_dir" else "/srv/x"
    check(role, **{name: [there] if several else there})
    check(role, **{name: "{{ somewhere }}"})
    if name.endswith("_path"):
        check(role, **{name: ["files/x"]})  # the controller searches there
        return
    home = ", or one from ~" if name in ON_CONTROLLER else ""
    place = f"{name}[0]" if several else name
    for value in ("srv/models", "./models", "../models", "models", " /srv", *([] if home else ["~/models"])):
        with pytest.raises(RoleOptionError, match=re.escape(f"{value!r}, expected an absolute path{home}")) as caught:
            check(role, **{name: [value] if several else value})
        assert str(caught.value).startswith(f"gpu-1: {place}: ")


def test_every_option_that_holds_a_path_has_that_type():
    for role in sorted(path.name for path in ROLES.iterdir()):
        for name, spec in specs_of(role).items():
            default = spec.get("default")
            looks = name.endswith(("_dir", "_root", "_file")) or (isinstance(default, str) and default.startswith("/"))
            assert not looks or spec.get("type", "str") not in ("str", "raw"), name
