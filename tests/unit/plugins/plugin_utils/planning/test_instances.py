# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.instances import (
    check_instances,
    check_ports,
    exposure,
    replica_name,
    secret_problem,
    without_effect,
)


def refusal(instances):
    with pytest.raises(PlanError) as caught:
        check_instances(instances)
    return str(caught.value)


def test_an_instance_with_every_key():
    check_instances(
        {
            "chat-1.b_C": {
                "recipe": "org/model",
                "variant": "default",
                "preset": "latency",
                "strategy": "single_node_tp",
                "features": ["tools"],
                "checks": ["models", "embedding"],
                "feature_modes": {"spec": "eagle"},
                "release": "0.33.0",
                "revision": "0123456789" * 4,
                "runtime": "venv",
                "host": "::",
                "port": 65535,
                "served_model_names": ["a", "b"],
                "replicas": None,
                "chips": [0, 3],
                "nodes": [],
                "node_address": "10.0.0.1",
                "args": {"x": None, "y": {"a": [1, 2.5, True, None]}, "compilation-config.pass_config.fuse_x": True},
                "env": {"A": "text", "B": 1, "C": 0.5, "E": None},
            }
        }
    )
    check_instances({})


def test_a_variable_that_only_sounds_like_a_secret_is_accepted():
    env = {"GOOGLE_APPLICATION_CREDENTIALS": "/etc/gcp/key.json", "RAY_TLS_SERVER_KEY": "/etc/ray/tls/server.key"}
    switches = {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "MAX_TOKEN_LEN": 4096, "RAY_AUTH_MODE": "token"}
    check_instances({"chat": {"recipe": "org/model", "env": {**env, **switches, "SSH_AUTH_SOCK": "/run/agent"}}})


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (
            [{"name": "chat"}],
            "vllm_instances: found a list, expected a mapping of names to instances, as in {chat: {recipe: "
            "openai/gpt-oss-20b}}",
        ),
        (
            "chat",
            "vllm_instances: found the text 'chat', expected a mapping of names to instances, as in "
            "{chat: {recipe: openai/gpt-oss-20b}}",
        ),
        (
            None,
            "vllm_instances: found nothing, expected a mapping of names to instances, as in {chat: {recipe: "
            "openai/gpt-oss-20b}}",
        ),
        ({"a b": {}}, "vllm_instances.a b: found the name 'a b', expected a text of letters, digits, '-', '_' and '.'"),
        (
            {"../x": {}},
            "vllm_instances.../x: found the name '../x', expected a text of letters, digits, '-', '_' and '.'",
        ),
        (
            {"a\n": {}},
            "vllm_instances.a\n: found the name 'a\\n', expected a text of letters, digits, '-', '_' and '.'",
        ),
        ({1: {}}, "vllm_instances.1: found the name 1, expected a text of letters, digits, '-', '_' and '.'"),
        (
            {"chat": "org/model"},
            "vllm_instances.chat: found the text 'org/model', expected a mapping with the key 'recipe'",
        ),
        ({"chat": ["x"]}, "vllm_instances.chat: found a list, expected a mapping with the key 'recipe'"),
    ],
)
def test_what_is_no_mapping_of_instances(instances, message):
    assert refusal(instances) == message


