# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run says at its end: where the models are served, what clients need, and the next command. No secrets."""

from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.vllm.plan_document import INNER, PlanDocument
from ..common.tables import hosts_in_words
from ..planning.groups import bracketed
from .services import EVERYWHERE

# Models, keys or hosts of a line, and lines of addresses.
MOST, MOST_LINES = 6, 12
# The port that a URL need not name.
USUAL = {"http": 80, "https": 443}


def urls_of(address: str, has_tls: bool, listeners: Iterable[Mapping[str, Any]], models: Mapping[str, Any]) -> Any:
    """Return the URLs of a gateway, each with its models; ``models`` has those of each service."""
    scheme = "https" if has_tls else "http"
    return {
        _url(scheme, address, each["port"]): list(
            dict.fromkeys(model for service in each["services"] for model in models[service])
        )
        for each in listeners
    }


def first_instance(plans: Mapping[str, Mapping[str, PlanDocument]]) -> list[str]:
    """Return a host and an instance of it that answers, such as one to chat with; empty where there is none."""
    return next(([host, name] for host, own in plans.items() for name, plan in own.items() if _answers(plan)), [])


def of_gateways(plans: Mapping[str, Mapping[str, Any]], is_check: bool) -> list[str]:
    """Return the lines of a site with gateways, from ``gateway_served`` of each."""
    if not plans:
        return []
    urls: dict[str, tuple[list[str], list[str]]] = {}
    for gateway, plan in plans.items():
        for url, models in plan["urls"].items():
            urls.setdefault(url, ([], models))[0].append(gateway)
    keys = {name: path for plan in plans.values() for name, path in plan["key_files"].items()}
    needs = [
        f"the certificate of the CA ({path})" for path in sorted({plan["authority"] for plan in plans.values()} - {""})
    ]
    needs += [] if all(plan["open"] for plan in plans.values()) else ["a key"]
    return [
        _heading(is_check),
        *_few(f"  {url} ({hosts_in_words(each, MOST)}): {_listed(models)}" for url, (each, models) in urls.items()),
        *([f"Clients need {' and '.join(needs)}."] if needs else []),
        *([f"Keys: {_listed([f'{name} in {path}' for name, path in keys.items()])}."] if keys else []),
        *(["Another key: `inference key add NAME --team TEAM`."] if "a key" in needs else []),
        _next(next((plan["first"] for plan in plans.values() if plan["first"]), [])),
    ]


def of_hosts(
    plans: Mapping[str, Mapping[str, PlanDocument]], addresses: Mapping[str, str], is_check: bool
) -> list[str]:
    """Return the lines of a site without a gateway, from plans and address of each host; empty where nothing serves."""
    found: dict[tuple[str, str], list[str]] = {}
    for host, own in plans.items():
        for plan in own.values():
            if _answers(plan):
                listen = str(plan["listen"]["host"])
                url = _url("http", addresses[host] if listen in EVERYWHERE else listen, plan["listen"]["port"])
                found.setdefault((url, _listed(plan["served_model_names"])), []).append(host)
    if not found:
        return []
    return [
        f"{_heading(is_check)[:-1]} by each host itself, because the site has no gateway:",
        *_few(f"  {url} on {hosts_in_words(hosts, MOST)}: {models}" for (url, models), hosts in found.items()),
        _next(first_instance(plans)),
    ]


def _answers(plan: PlanDocument) -> bool:
    """Return whether an instance answers clients: of one over several hosts, only the first one does."""
    return plan.get("group", {}).get("role") not in INNER and "port" in plan["listen"]


def _heading(is_check: bool) -> str:
    return "Would be served:" if is_check else "Served:"


def _url(scheme: str, address: str, port: int) -> str:
    return f"{scheme}://{bracketed(address)}{'' if port == USUAL[scheme] else f':{port}'}/v1"


def _listed(words: Sequence[str]) -> str:
    return hosts_in_words([str(word) for word in words], MOST)


def _few(lines: Iterable[str]) -> list[str]:
    first = list(lines)
    more = [f"  and {len(first) - MOST_LINES} more"] if len(first) > MOST_LINES else []
    return [*first[:MOST_LINES], *more]


def _next(first: Sequence[str]) -> str:
    chat = f", or `inference chat {' '.join(first)} QUESTION`" if first else ""
    return f"Next: `inference verify`{chat}."
