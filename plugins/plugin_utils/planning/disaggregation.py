# SPDX-License-Identifier: GPL-3.0-or-later
"""Disaggregated prefill and decode: some hosts compute prompts, others the answers (upstream's ``pd_cluster``).

Each host runs a whole vLLM. vllm-router on a host of ``decode`` has one of ``prefill`` compute the prompt, and vLLM on
its own host the answer, which fetches the KV cache from there with its connector.
"""

import re
from typing import Any, Collection, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.vllm.plan_document import DECODE, PREFILL, RouterDocument
from ..common.versions import sort_key
from ..options.table import OptionTable
from .compose import Layer
from .hardware import Accelerator
from .inputs import PlanError
from .locks import DEFAULT_PYTHON
from .nics import nic_environment
from .strategies import DISAGGREGATED as STRATEGY
from .strategies import MULTI_NODE

SIDES = (DECODE, PREFILL)
ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
CONFIG = "kv-transfer-config"
# What becomes of a request whose transfer fails. Releases that are too old for this cannot be told.
POLICY = "kv_load_failure_policy"
# The first TCP port of the connector: vLLM's default for NIXL. AscendDirectTransport, below Mooncake, takes any of
# MOONCAKE_PORTS for each chip of the host from MOONCAKE_FIRST on; vllm-ascend recommends the ports behind them, of 8
# chips or 16 (docs/source/tutorials/features/pd_disaggregation_mooncake_multi_node.md of 0.23.0).
NIXL_PORT = 5600
MOONCAKE_FIRST, MOONCAKE_PORTS = 20000, 1000
# Of the network ports of the chips, for Mooncake; the same page mounts it into containers.
HCCN = "/etc/hccn.conf"
# Ports of the router: requests, and its own metrics on loopback after it.
ROUTER_PORT = 8300
ROUTER_BYTES = 128 << 20
EVERYWHERE = ("0.0.0.0", "::", "*", "")  # noqa: S104  (compared only)
_NIXL = re.compile(r"(?m)^nixl[=~ @-]")


def side_of(host: str, requested: Mapping[str, Any]) -> str:
    """Return ``prefill`` or ``decode``, empty for an instance without the two."""
    return next((side for side in SIDES if host in (requested.get(side) or ())), "")


def inner_strategy(recipe: Mapping[str, Any], side: str, requested: str | None, where: str) -> str | None:
    """Return the strategy that is requested for each host itself; None for the recipe's preferred one.

    Raises PlanError for one that spans hosts.
    """
    if requested in MULTI_NODE:
        raise PlanError(
            f"{where}.strategy: {requested} splits the model over hosts, but each host of prefill and decode runs a "
            f"whole vLLM; expected {STRATEGY}, or the strategy within each host, such as single_node_tp"
        )
    if requested not in (None, STRATEGY):
        return requested
    return "single_node_dep" if _override(recipe, side).get("parallelism") == "dep" else None