DATE = datetime.date(2026, 1, 2)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"recipe": None}, ": 'recipe' is missing; expected the <org>/<model> of a recipe in the catalogue"),
        ({"recip": "x"}, ": unknown key 'recip'; nearest: 'recipe'"),
        ({"model": "x"}, ": unknown key 'model'; use 'recipe'"),
        ({"replica_count": 2}, ": unknown key 'replica_count'; use 'replicas'"),
        ({"gpus": [0]}, ": unknown key 'gpus'; use 'chips'"),
        ({"recipe": 5}, ".recipe: found 5, expected a text"),
        ({"release": 0.33}, ".release: found 0.33, expected a text, quoted"),
        ({"variant": ["a"]}, ".variant: found ['a'], expected a text"),
        (
            {"revision": "main"},
            ".revision: found 'main', expected the commit of a manifest, 40 hexadecimal digits in quotes",
        ),
        (
            {"revision": 12},
            ".revision: found 12, expected the commit of a manifest, 40 hexadecimal digits in quotes",
        ),
        ({"runtime": "conteiner"}, ".runtime: found 'conteiner'; nearest: 'container'"),
        *(
            (
                {"host": host},
                f".host: found {host!r}, expected an IP address such as 10.0.0.5, 0.0.0.0 or ::, or the name of a host",
            )
            for host in ("not an address", "10.0.0.300", "10.0.0", "[::]", "*", "a/b", "-x", "http://a", "a:80")
        ),
        (
            {"checks": ["embeddings"]},
            ".checks: unknown check 'embeddings'; nearest: 'embedding'",
        ),
        ({"checks": "chat"}, ".checks: found 'chat', expected a list of names"),
        (
            {"node_address": "a b"},
            ".node_address: found 'a b', expected an IP address such as 10.0.0.5, 0.0.0.0 or ::, or the name of a host",
        ),
        ({"port": "8010"}, ".port: found the text '8010', expected a whole number from 1 to 65535, without quotes"),
        ({"port": "web"}, ".port: found 'web', expected a whole number from 1 to 65535"),
        ({"port": 70000}, ".port: found 70000, expected a whole number from 1 to 65535"),
        (
            {"host": ""},
            ".host: found '', expected an IP address such as 10.0.0.5, 0.0.0.0 or ::, or the name of a host",
        ),
        ({"port": 0}, ".port: found 0, expected a whole number from 1 to 65535"),
        ({"port": True}, ".port: found true, expected a whole number from 1 to 65535"),
        ({"replicas": 0}, ".replicas: found 0, expected a whole number from 1; leave replicas out to fill the host"),
        (
            {"replicas": "4"},
            ".replicas: found the text '4', expected a whole number from 1, without quotes; leave replicas out to fill "
            "the host",
        ),
        (
            {"chips": ["0", "1"]},
            ".chips: found ['0', '1'], expected a list of the chips' numbers without quotes, like [0, 1]",
        ),
        ({"chips": 2}, ".chips: found 2, expected a list of the chips' numbers without quotes, like [0, 1]"),
        ({"chips": []}, ".chips: found [], expected a list of the chips' numbers without quotes, like [0, 1]"),
        ({"chips": [-1]}, ".chips: found [-1], expected a list of the chips' numbers without quotes, like [0, 1]"),
        ({"chips": ["0"]}, ".chips: found ['0'], expected a list of the chips' numbers without quotes, like [0, 1]"),
        ({"chips": [0, 0]}, ".chips: found [0, 0], expected each number once, like [0, 1]"),
        (
            {"chips": [0], "replicas": 2},
            ".replicas: found 2 together with chips; an instance that names its chips has one replica, so "
            "remove one of the two",
        ),
        (
            {"nodes": ["a", "b"], "replicas": 2},
            ".replicas: found 2 together with nodes; an instance that spans hosts has one replica, so remove "
            "one of the two",
        ),
        ({"features": "tools"}, ".features: found 'tools', expected a list of names"),
        ({"features": [1]}, ".features: found [1], expected a list of names"),
        ({"served_model_names": "x"}, ".served_model_names: found 'x', expected a list of names"),
        ({"feature_modes": {"spec": True}}, ".feature_modes.spec: found true, expected the name of a mode, in quotes"),
        ({"feature_modes": ["spec"]}, ".feature_modes: found ['spec'], expected a mapping of names to values"),
        ({"args": ["--x"]}, ".args: found ['--x'], expected a mapping of names to values"),
        ({"args": "--x"}, ".args: found '--x', expected a mapping of names to values"),
        ({"args": 0}, ".args: found 0, expected a mapping of names to values"),
        ({"env": ""}, ".env: found '', expected a mapping of names to values"),
        ({"feature_modes": []}, ".feature_modes: found [], expected a mapping of names to values"),
        ({"args": {1: 2}}, ".args: found the key 1, expected a text; put it in quotes"),
        ({"args": {"port": 1}}, ".args.port: cannot be set here; its value comes from port"),
        ({"args": {"model": "x"}}, ".args.model: cannot be set here; its value comes from recipe"),
        (
            {"args": {"api-key": "x"}},
            ".args.api-key: cannot be set here; its value comes from the role variable vllm_secrets",
        ),
        (
            {"args": {"max-model_len": 1, "max_model_len": 1}},
            ".args: 'max-model_len' and 'max_model_len' are the same flag of vLLM; keep one of them",
        ),
        (
            {"args": {"served_model_name": "x"}},
            ".args.served_model_name: cannot be set here; its value comes from served_model_names",
        ),
        ({"args": {"--x": 1}}, ".args: '--x' is not how vLLM's --config file names a flag; expected 'x'"),
        (
            {"args": {"-cc.a_b": 1}},
            ".args: '-cc.a_b' is not how vLLM's --config file names a flag; expected 'cc.a_b'",
        ),
        (
            {"args": {"x": DATE}},
            ".args.x: found 2026-01-02 (a date), which a command line cannot pass; expected "
            "text of one line, a number, true or false, or a list or mapping of these",
        ),
        (
            {"args": {"x": b"y"}},
            ".args.x: found b'y' (binary data), which a command line cannot pass; expected text of one line, a "
            "number, true or false, or a list or mapping of these",
        ),
        (
            {"args": {"x": {"y"}}},
            ".args.x: found {'y'} (a set), which a command line cannot pass; expected text of one line, a "
            "number, true or false, or a list or mapping of these",
        ),
        (
            {"args": {"x": {"y": [1, DATE]}}},
            ".args.x: found 2026-01-02 (a date), which a command line cannot pass; expected "
            "text of one line, a number, true or false, or a list or mapping of these",
        ),
        (
            {"args": {"x": "one\ntwo"}},
            ".args.x: found a text of several lines ('one'...), which a command line cannot pass; expected "
            "text of one line, a number, true or false, or a list or mapping of these",
        ),
        (
            {"args": {"x": ["one\rtwo"]}},
            ".args.x: found a text of several lines ('one'...), which a command line cannot pass; expected "
            "text of one line, a number, true or false, or a list or mapping of these",
        ),
        (
            {"served_model_names": ["a", " "]},
            ".served_model_names: found ' ', expected a name without spaces around it and without line breaks",
        ),
        (
            {"served_model_names": ["a\nb"]},
            ".served_model_names: found 'a\\nb', expected a name without spaces around it and without line breaks",
        ),
        ({"served_model_names": ["a", "b", "a"]}, ".served_model_names: found 'a' twice, expected each name once"),
        ({"env": {1: "x"}}, ".env: found the key 1, expected a text; put it in quotes"),
        *(
            ({"env": {name: "1"}}, f".env: found {found}, expected letters, digits and '_', and no digit first")
            for name, found in (
                ("FOO BAR", "a name with ' ' after 'FOO'"),
                # The rest may be a secret.
                ("A=hush", "a name with '=' after 'A'"),
                ("A\nB", "a name with '\\n' after 'A'"),
                ("É", "a name that begins with '\\xc9'"),
                ("#A", "a name that begins with '#'"),
                ("4A", "a name that begins with '4'"),
                ("", "an empty name"),
            )
        ),
        (
            {"env": {"A B": None}},
            ".env: found a name with ' ' after 'A', expected letters, digits and '_', and no digit first",
        ),
        (
            {"env": {"A": "hush\x1b"}},
            ".env.A: found a text with a control character, expected one line, because a systemd unit passes no more",
        ),
        ({"env": {"A": {"b": 1}}}, ".env.A: found {'b': 1}, expected one value; write JSON as a text in quotes"),
        ({"env": {"A": DATE}}, ".env.A: found 2026-01-02 (a date), expected a text in quotes"),
        ({"env": {"A": True}}, '.env.A: found true, expected a text in quotes, such as "1"'),
        (
            {"args": {"x": {"y": {2: 32}}}},
            ".args.x: found a mapping with the key 2 (a number), not a text, which a command line cannot pass; "
            "expected text of one line, a number, true or false, or a list or mapping of these",
        ),
        (
            {"env": {"A": "hush\nhush"}},
            ".env.A: found a text of several lines, expected one line, because a systemd unit passes no more",
        ),
        (
            {"env": {"VLLM_API_KEY": "hush"}},
            ".env.VLLM_API_KEY: a secret does not belong here; put it into vllm_secrets.chat.VLLM_API_KEY",
        ),
        (
            {"env": {"S3_SECRET_ACCESS_KEY": "hush"}},
            ".env.S3_SECRET_ACCESS_KEY: a secret does not belong here; put it into "
            "vllm_secrets.chat.S3_SECRET_ACCESS_KEY",
        ),
        (
            {"args": {"hf-token": "hush"}},
            ".args.hf-token: cannot be set here; its value comes from the role variable vllm_secrets, as HF_TOKEN",
        ),
    ],
)
def test_a_malformed_instance_is_one_sentence(requested, message):
    found = refusal({"chat": {"recipe": "org/model", **requested} if "recip" not in requested else requested})
    assert found == f"vllm_instances.chat{message}"
    assert "hush" not in found


