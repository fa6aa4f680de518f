# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a gateway chooses a service by the model of a request, where several services share a port."""

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Protocol, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number

MODEL_OPTIONS = ("fallback", "services")
# What gateway-body.lua accepts as a name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,255}\Z")


class Service(Protocol):
    """What is read of a service."""

    name: str
    port: int
    models: list[str]
    adapters: list[str]

    @property
    def limited(self) -> list[str]:
        """The models to which a key may be limited within the service."""


@dataclass(frozen=True)
class Route:
    """The services of a model name with their shares of the requests, and the service that replaces all of them."""

    model: str
    shares: Mapping[str, int]
    fallback: str = ""
    # The condition of HAProxy by which a key may use the model at a service.
    rights: Mapping[str, str] = field(default_factory=dict)

    @property
    def services(self) -> list[str]:
        """All services that may get a request."""
        return [*self.shares, *([self.fallback] if self.fallback else [])]

    def as_dict(self) -> dict[str, Any]:
        """Return the route as the template expects it.

        ``targets`` have ``below``: a service gets a request if the number that was drawn is less. All numbers are
        less than ``total``.
        """
        targets, below = [], 0
        for service, share in self.shares.items():
            below += share
            targets.append({"service": service, "below": below})
        return {
            "model": self.model,
            "targets": targets,
            "total": below,
            "fallback": self.fallback,
            "rights": dict(self.rights),
        }


@dataclass
class Listener:
    """A port with its services; the first one that fits gets the requests that name no model."""

    port: int
    services: list[str] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)

    @property
    def shared(self) -> bool:
        """Whether the model of a request chooses the service."""
        return len(self.services) > 1

    def as_dict(self) -> dict[str, Any]:
        """Return the listener as the template expects it."""
        return {
            # Not with the prefix of the gateway's own proxies: its counters are those of requests.
            "name": f"models:{self.port}" if self.shared else self.services[0],
            "port": self.port,
            "services": self.services,
            "shared": self.shared,
            "routes": [route.as_dict() for route in self.routes],
        }


def listeners_of(
    services: Mapping[str, Service], order: Sequence[str], entries: Any
) -> tuple[list[Listener], list[str]]:
    """Return the listeners of all services by port, and the problems of ``entries``, the option gateway_models.

    ``order`` names the services that come first where they share a port.
    """
    if not isinstance(entries, Mapping):
        return [], [
            f"gateway_models: found {show_value(entries)}, expected a mapping of model names to {{services: ...}}"
        ]
    found: dict[int, Listener] = {}
    for name in dict.fromkeys((*(name for name in order if name in services), *services)):
        found.setdefault(services[name].port, Listener(services[name].port)).services.append(name)
    shared = [name for listener in found.values() if listener.shared for name in listener.services]
    accepting = _accepting([services[name] for name in shared])
    problems = [text for model, entry in entries.items() for text in _problems(str(model), entry, accepting)]
    problems += [] if problems else _ambiguous(accepting, entries, services)
    problems += [
        f"service {name}: a gateway cannot find the model name {model!r} in a request, expected at most 256 letters, "
        "digits and ._:/@+-; change served_model_names, or give the service its own port"
        for name in shared
        for model in services[name].models
        if not _NAME.match(model)
    ]
    problems += [
        f"service {name}: keys cannot be limited to the model name {model!r} of a service with adapters, expected at "
        "most 256 letters, digits and ._:/@+-; change lora-modules or served_model_names"
        for name in services
        for model in services[name].limited
        if name not in shared and not _NAME.match(model)
    ]
    if not problems:
        for listener in found.values():
            listener.routes = [
                _route(model, names, entries.get(model, {}), services)
                for model, names in accepting.items()
                if names[0] in listener.services
            ]
    return list(found.values()), problems


def services_by_model(services: Mapping[str, Service], listeners: Sequence[Listener]) -> dict[str, list[str]]:
    """Return the rights that a key needs for each model name: services, and models of those that have adapters."""
    found = _accepting(services.values())
    found.update({route.model: route.services for listener in listeners for route in listener.routes})
    return {
        model: [*names, *(right for name in names for right in _rights_of(services[name], model))]
        for model, names in found.items()
    }


def _rights_of(service: Service, model: str) -> list[str]:
    """Return the rights within a service with adapters: that to an adapter, or those to each name of its own model."""
    if model in service.adapters:
        return [f"{service.name}={model}"] if model in service.limited else []
    return [f"{service.name}={name}" for name in service.limited if name not in service.adapters]