def _override(recipe: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """Return what the recipe says about this side."""
    found = ((recipe.get("strategy_overrides") or {}).get(STRATEGY) or {}).get(side)
    return found if isinstance(found, Mapping) else {}


def check_release(table: OptionTable, others: Sequence[OptionTable], release: str, where: str) -> None:
    """Raise PlanError where a release cannot report failed transfers; the error names the first one that can."""
    if _can(table):
        return
    able = sorted((each.version for each in others if _can(each)), key=sort_key)
    way_out = f"choose vllm_release {able[0]!r} or newer" if able else "remove prefill and decode"
    raise PlanError(
        f"{where}.prefill: needs {CONFIG}.{POLICY}, which vLLM {table.version} (release {release!r}) does not have; "
        f"{way_out}"
    )


def _can(table: OptionTable) -> bool:
    return POLICY in ((table.flags.get(CONFIG) or {}).get("keys") or {})


def check_software(stack: Mapping[str, Any], runtime: str, release: str, where: str) -> None:
    """Raise PlanError for a virtual environment without NIXL. The vendors' images contain their connector."""
    if runtime == "venv" and not _NIXL.search(stack.get("requirements_text") or ""):
        raise PlanError(
            f"{where}.prefill: {stack['requirements']}, the lock of release {release!r}, has no nixl, which transfers "
            "the KV cache; use the runtime 'container', or a release of your own whose lock has it "
            "(docs/operate/prefill-and-decode.md)"
        )


def check_requested(args: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for arguments that do not fit."""
    if "ssl-certfile" in args:
        raise PlanError(
            f"{where}.args.ssl-certfile: cannot be set together with prefill and decode, whose hosts talk plain HTTP "
            "in their own network; a gateway serves TLS"
        )


def port_of(accelerator: Accelerator, requested: Mapping[str, Any]) -> int:
    """Return the first TCP port of the connector on each host."""
    if accelerator.stack != "cann":
        return int(requested.get("group_port", NIXL_PORT))
    return int(requested.get("group_port", MOONCAKE_FIRST + MOONCAKE_PORTS * max(8, accelerator.count)))


def mounted_for(role: str, accelerator: Accelerator) -> list[str]:
    """Return the files of the host that the connector of a container reads."""
    return [HCCN] if role in SIDES and accelerator.stack == "cann" else []


def transport_ports(accelerator: Accelerator) -> str:
    """Return the range of the ports that the transport of a host takes besides, empty for none."""
    last = MOONCAKE_FIRST + MOONCAKE_PORTS * accelerator.count - 1
    return f"{MOONCAKE_FIRST}-{last}" if accelerator.stack == "cann" else ""


def router_of(
    address: str, listen: Mapping[str, Any], requested: Mapping[str, Any], root: str, lock: Mapping[str, Any]
) -> RouterDocument:
    """Return the router of a decode host, which listens where its vLLM does; ``address`` is that of the host.

    ``lock`` is what its virtual environment below ``root`` is made from.
    """
    port, host = int(requested.get("router_port", ROUTER_PORT)), str(listen["host"])
    own = address if host in EVERYWHERE else host
    return {
        "host": host,
        "port": port,
        "metrics": port + 1,
        "decode": f"http://{f'[{own}]' if ':' in own else own}:{listen['port']}",
        "venv": {
            "name": lock["name"],
            "path": f"{root}/{lock['name']}-{lock['requirements_sha256'][:12]}",
            "requirements": lock["requirements"],
            "locks": lock["locks"],
            "python": DEFAULT_PYTHON,
            "size_bytes": ROUTER_BYTES,
        },
    }


def layers(
    recipe: Mapping[str, Any],
    side: str,
    accelerator: Accelerator,
    place: Mapping[str, Any],
    fabric: Mapping[str, Any],
    names: Collection[str],
) -> list[Layer]:
    """Return the arguments and variables of one side.

    ``place`` has the host's ``address``, ``interface`` and ``port`` in the network of the groups, and the sizes
    ``tensor`` and ``data`` of its parallelism. ``names`` are the variables that the release reads.
    """
    own = _override(recipe, side)
    where = f"strategy_overrides.{STRATEGY}.{side}"
    words = own.get("vllm_args") or own.get("extra_args") or ()
    found = [Layer(where, words, own.get("env") or {}, by_recipe=True)] if own else []
    if accelerator.stack == "cann":
        return [*found, _mooncake(side, place)]
    config: dict[str, Any] = {"kv_connector": "NixlConnector", "kv_role": ROLES[side], POLICY: "fail"}
    env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": place["address"], "VLLM_NIXL_SIDE_CHANNEL_PORT": str(place["port"])}
    if accelerator.stack == "cpu":
        config["kv_buffer_device"] = "cpu"
        env |= {"UCX_TLS": "tcp", "UCX_NET_DEVICES": place["interface"]}
    elif nics := nic_environment(accelerator, names, fabric.get("hca") or ()):
        env |= nics
    elif fabric.get("hca"):
        # UCX wants the port of each device; cards of servers have one.
        env["UCX_NET_DEVICES"] = ",".join(f"{device}:1" for device in fabric["hca"])
    return [*found, Layer(STRATEGY, {CONFIG: config}, env, f"{side} host: {side_words(side)}")]


def side_words(side: str) -> str:
    """Return what the hosts of a side do."""
    return "computes prompts" if side == PREFILL else "computes answers"


def _mooncake(side: str, place: Mapping[str, Any]) -> Layer:
    """Return vllm-ascend's connector. The sizes of both sides are the same, as the chips of all hosts are."""
    sizes = {"dp_size": place["data"], "tp_size": place["tensor"]}
    config = {
        "kv_connector": "MooncakeConnectorV1",
        "kv_role": ROLES[side],
        "kv_port": place["port"],
        "engine_id": str(place["rank"]),
        "kv_connector_extra_config": {PREFILL: sizes, DECODE: sizes},
        POLICY: "fail",
    }
    return Layer(STRATEGY, {CONFIG: config}, {}, f"{side} host: {side_words(side)}")


def check_sides(requested: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for malformed hosts of the two sides, before their names are looked up."""
    given = [side for side in SIDES if requested.get(side) is not None]
    if not given:
        return
    if requested.get("nodes"):
        raise PlanError(f"{where}.nodes: found together with {given[0]}; expected nodes, or prefill and decode")
    for side in dict.fromkeys((*given, *SIDES)):
        hosts = requested.get(side)
        if not (isinstance(hosts, str) and hosts) and not (
            isinstance(hosts, list) and hosts and all(isinstance(each, str) for each in hosts)
        ):
            raise PlanError(
                f"{where}.{side}: found {show_value(hosts)}, expected a list of hosts or the name of an Ansible "
                "group, for prefill and for decode"
            )


def check_distinct(sides: Sequence[Sequence[str]], where: str) -> None:
    """Raise PlanError where a host is named twice."""
    named = [host for hosts in sides for host in hosts]
    twice = [host for host in dict.fromkeys(named) if named.count(host) > 1]
    if twice:
        raise PlanError(f"{where}.prefill: {twice[0]} is named twice in prefill and decode; expected each host once")