def test_replicas_are_numbered_from_the_second_on():
    assert [replica_name("chat", number) for number in (1, 2, 3)] == ["chat", "chat-2", "chat-3"]


def test_ports_that_are_all_different():
    check_ports({"a": ("a", 8000), "a-2": ("a", 8001), "b": ("b", 8002)})


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        (
            {"a": ("a", 8000), "b": ("b", 8000)},
            "vllm_instances.b.port: 8000 is the port of vllm_instances.a too; give one of them another",
        ),
        (
            {"a": ("a", 8000), "a-2": ("a", 8001), "b": ("b", 8001)},
            "vllm_instances.b.port: 8001 is the port of vllm_instances.a (of the replica a-2) too; "
            "give one of them another",
        ),
        (
            {"a": ("a", 8001), "b": ("b", 8000), "b-2": ("b", 8001)},
            "vllm_instances.b.port: 8001 (of the replica b-2) is the port of vllm_instances.a too; "
            "give one of them another",
        ),
        (
            {"a": ("a", 65535), "a-2": ("a", 65536)},
            "vllm_instances.a.port: the replica a-2 would get 65536, beyond 65535",
        ),
    ],
)
def test_ports_that_collide(ports, message):
    with pytest.raises(PlanError) as caught:
        check_ports(ports)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("requested", "keys"),
    [
        ({"group_port": 8000, "router_port": 8000, "node_address": "10.0.0.1"}, "group_port node_address router_port"),
        ({"group_port": 29600, "node_address": "10.0.0.1", "router_port": 1, "nodes": ["a", "b"]}, "router_port"),
        ({"group_port": 29600, "node_address": "10.0.0.1", "router_port": 1, "prefill": ["a"], "decode": ["b"]}, ""),
        ({"port": 8000}, ""),
    ],
)
def test_a_key_that_nothing_reads_on_one_host_is_noted(requested, keys):
    assert [text.partition(":")[0] for text in without_effect("x", requested)] == [f"x.{key}" for key in keys.split()]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "10.0.0.5", "localhost", "gpu-1.fra1.example.com"])
