# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import hashlib
import re
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import (
    Client,
    KeyFileError,
    check_clients,
    commands,
    describe_maps,
    differences,
    ending,
    hashes_of,
    map_text,
    maps_of,
    parse_map,
    shared_keys,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.expiry import end_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory import (
    plain_options,
    read_clients,
    with_services,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.paths import path_problems, paths_of, tasks_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import Backend, GatewayError, decide

from tests.fakes.gateways import options, plan
from tests.fakes.wheelhouse import run_module

KEY = "k" * 40
HASH = hashlib.sha256(KEY.encode()).hexdigest()


def backend(host, address=None, **plans):
    return Backend(host, address or host, plans or {"chat": plan(8000)})


def decided(*backends, gateway="gw", **more):
    return decide(gateway, backends, options(**more))


def refused(*backends, gateway="gw", **more):
    with pytest.raises(GatewayError) as caught:
        decided(*backends, gateway=gateway, **more)
    return str(caught.value)


class TestServices:
    @pytest.mark.parametrize(("tokens", "has_secret", "count"), [(True, False, 1), (True, True, 0), (False, False, 0)])
    def test_counting_without_a_secret_is_a_warning(self, tokens, has_secret, count):
        found = decided(backend("a"), tokens=tokens, has_secret=has_secret)["warnings"]
        assert [text.partition(":")[0] for text in found] == ["gateway_tokens"] * count

    def test_instances_and_replicas_of_a_name_are_one_service(self):
        replicas = {"chat": plan(8000), "chat-2": plan(8001)}
        found = decided(backend("a", "10.0.0.1", **replicas), backend("b", "fd00::2"))
        (service,) = found["services"]
        assert (service["name"], service["port"], service["models"]) == ("chat", 443, ["baremetal/gpt-oss-smoke"])
        assert [(each["name"], each["address"], each["port"]) for each in service["servers"]] == [
            ("a--chat", "10.0.0.1", 8000), ("a--chat-2", "10.0.0.1", 8001), ("b--chat", "[fd00::2]", 8000),
        ]  # fmt: skip
        assert found["agent"]["[fd00::2]:8000"] == {
            "name": "b--chat", "service": "chat", "model": "baremetal/gpt-oss-smoke",
        }  # fmt: skip

    def test_no_server_can_be_of_two_hosts(self):
        assert refused(backend("xn"), backend("xn--p1"), backend("c")) == (
            "the hosts xn and xn--p1: a server xn--... could be of both; rename one in the inventory"
        )
        assert "the hosts a- and a---b" in refused(backend("a-"), backend("a---b"))
        assert decided(backend("xn--p1"), backend("xn-p1"), backend("x"))

    def test_an_instance_is_reached_where_it_listens(self):
        found = decided(
            backend("a", one=plan(1, "10.1.1.1")),
            backend("gw", two=plan(2, "127.0.0.1"), three=plan(3, "::")),
            gateway="gw",
        )
        assert [each["address"] for each in found["services"][0]["servers"]] == ["10.1.1.1", "127.0.0.1", "127.0.0.1"]

    def test_loopback_of_another_host_cannot_be_reached(self):
        said = refused(backend("a", chat=plan(8000, "127.0.0.1")), backend("b", chat=plan(8000, "::1")))
        assert "a: chat listens on 127.0.0.1, where the gateway gw cannot reach it" in said
        assert "b: chat listens on ::1" in said

    def test_one_sentence_stands_for_all_replicas_and_hosts(self):
        local = {name: plan(port, "127.0.0.1", replica_of="chat") for name, port in (("chat", 8000), ("chat-2", 8001))}
        said = refused(backend("a", **local), backend("b", **local))
        assert said.count("listens on 127.0.0.1") == 1
        assert "a, b: chat listens on 127.0.0.1, where the gateway gw cannot reach it" in said

    def test_the_followers_of_an_instance_over_hosts_are_no_servers(self):
        found = decided(backend("a"), backend("b", chat=plan(8000, group={"role": "worker"}, listen={})))
        assert [each["name"] for each in found["services"][0]["servers"]] == ["a--chat"]

    def test_prefill_hosts_are_no_servers_and_each_decode_host_is_one(self):
        sides = {"a": "decode", "b": "decode", "c": "prefill"}
        found = decided(*(backend(name, chat=plan(8000, group={"role": role})) for name, role in sides.items()))
        assert [each["name"] for each in found["services"][0]["servers"]] == ["a--chat", "b--chat"]
        # One that is lost does not take the other one out of service.
        assert {each.get("group") for each in found["agent"].values()} == {None}

    def test_the_agent_knows_which_servers_serve_together(self):
        found = decided(
            *(backend(name, chat=plan(8000, group={"role": "peer", "hosts": ["a", "b"]})) for name in ("a", "b")),
            backend("c"),
        )
        groups = {each["name"]: each.get("group") for each in found["agent"].values()}
        assert groups == {"a--chat": "a", "b--chat": "a", "c--chat": None}

    def test_a_key_of_vllms_own_is_refused(self):
        assert "remove VLLM_API_KEY from vllm_secrets.chat" in refused(
            backend("a", chat=plan(8000, secrets=["VLLM_API_KEY"]))
        )

    @pytest.mark.parametrize(
        ("backends", "words"), [((), "names no host"), ((Backend("a", "a", {}),), "none of a has")]
    )
    def test_nothing_to_serve(self, backends, words):
        assert words in refused(*backends)

    def test_too_few_servers(self):
        assert "service chat has 1 servers (a--chat), gateway_min_available is 2" in refused(
            backend("a"), min_available=2
        )

    def test_servers_that_share_no_name_of_a_model_are_no_service(self):
        a, b = backend("a", chat=plan(1, models=["m", "chat"])), backend("b", chat=plan(1, models=["m"]))
        found = decided(a, b)
        assert found["services"][0]["models"] == ["m"]
        assert "not every server accepts every model name" in found["warnings"][0]
        assert "its servers have no model name in common" in refused(a, backend("c", chat=plan(1, models=["x"])))


LORA = {"enable-lora": True, "lora-modules": ["sql=/srv/sql", "crew=/srv/crew"]}


class TestAdapters:
    def rights(self, models):
        found = decided(backend("a", chat=plan(8000, models=["base", "b"], args=LORA)))
        entries = {"alice": {"models": models}}
        (client,), said = with_services([Client("alice", (HASH,))], entries, found["models"])
        assert said == []
        return client.services

    def test_a_key_for_an_adapter_has_no_right_to_another_model(self):
        assert self.rights(["sql"]) == ("chat", "chat=sql")

    def test_a_key_for_the_model_has_its_other_names_too(self):
        assert self.rights(["b"]) == ("chat", "chat=base", "chat=b")

    def test_where_no_adapter_is_a_key_has_all_names_of_the_service(self):
        found = decided(backend("a", chat=plan(8000, models=["base", "b"])))
        assert found["models"] == {"base": ["chat"], "b": ["chat"]}

    def test_routers_would_not_pass_on_the_rights(self):
        group = {"role": "decode", "hosts": ["a"], "router": {"port": 8100}}
        hosts = [backend("a", chat=plan(8000, args=LORA, group=group))]
        assert decided(*hosts)["services"][0]["routed"]
        said = refused(*hosts, clients={"alice": {"models": ["sql"]}})
        assert said.startswith("service chat has adapters and prefill hosts") and "gateway_clients.alice" in said

    def test_a_name_that_no_key_can_be_limited_to(self):
        args = {"lora-modules": ["s ql=/srv/sql"]}
        assert "the model name 's ql'" in refused(backend("a", chat=plan(8000, args=args)))


class TestPorts:
    def test_every_port_is_told_with_the_option_that_sets_it(self):
        found = decided(self.TWO, services={"quick": {"port": 8443}})
        assert found["ports"] == {
            8404: "gateway_stats_port",
            8405: "gateway_agent_port",
            443: "gateway_port or gateway_services.chat",
            8443: "gateway_port or gateway_services.quick",
        }

    TWO = Backend("a", "a", {"chat": plan(1), "quick": plan(2, of="quick", models=["quick"])})

    def test_one_service_needs_no_port_of_its_own(self):
        found = decided(self.TWO, services={"quick": {"port": 8443}})
        assert {each["name"]: each["port"] for each in found["services"]} == {"chat": 443, "quick": 8443}
        assert [(each["name"], each["shared"]) for each in found["listeners"]] == [("quick", False), ("chat", False)]

    @pytest.mark.parametrize("services", [{}, {"chat": {"port": 443}, "quick": {"port": 443}}])
    def test_services_with_the_same_port_share_it(self, services):
        found = decided(self.TWO, services=services)
        (listener,) = found["listeners"]
        assert (listener["name"], listener["services"]) == ("models:443", ["chat", "quick"])
        assert found["ports"][443] == "gateway_port or gateway_services.chat or gateway_services.quick"

    def test_a_shared_port_allows_the_paths_of_all_its_services_once(self):
        (listener,) = decided(self.TWO, services={"quick": {"tasks": ["embedding"]}})["listeners"]
        values = [path["value"] for path in listener["paths"]]
        assert {"/v1/embeddings", "/v1/messages"} < set(values) and len(values) == len(set(values)) == 9

    @pytest.mark.parametrize(
        ("services", "words"),
        [
            ({"chat": {"port": 8405}}, "gateway_services.chat.port: 8405 is the port of gateway_agent_port too; give"),
            ({"chat": {"port": 8404}}, "gateway_services.chat.port: 8404 is the port of gateway_stats_port too; give"),
            ({"chatt": {"port": 1}}, "gateway_services.chatt: no host has an instance of this name; nearest: 'chat'"),
            ({"chat": {"prot": 1}}, "gateway_services.chat: unknown key 'prot'; nearest: 'port'"),
            (
                {"chat": {"port": "443"}},
                "port: found the text '443', expected a whole number from 1 to 65535, without quotes",
            ),
            ({"chat": {"port": True}}, "found true"),
            ({"chat": 443}, "gateway_services.chat: found 443"),
            (
                {"chat": {"affinity": "prefx"}},
                "gateway_services.chat.affinity: found 'prefx', expected one of none, session, prefix, client; nearest",
            ),
            ({"chat": {"affinity": None}}, "gateway_services.chat.affinity: found nothing"),
            ([], "gateway_services: found []"),
        ],
    )
    def test_ports_that_cannot_be(self, services, words):
        assert words in refused(self.TWO, services=services)


class TestAffinity:
    def test_no_client_has_a_server_where_there_are_none(self):
        services = {"chat": {"affinity": "client"}}
        assert "without keys the gateway knows no client" in refused(
            backend("a"), services=services, open=True, clients={}
        )
        (service,) = decided(backend("a"), services=services)["services"]
        assert service["affinity"] == "client"

    def test_the_number_of_a_server_follows_from_its_name(self):
        def numbers(*hosts):
            (service,) = decided(*map(backend, hosts))["services"]
            return {server["name"]: server["id"] for server in service["servers"]}

        few = numbers("a", "b")
        many = numbers("c", "b", "a", *(f"h{n}" for n in range(400)))
        assert few.items() < many.items() and len(set(many.values())) == 403
        assert all(0 < number < 2**31 for number in many.values())


class TestExposure:
    @pytest.mark.parametrize(
        "more", [{"listen": "::1"}, {"listen": "10.0.0.1", "insecure": True}, {"listen": "::", "tls": "own"}]
    )
    def test_what_may_be(self, more):
        assert decided(backend("a"), **more)["services"]

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"listen": "0.0.0.0"}, "keys would go over the network as they are"),
            ({"clients": {}}, "gateway_clients is empty"),
            ({"open": True}, "gateway_open is true, and gateway_clients names alice"),
            ({"listen": "eth0"}, "gateway_listen: found 'eth0'"),
            ({"max_body": -1}, "gateway_max_body: found -1, expected a number from 1, or 0 for no limit"),
            ({"inspect_kib": 0}, "gateway_inspect_kib: found 0, expected a number from 1 to 1024"),
            ({"error_limit": -5}, "gateway_error_limit: found -5, expected a number from 1, or 0 for never"),
            ({"address": "x"}, "gateway_address: found 'x'"),
            ({"address": "10.0.0.9/24"}, "gateway_interface is empty"),
            ({"address": "127.0.0.1/24", "interface": "lo"}, "gateway_listen is gateway_address"),
        ],
    )
    def test_what_may_not(self, more, words):
        assert words in refused(backend("a"), **more)