def _condition_of(service: Service, model: str) -> str:
    """Return the name of HAProxy's condition by which a key may use a model, with a number in place of the model."""
    return f"may:{service.name}" + (f":{service.limited.index(model)}" if model in service.limited else "")


def _accepting(services: Any) -> dict[str, list[str]]:
    """Return the names of the services that accept each model name."""
    found: dict[str, list[str]] = {}
    for service in services:
        for model in service.models:
            found.setdefault(model, []).append(service.name)
    return found


def _route(model: str, accepting: Sequence[str], entry: Mapping[str, Any], services: Mapping[str, Service]) -> Route:
    fallback = str(entry.get("fallback") or "")
    own = [name for name in accepting if name != fallback]
    shares = entry.get("services") or dict.fromkeys(own, 1)
    rights = {name: _condition_of(services[name], model) for name in accepting}
    return Route(model, {name: share for name, share in shares.items() if share}, fallback, rights)


def _problems(model: str, entry: Any, accepting: Mapping[str, Sequence[str]]) -> list[str]:
    where = f"gateway_models.{model}"
    if not accepting:
        return [
            f"{where}: no services share a port, so no request is routed by its model; give services the same port in "
            "gateway_services, or remove gateway_models"
        ]
    if model not in accepting:
        return [
            f"{where}: no service that shares a port accepts this name; {nearest(model, accepting)}; "
            "for a new name, add it to served_model_names of the instances"
        ]
    if not isinstance(entry, Mapping):
        return [f"{where}: found {show_value(entry)}, expected {{services: {{NAME: SHARE}}, fallback: NAME}}"]
    found = [
        f"{where}: unknown key {show_value(key)}; {nearest(str(key), MODEL_OPTIONS)}"
        for key in entry
        if key not in MODEL_OPTIONS
    ]
    shares = entry.get("services", {})
    if not isinstance(shares, Mapping) or ("services" in entry and not any(shares.values())):
        example = ", ".join(f"{name}: {share}" for name, share in zip(accepting[model], (90, 10)))
        return [
            *found,
            f"{where}.services: found {show_value(shares)}, expected services with their shares, as {{{example}}}",
        ]
    for name, share in shares.items():
        found += _not_accepting(f"{where}.services", str(name), model, accepting)
        if isinstance(share, bool) or not isinstance(share, int) or not 0 <= share <= 1000:
            found.append(f"{where}.services.{name}: {not_a_number(share, 'a whole number from 0 to 1000')}")
    fallback = entry.get("fallback")
    if fallback is not None and not isinstance(fallback, str):
        found.append(f"{where}.fallback: found {show_value(fallback)}, expected the name of a service")
    elif fallback is not None:
        found += _not_accepting(f"{where}.fallback", str(fallback), model, accepting)
        if accepting[model] == [fallback]:
            found.append(f"{where}.fallback: {fallback} is the only service that accepts {model}; remove it")
        if fallback in shares:
            found.append(f"{where}.fallback: {fallback} is one of its services too; remove it from one of the two")
    return found


def _not_accepting(where: str, service: str, model: str, accepting: Mapping[str, Sequence[str]]) -> list[str]:
    if service in accepting[model]:
        return []
    known = {name for names in accepting.values() for name in names}
    if service not in known:
        return [f"{where}: {service!r} is not a service that shares a port; {nearest(service, known)}"]
    return [f"{where}: {service} does not accept the name {model}; add it to served_model_names of its instances"]


def _ambiguous(
    accepting: Mapping[str, Sequence[str]], entries: Mapping[str, Any], services: Mapping[str, Service]
) -> list[str]:
    """Return a problem for each name whose service is not decided, or whose services have different ports."""
    problems = []
    for model, names in accepting.items():
        route = _route(model, names, entries.get(model, {}), services)
        if len({services[name].port for name in names}) > 1:
            problems.append(
                f"model {model}: the services {', '.join(names)} accept this name on different ports; "
                "give them the same port in gateway_services, or different served_model_names"
            )
        elif len(names) > 1 and "services" not in entries.get(model, {}) and len(route.shares) != 1:
            shares = ", ".join(f"{name}: {share}" for name, share in zip(names, (90, 10, 0)))
            problems.append(
                f"model {model}: the services {', '.join(names)} accept this name; choose in gateway_models, as "
                f"{{{model}: {{services: {{{shares}}}}}}}"
            )
    return problems