def test_an_instance_listens_on_an_address_or_a_name(host):
    check_instances({"chat": {"recipe": "x", "host": host}})


@pytest.mark.parametrize("key", ["port", "group_port", "router_port"])
@pytest.mark.parametrize(("port", "good"), [(1, True), (65535, True), (0, False), (65536, False), (True, False)])
def test_the_ports_that_exist(key, port, good):
    instances = {"chat": {"recipe": "org/model", key: port}}
    if good:
        check_instances(instances)
    else:
        assert refusal(instances).startswith(f"vllm_instances.chat.{key}: found ")


@pytest.mark.parametrize(
    ("kv_cache", "message"),
    [
        ({"host_gib": "auto"}, None),
        ({"host_gib": 0.5}, None),
        ("auto", ": found 'auto', expected a mapping such as {host_gib: auto}"),
        (None, ": found nothing, expected a mapping such as {host_gib: auto}"),
        ({"host": 4}, ": unknown key 'host'; nearest: 'host_gib'"),
        ({}, ".host_gib: found nothing, expected auto or a number of GiB above 0"),
        *(
            ({"host_gib": size}, f".host_gib: found {shown}, expected auto or a number of GiB above 0")
            for size, shown in ((0, "0"), (-1, "-1"), (True, "true"), ("4", "'4'"), (float("inf"), "inf"))
        ),
    ],
)
def test_the_cache_in_the_memory_of_the_host(kv_cache, message):
    instances = {"chat": {"recipe": "org/model", "kv_cache": kv_cache}}
    if message is None:
        check_instances(instances)
    else:
        assert refusal(instances) == f"vllm_instances.chat.kv_cache{message}"