class TestPaths:
    def test_a_path_of_the_site_is_let_through(self):
        extra = [{"path": "/v1/files/<id>/x.y", "methods": ["GET", "DELETE"]}, {"path": "/v1/embeddings"}]
        assert path_problems(extra) == []
        paths = paths_of(["text"], extra)
        assert paths[-1] == {"methods": "POST", "match": "str", "value": "/v1/embeddings"}
        assert paths[-2]["methods"] == "GET DELETE"
        assert re.search(paths[-2]["value"], "/v1/files/a1/x.y") and not re.search(
            paths[-2]["value"], "/v1/files/a1/xzy"
        )

    @pytest.mark.parametrize(
        "entry", [{"path": "v1"}, {"path": "/a b"}, {"path": "/a'"}, {"path": "/../x"}, {"path": "/x", "method": "GET"},
                  {"path": "/x", "methods": ["get"]}, {"path": "/x", "methods": []}, "/x", {}]
    )  # fmt: skip
    def test_what_is_no_path(self, entry):
        assert len(path_problems([entry])) == 1

    @pytest.mark.parametrize(
        ("tasks", "count", "some"),
        [(["text"], 7, "/v1/messages"), (["omni"], 9, "/v1/audio/transcriptions"), (["embedding"], 4, "/v1/rerank"),
         (["embedding", "rerank"], 4, "/v1/embeddings")],
    )  # fmt: skip
    def test_paths_follow_from_the_tasks_and_come_once(self, tasks, count, some):
        values = [each["value"] for each in paths_of(tasks, [])]
        assert len(values) == len(set(values)) == count and some in values
        assert ("/v1/chat/completions" in values) is (tasks[0] in ("text", "omni"))

    @pytest.mark.parametrize(
        ("arguments", "recipe", "tasks"),
        [
            ({}, (), ("text",)),
            ({}, ("multimodal", "unknown"), ("multimodal",)),
            ({"runner": "generate"}, ("omni",), ("omni",)),
            ({"runner": "pooling"}, ("text",), ("embedding",)),
            ({"runner": "pooling", "convert": "classify"}, (), ("rerank",)),
            ({"task": "transcription"}, (), ("audio",)),
        ],
    )
    def test_arguments_tell_the_task_before_the_recipe(self, arguments, recipe, tasks):
        assert tasks_of(arguments, recipe) == tasks

    def test_a_service_has_the_paths_of_its_recipe_or_those_that_are_requested(self):
        def values(**more):
            (service,) = decided(Backend("a", "a", {"chat": plan(1)}, {"chat": ["embedding"]}), **more)["services"]
            return [path["value"] for path in service["paths"]]

        assert "/v1/embeddings" in values() and "/v1/chat/completions" not in values()
        assert "/v1/chat/completions" in values(services={"chat": {"tasks": ["text"]}})

    @pytest.mark.parametrize(
        ("tasks", "words"),
        [(["embeding"], "services.chat.tasks: found 'embeding', expected the name of a task; nearest: 'embedding'"),
         ("text", "found 'text', expected a list such as [text]"), ([], "found []"), ([["text"]], "found ['text']")],
    )  # fmt: skip
    def test_tasks_that_cannot_be(self, tasks, words):
        assert words in refused(backend("a"), services={"chat": {"tasks": tasks}})


