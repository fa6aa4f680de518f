# SPDX-License-Identifier: GPL-3.0-or-later
"""What no host could use is refused on the controller, in the words in which the hosts would refuse it."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.option_contents import CHECKS, check_contents
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import ROLES
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import (
    RoleOptionError,
    check_role_options,
)

RUN = {"url": "https://mirror/Ascend-hdk-910b-npu-driver_25.2.0_linux-aarch64.run", "sha256": "0" * 64}
VERSION = 'expected a version in quotes, such as "580.95.05"'
DIGEST = "sha256:" + "0f" * 32
NO_IMAGES = (
    "nan", float("nan"), "none", "Null", "a b:1", "https://quay.io/a/b:1", 5, "[x]/a:1", "a@@@@", "a::::", "[::1]",
    "UPPER/Case:tag", "vllm/VLLM:1", "a/", "/a", "a//b", "a:", "a@", "a:-1", "-a", "a-", "a.-b", "a..b", "a___b",
    "mirror:port/a", "mirror:5000/", "under_score:5000/a", "a:" + "t" * 129, "a@sha256:0f", "a@sha256:" + "0F" * 32,
    "a@0f", "a:1\n", "é/a", "a" * 99999 + "!",
)  # fmt: skip
IMAGES = (
    "vllm", "nones", "vllm:1", "mirror:5000/lab/vllm", "[fd00::1]:5000/a:1", f"a/b@{DIGEST}", f"a/b:1@{DIGEST}", "",
    "localhost/vllm:gpu-test", "MIRROR.site/a", "Registry-1.site:5000/a__b/c-d--e/f.g_h:V1_0.2-x", "[::1]/a",
    "a@sha512:" + "0f" * 64, "quay.io/ascend/vllm-ascend:v0.30.0-a3", "a:" + "t" * 128, "a:_1", "10.0.0.5:5000/a",
)  # fmt: skip
NO_REGISTRIES = (
    "true", True, "None", "a b", "[::1", "mirror:", "mirror:5000/Site", "/a", "a//b", "mirror:5000/a:1", "a@b",
)  # fmt: skip
REGISTRIES = (
    "10.0.0.5:5000/site", "[::1]", "[fd00::1]:5000", "mirror", "my_org", "Mirror.site/", "mirror:5000/a/b_c/",
)  # fmt: skip
REFUSED = [
    *(("accelerator_driver_version", value, VERSION) for value in (580.1, -1, "viel", True)),
    ("accelerator_cuda_version", 13.0, 'found 13.0, expected a version in quotes, such as "13.0"'),
    ("accelerator_memory_gib", float("nan"), "found nan, expected a number"),
    ("accelerator_memory_gib", 81920, "found 81920, expected a number from 1 to 65536"),
    ("accelerator_mec_firmware", "viel", "found 'viel', expected a whole number"),
    ("weights_sources", [{"a": 1}], "found a mapping with a, expected a text or a mapping with 'source'"),
    ("weights_sources", ["hub", None], "found nothing, expected an absolute path"),
    ("weights_sources", "hub, htp://mirror", "weights_sources: htp://mirror: scheme 'htp' is not known"),
    ("weights_sources", [{"source": "hub", "tokn_file": "x"}], "unknown key 'tokn_file'; nearest: 'token_file'"),
    ("encodings_sources", ["htp://mirror"], "encodings_sources: htp://mirror: scheme 'htp' is not known"),
    ("rollout_waves", ["²"], "rollout_waves[0]: found '²', expected a number of hosts above 0, or a share such as 25%"),
    (
        "rollout_waves",
        [1, "50"],
        "rollout_waves[1]: found the text '50', expected a number without quotes, or a share such as \"50%\"",
    ),
    ("rollout_waves", [1, True], "rollout_waves[1]: found true, expected a number of hosts above 0"),
    ("rollout_prompts", [{"expect": "42"}], "rollout_prompts: entry 1 has no prompt, expected a text"),
    ("rollout_measure", {"strams": 4}, "rollout_measure: has strams, expected only"),
    ("rollout_measure", {"streams": "²"}, "rollout_measure: has streams '²', expected a whole number from 1"),
    ("vllm_caches_source", "caches", "found 'caches', expected an address such as https://mirror.site/path"),
    ("vllm_wheel_index", "mirror/simple", "found 'mirror/simple', expected an address such as"),
    ("vllm_wheel_index", "alice:secret@mirror/simple", "found a text with @, expected an address such as"),
    ("cuda_mirror", "http:///x", "found 'http:///x', expected an address such as"),
    ("provisioner_debian_mirror", "http://a b", "found 'http://a b', expected an address such as"),
    *(("vllm_image", value, "expected the name of an image, such as vllm/vllm-openai:v0.33.0") for value in NO_IMAGES),
    ("vllm_image", True, "found true, expected the name of an image"),
    ("vllm_registry", "http://mirror:5000", "expected a registry without http://, such as registry.site:5000"),
    *(("vllm_registry", value, "expected a registry without http://") for value in NO_REGISTRIES),
    ("gateway_cluster", False, "found false, expected a text"),
    ("health_webhook_token", "abc\n", "without spaces and line breaks; of a file, take it with | trim"),
    ("vllm_user", "vl lm", "found 'vl lm', expected the name of a system user, such as vllm"),
    ("vllm_cluster_network", "10.0.0.0/99", "found '10.0.0.0/99', expected a network such as 10.20.0.0/24"),
    ("vllm_cluster_network", "10.0.0.1/24", "has host bits set"),
    ("weights_scrub_calendar", "wekly", "weights_scrub_calendar: found 'wekly'; nearest: 'weekly'"),
    *(
        (name, value, f"{name}: found '{value}', expected an address such as 10.0.0.5, or 0.0.0.0 for all of them")
        for name in ("gateway_stats_listen", "mirror_listen", "monitoring_node_listen")
        for value in ("everywhere", "0.0.0.300", "10.0.0.1:8404", "[::]", "fe80::1%eth0")
    ),
    ("mirror_listen", "", "mirror_listen: found nothing, expected an address"),
    *(
        ("mirror_server_name", value, "expected the name of a host")
        for value in ("a b", "a;", "http://a", "10.0.0.300")
    ),
    *(
        ("provisioner_address", value, "expected the IPv4 address")
        for value in ("10.0.0.300", "::1", "host", "10.0.0.1/8")
    ),
    *(
        ("vllm_group_ports", value, f"vllm_group_ports: found {value!r}, expected two ports")
        for value in ("32768", "60999-32768", "1-70000", "0-9", "1024 - 65535", "1-2-3", 32768, "1-123456")
    ),
    ("container_runtime_registry_mirrors", "http://mirror:5000", "mirrors[0]: found 'http://mirror:5000', expected"),
    ("host_tuning_governor", "perfomance", "host_tuning_governor: found 'perfomance'; nearest: 'performance'"),
    ("host_tuning_limits", {"memlock": "lots"}, "host_tuning_limits: memlock: found 'lots', expected a whole number"),
    ("host_tuning_limits", {"memlok": 1, 2: 3}, "host_tuning_limits: '2' is no limit"),
    ("container_runtime_insecure_registries", ["a:5000", "http://x:1"], "registries[1]: found 'http://x:1', expected"),
    *(
        ("gateway_names", [value], "gateway_names[0]: found ")
        for value in (
            "chat example",
            "https://chat.example.net",
            "chat:443",
            "a..b",
            "10.0.0.999",
            "",
            None,
            5,
            "*",
            "a.*.b",
        )
    ),
    (
        "gateway_names",
        "chat, a b",
        "gateway_names[1]: found 'a b', expected the name of a host without https:// and port",
    ),
    *(
        ("gateway_host_address", value, "expected an IP address such as")
        for value in ("999.1.1.1", "a b", "http://a", True)
    ),
    *(("gateway_interface", value, "expected the name of a network interface") for value in ("eth 0", "a/b", "e" * 16)),
    *(
        ("gateway_secret", value, "found words of ")
        for value in ("short", " ", 12345, "ü" * 40, "a" * 129, f"{'a' * 32} b")
    ),
    ("cann_run_files", [{**RUN, "sha256": "1"}], "cann_run_files: sha256 of Ascend-hdk-910b-npu-driver_25.2.0_"),
]


def role_of(name):
    return next(
        (role for role in ("host_tuning", "container_runtime") if name.startswith(role)), name.partition("_")[0]
    )


@pytest.mark.parametrize(("name", "value", "words"), REFUSED, ids=[name for name, _value, _words in REFUSED])
def test_it_is_refused_under_the_options_name(name, value, words):
    with pytest.raises(RoleOptionError) as caught:
        check_role_options({"inventory_hostname": "gpu-1", name: value}, [role_of(name)])
    assert str(caught.value).startswith(f"gpu-1: {name}")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accelerator_driver_version", "580.95.05"),
        ("accelerator_driver_version", "25.0.rc1.1"),
        # What a role that finds no driver sets.
        ("accelerator_driver_version", ""),
        ("accelerator_cuda_version", "13.0"),
        ("weights_sources", "hub"),
        ("weights_sources", "/srv/weights, hub"),
        ("weights_sources", [{"source": "s3://bucket/prefix", "region": "eu-1"}, "controller:/srv"]),
        ("weights_sources", ["http://{{ groups.mirrors | first }}:8480"]),
        ("weights_sources", None),
        ("encodings_sources", ["index:http://mirror/simple/", "/srv/encodings"]),
        ("rollout_waves", "25%"),
        ("rollout_waves", [1, "10%", "50%"]),
        ("rollout_prompts", [{"prompt": "6 times 7?", "expect": 42}]),
        ("rollout_measure", {"streams": 2}),
        ("cann_run_files", [RUN]),
        ("vllm_user", "svc-vllm.1"),
        ("vllm_user", "vllm@site.example"),
        ("vllm_cluster_network", "10.20.0.0/24"),
        ("vllm_cluster_network", "fd00::/64"),
        *(("weights_scrub_calendar", value) for value in ("weekly", "Sat", "Sunday", "Mon..Fri 03:00", "*-*-01")),
        *(("mirror_listen", value) for value in ("::", "10.0.0.5", "localhost", "*", "{{ ansible_host }}")),
        *(("mirror_server_name", value) for value in ("_", "mirror.site", "10.0.0.5")),
        *(("provisioner_address", value) for value in ("", "10.0.0.5")),
        *(("vllm_group_ports", value) for value in ("32768-60999", "1024-1024")),
        ("container_runtime_registry_mirrors", ["mirror:5000"]),
        ("monitoring_node_listen", "::"),
        ("monitoring_node_listen", ""),
        *(("host_tuning_governor", value) for value in ("performance", "")),
        ("host_tuning_limits", {"memlock": "unlimited", "nofile": 1048576}),
        ("container_runtime_insecure_registries", ["mirror:5000", "[::1]:5000"]),
        ("gateway_names", ["chat", "chat.example.net", "*.example.net", "10.0.0.5", "fd00::1", "my_host"]),
        ("gateway_names", "chat,10.0.0.5"),
        ("gateway_stats_listen", "::"),
        ("gateway_stats_listen", "localhost"),
        ("gateway_stats_listen", "*"),
        ("gateway_host_address", "gpu-1.site"),
        ("gateway_host_address", "fe80::1"),
        ("gateway_interface", "bond0.100@x:1"),
        ("gateway_secret", f"{'a' * 32} {'b' * 128}"),
        ("gateway_secret", "{{ lookup('file', '/srv/secret') }}"),
        ("vllm_caches_source", "/srv/caches"),
        ("vllm_wheel_index", "http://mirror/simple/"),
        ("cuda_mirror", "file:///srv/nvidia"),
        ("cuda_mirror", "file:/srv/nvidia"),
        ("vllm_caches_source", "file:/srv/caches"),
        ("weights_sources", ["file:/srv/weights"]),
        *(("vllm_image", name) for name in IMAGES),
        *(("vllm_registry", name) for name in REGISTRIES),
    ],
)
def test_it_passes(name, value):
    assert check_role_options({"inventory_hostname": "gpu-1", name: value}, [role_of(name)]) == []


@pytest.mark.parametrize(("name", "value"), [("gateway_secret", "hush"), ("gateway_host_address", "999.1.1.1")])
def test_what_is_set_for_a_server_is_checked_there_too(name, value):
    with pytest.raises(RoleOptionError, match=f"gpu-1: {name}: found ") as caught:
        check_role_options({"inventory_hostname": "gpu-1", name: value}, ["vllm"])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["gateway_secret", "gateway_host_address", "health_webhook_token"])
def test_what_is_encrypted_is_not_read(name):
    class Encrypted:
        def __str__(self):
            raise AnsibleError("Attempting to decrypt but no vault secrets found.")

    check_role_options({"inventory_hostname": "gpu-1", name: Encrypted()}, ["vllm", "gateway", "health"])


def test_a_template_is_judged_as_its_result():
    variables = {"inventory_hostname": "gpu-1", "rollout_waves": ["{{ first }}"]}
    assert check_role_options(variables, ["rollout"], lambda _value: [1]) == []
    with pytest.raises(RoleOptionError, match=r"rollout_waves\[0\]: found 'x'"):
        check_role_options(variables, ["rollout"], lambda _value: ["x"])


# What an inventory declares about a host has no default.
@pytest.mark.parametrize("name", sorted(name for name in CHECKS if not name.startswith("accelerator_")))
def test_the_default_of_each_option_passes(name):
    role = next(path.name for path in ROLES.iterdir() if name.startswith(f"{path.name}_"))
    check_contents(name, yaml.safe_load((ROLES / role / "defaults/main.yml").read_text(encoding="utf-8"))[name])