def test_weights_are_loaded_beforehand_or_not():
    check_instances({"chat": {"recipe": "org/model", "preload": True}, "b": {"recipe": "org/model", "preload": False}})
    assert refusal({"chat": {"recipe": "org/model", "preload": "yes"}}) == (
        "vllm_instances.chat.preload: found 'yes', expected true or false"
    )


def test_several_replicas_and_several_hosts_are_one_too_many():
    check_instances({"chat": {"recipe": "org/model", "replicas": 1, "nodes": ["h1", "h2"]}})
    check_instances({"chat": {"recipe": "org/model", "replicas": 2, "nodes": []}})
    message = refusal({"chat": {"recipe": "org/model", "replicas": 2, "nodes": ["h1", "h2"]}})
    assert message.startswith("vllm_instances.chat.replicas: found 2 together with nodes")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, None),
        ({"replicas": 1, "nodes": [], "prefill": None}, None),
        ({"residents": ["a"]}, ".residents: found ['a'], expected a name"),
        ({"residents": "a b"}, ".residents: found 'a b', expected a name"),
        ({"replicas": 2}, ".replicas: found 2 together with residents"),
        ({"nodes": ["h1", "h2"]}, ".residents: found 'pool' together with nodes"),
        ({"prefill": ["h1"]}, ".residents: found 'pool' together with prefill"),
        ({"decode": ["h1"]}, ".residents: found 'pool' together with decode"),
    ],
)
def test_instances_that_share_chips_are_on_one_host_with_one_replica(more, message):
    instances = {"chat": {"recipe": "org/model", "residents": "pool", **more}}
    if message is None:
        check_instances(instances)
    else:
        assert refusal(instances).startswith(f"vllm_instances.chat{message}")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("key", ""), (4711, ""), (None, "found nothing"), (True, "found true or false"), ([], "found a list"),
        ({}, "found a mapping"), ("", "found an empty text"), (" \t", "found an empty text"),
        ("a\nb", "found a text of several lines"), ("a\0b", "found a text with a control character"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_secret_is_named_without_its_value(value, problem):
    assert secret_problem(value) == problem


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "127.9.9.9", "localhost"])
def test_an_instance_on_the_loopback_address_needs_no_key(host):
    assert exposure("vllm_instances.chat", "chat", host, ()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu-1.example.com"])
def test_an_instance_that_others_reach_needs_a_key(host):
    (warning,) = exposure("vllm_instances.chat", "chat", host, ("HF_TOKEN",))
    assert f"listens on {host} without an API key" in warning and "vllm_secrets.chat.VLLM_API_KEY" in warning
    assert exposure("vllm_instances.chat", "chat", host, ("VLLM_API_KEY",)) == []


@pytest.mark.parametrize(("side", "found"), [("prefill", 0), ("decode", False), ("prefill", []), ("prefill", "")])
def test_hosts_of_a_side_that_are_none_are_refused(side, found):
    assert f"vllm_instances.chat.{side}: found" in refusal({"chat": {"recipe": "org/model", side: found}})