class TestClients:
    def test_the_models_of_a_service_stand_behind_it(self):
        maps = maps_of([Client("alice", (HASH,), services=("chat", "chat=sql", "chat=crew", "quick"))])
        assert describe_maps(maps)["alice"]["services"] == ["chat (crew, sql)", "quick"]

    def test_only_the_hash_of_a_key_goes_on(self):
        client = Client("alice", hashes_of(f"{KEY}\n\n{'x' * 32}\n"), 60, 0)
        maps = maps_of([client, Client("bob", ("0" * 64,))])
        assert maps["clients.map"][HASH] == "alice" and len(maps["clients.map"]) == 3
        assert (maps["rates.map"], maps["concurrent.map"]) == ({"alice": "60"}, {})
        assert KEY not in str(maps) and parse_map(map_text(maps["clients.map"])) == maps["clients.map"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [("", "is empty"), ("\n \n", "is empty"), ("short", "key 1 has 5 characters"), (f"{KEY}\nshort", "key 2 has 5"),
         ("a b" * 20, "characters that are invalid in a bearer"), ("$ANSIBLE_VAULT;1.1;AES256\n6162", "ansible-vault")],
    )  # fmt: skip
    def test_a_file_that_holds_no_key(self, text, words):
        with pytest.raises(KeyFileError, match=words) as caught:
            hashes_of(text)
        assert "short" not in str(caught.value)

    @pytest.mark.parametrize(
        ("wanted", "words"),
        [
            ({"a b": {"key_file": "/k"}}, "expected a name"),
            ({"a": "/k"}, "found a text, expected a mapping with key_file"),
            ({"a": {}}, "gateway_clients.a.key_file"),
            ({"a": {"key_file": "/k", "rates": 1}}, "unknown key 'rates'; nearest: 'rate'"),
            ({"a": {"key_file": "/k", "rate": 0}}, "gateway_clients.a.rate: found 0"),
            ({"a": {"key_file": "/k", "rate": 10**30}}, "expected a whole number from 1 to 1000000000; leave rate out"),
            ({"a": {"key_file": "/k", "concurrent": "8"}}, "gateway_clients.a.concurrent: found the text '8'"),
            ({"a": {"key_file": "/k", "models": []}}, "gateway_clients.a.models: found []"),
            ({"a": {"key_file": "/k", "models": "chat"}}, "found 'chat', expected a list of model names"),
            (
                {"a": {"key_file": "/k", "expires": "31.3.2027"}},
                "gateway_clients.a.expires: found '31.3.2027', expected a date such as 2027-03-31",
            ),
            ({"a": {"key_file": "/k", "sha256": [HASH]}}, "has key_file and sha256; remove one of the two"),
            ({"a": {"sha256": HASH}}, "gateway_clients.a.sha256: found a text, expected a list"),
            ({"a": {"sha256": []}}, "expected a list of texts of 64 digits"),
            ({"a": {"sha256": [KEY]}}, "characters, expected 64 digits"),
            ({"a": {"sha256": [HASH.upper()]}}, "sha256[0]: found capital letters, expected 64 digits"),
            (["a"], "expected a mapping of names"),
        ],
    )
    def test_clients_that_cannot_be(self, wanted, words):
        (said,) = check_clients(wanted)
        assert words in said and KEY not in said

    def test_the_controller_needs_no_key(self):
        entries = {"a": {"sha256": [HASH, HASH, "0" * 64], "rate": 5, "expires": datetime.date(2027, 3, 31)}}
        clients, problems = read_clients(entries)
        assert (problems, clients) == ([], [Client("a", (HASH, "0" * 64), 5, ends=1806537600)])
        assert "a and b have the same key" in read_clients({**entries, "b": {"sha256": [HASH]}})[1][0]

    def test_the_last_day_ends_at_midnight_in_utc(self):
        assert end_of(datetime.date(2027, 3, 31)) == end_of("2027-03-31") == 1806537600
        assert time.gmtime(1806537600)[:6] == (2027, 4, 1, 0, 0, 0) and end_of(None) == 0
        client = Client("a", (HASH,), ends=1806537600)
        assert maps_of([client, Client("b", ("0" * 64,))])["ends.map"] == {"a": "1806537600"}
        after = maps_of([Client("a", (HASH,))])
        assert differences(maps_of([client]), after)["changed"] == ["a"]

    def test_a_run_warns_of_keys_that_end(self):
        clients = [Client("a", (HASH,), ends=1806537600), Client("b", (HASH,))]
        assert ending(clients, 1806537600 - 15 * 86400) == []
        (soon,) = ending(clients, 1806537600 - 1)
        (over,) = ending(clients, 1806537600)
        assert soon == "gateway_clients.a: its keys expire on 2027-03-31; give it a new expires"
        assert over.startswith("gateway_clients.a: its keys expired on 2027-03-31; remove it")

    def test_a_key_belongs_to_one_client(self):
        assert "a and b have the same key" in shared_keys([Client("a", (HASH,)), Client("b", (HASH,))])[0]

    def test_haproxy_is_told_what_is_new_before_what_goes(self):
        assert commands("/m", {"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
            "set map /m b 3",
            "add map /m c 4",
            "del map /m a",
        ]
        assert commands("/m", {"a": "1"}, {"a": "1"}) == []

    def test_differences_name_clients(self):
        before = maps_of([Client("a", ("1",)), Client("b", ("2",), 5), Client("c", ("3",))])
        after = maps_of([Client("b", ("2",), 6), Client("c", ("3",)), Client("d", ("4",))])
        assert differences(before, after) == {"added": ["d"], "removed": ["a"], "changed": ["b"]}

    def test_a_client_has_the_services_of_its_models(self):
        entries = {"a": {}, "b": {"models": ["chat", "embed"]}, "c": {"models": ["chatt", 5]}}
        models = {"chat": ["chat", "next"], "embed": ["vec"], "quick": ["quick"]}
        found, problems = with_services([Client(name, ("1",)) for name in entries], entries, models)
        assert [client.services for client in found] == [("*",), ("chat", "next", "vec"), ()]
        assert problems[0] == "gateway_clients.c.models: no service accepts 'chatt'; nearest: 'chat'"
        assert len(problems) == 2 and "accepts 5" in problems[1]
        assert sorted(maps_of(found)["rights.map"]) == ["a:*", "b:chat", "b:next", "b:vec"]

    def test_rights_are_a_difference_and_none_are_all(self):
        old = maps_of([Client("a", ("1",)), Client("b", ("2",))])
        new = maps_of([Client("a", ("1",)), Client("b", ("2",), services=("chat",))])
        assert differences(old, new)["changed"] == ["b"]
        del old["rights.map"]
        assert differences(old, new)["changed"] == ["b"]

    def test_a_diff_shows_no_hash(self, tmp_path):
        given = [{"name": "alice", "sha256": [HASH], "rate": 5}]
        where = {"directory": str(tmp_path), "socket": str(tmp_path / "s"), "group": "root"}
        result = run_module("gateway_keys", clients=given, _ansible_diff=True, **where)
        assert result["changed"] and not result["running"]
        after = "alice: keys 1, rate 5, concurrent any, services any, expires never\n"
        assert result["diff"] == {"before": "", "after": after}
        assert (tmp_path / "clients.map").stat().st_mode & 0o777 == 0o640
        again = run_module("gateway_keys", clients=given, **where)
        assert not again["changed"]


class TestShapes:
    @pytest.mark.parametrize("name", ["clients", "teams", "services", "models", "paths"])
    @pytest.mark.parametrize("value", [["a"], "words", 5, [{"a": 1}]])
    def test_another_kind_of_value_is_one_sentence(self, name, value):
        with pytest.raises(GatewayError) as caught:
            decide("gw", [backend("a")], plain_options({**options(), name: value}))
        said = str(caught.value).splitlines()
        assert len(said) == 1 and said[0].startswith(f"gateway_{name}"), said
        assert re.search(r"found .*, expected |unknown key 'a'; ", said[0]), said

    def test_nothing_is_an_empty_list_or_mapping_and_names_are_texts(self):
        names = ("clients", "teams", "services", "models", "paths")
        found = plain_options({**options(), **dict.fromkeys(names)})
        assert [found[name] for name in names] == [{}, {}, {}, {}, []]
        with pytest.raises(GatewayError, match="gateway_clients is empty"):
            decide("gw", [backend("a")], found)
        found = plain_options({**options(), "services": {1: {"port": 5}}})
        assert found["services"] == {"1": {"port": 5}}

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (
                {"certificate": "/srv/a.pem"},
                "gateway_certificate: found '/srv/a.pem', which has no effect, because gateway",
            ),
            ({"certificate_key": "/srv/a.key"}, "gateway_certificate_key: found '/srv/a.key', which has no effect, "),
            (
                {"interface": "eth0"},
                "gateway_interface: found 'eth0', which has no effect, because gateway_address is empty",
            ),
        ],
    )
    def test_what_another_option_keeps_from_having_an_effect_is_a_warning(self, more, words):
        (warning,) = decided(backend("a"), tls="own", **more)["warnings"]
        assert warning.startswith(words)
        used = {"tls": "files", "address": "10.0.0.9/24", "interface": "eth0", **more}
        assert decided(backend("a"), **used)["warnings"] == []
