# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a whole fleet, made on the controller: no host is asked, and equal hosts cost one plan.

What a host would be served with follows from its variables as Ansible has them, below them the role's own defaults.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import jinja2
import jinja2.nodes
import yaml
from ansible import template as ansible_template
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import (
    UNKNOWN,
    AcceleratorError,
    Catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.group_names import MODEL_PREFIX as GROUP
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.group_names import models_of_groups
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.tables import hosts_in_words
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTableError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

ROLES = Path(__file__).resolve().parents[3] / "roles"
TEMPLATES = ROLES / "vllm" / "templates"

# What plan_host is told -> the variable of the role vllm that says it.
SETTINGS = {
    "instances": "vllm_instances",
    "release": "vllm_release",
    "runtime": "vllm_runtime",
    "strict": "vllm_strict",
    "recipe_path": "vllm_recipe_path",
    "release_path": "vllm_release_path",
    "weights_manifest_path": "vllm_weights_manifest_path",
    "weights_root": "vllm_weights_root",
    "encodings_dir": "vllm_encodings_dir",
    "config_dir": "__vllm_config_dir",
    "cache_root": "__vllm_cache_dir",
    "venv_root": "vllm_venv_root",
    "drain_timeout": "vllm_drain_timeout",
    "image": "vllm_image",
    "registry": "vllm_registry",
}
SECRETS = "vllm_secrets"
# What says which accelerator a host has; the catalogue's directories are a variable of the role accelerator.
HARDWARE = (
    "accelerator", "accelerator_count", "accelerator_memory_gib", "accelerator_driver_version",
    "accelerator_cuda_version", "accelerator_mec_firmware", "accelerator_catalog_path", "accelerator_detected",
)  # fmt: skip
# What conditions of recipes ask about and only a host itself knows.
FACTS = ("driver_version", "cuda_version", "mec_firmware")

Variables = Mapping[str, Any]
Planner = Callable[[str, Accelerator, Mapping[str, Any]], Mapping[str, Mapping[str, Any]]]


class FleetError(ValueError):
    """Hosts that cannot be planned; the message has a line for each problem with its hosts."""


@dataclass(frozen=True)
class Alike:
    """Hosts whose plans differ in nothing but the host's name, with the variables that they were made from."""

    hosts: list[str]
    plans: Mapping[str, Mapping[str, Any]]
    variables: Variables


@dataclass
class Fleet:
    """What all hosts are served with; ``problems`` maps a sentence to the hosts that it is about."""

    groups: list[Alike] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def check(self, consequence: str) -> None:
        """Raise FleetError with all problems of all hosts; ``consequence`` says what was not done for that reason."""
        if not self.problems:
            return
        hosts = {host for names in self.problems.values() for host in names}
        total = len(hosts) + len(self.skipped) + sum(len(group.hosts) for group in self.groups)
        lines = [f"{hosts_in_words(names)}: {text}" for text, names in self.problems.items()]
        raise FleetError(f"{consequence}: {len(hosts)} of {total} hosts cannot be planned.\n" + "\n".join(lines))

    def plans(self) -> list[dict[str, Any]]:
        """Return each distinct plan once, with ``hosts`` in place of ``host``."""
        return [
            {"hosts": group.hosts, **{key: value for key, value in plan.items() if key != "host"}}
            for group in self.groups
            for plan in group.plans.values()
        ]

    def notes(self) -> list[str]:
        """Return what is to be said of hosts without instances, and the warnings of the plans."""
        about: dict[str, list[str]] = {}
        for group in self.groups:
            for plan in group.plans.values():
                for text in plan.get("warnings") or []:
                    known = about.setdefault(text, [])
                    known += [host for host in group.hosts if host not in known]
        skipped = [f"skipped, for there are no vllm_instances: {hosts_in_words(self.skipped)}"] if self.skipped else []
        return skipped + [f"{hosts_in_words(hosts)}: {text}" for text, hosts in about.items()]


class HostReader:
    """Reads the few variables of a host that matter, as plain data.

    To template a value takes longer than all else that is done for a host. So values without a template are not
    templated, and the others once for each different set of the variables that they name.
    """

    def __init__(self, hostvars: Any, loader: Any) -> None:
        self._hostvars = hostvars
        self._loader = loader
        self._known: dict[int, tuple[Any, str | None]] = {}
        self._templated: dict[Any, str] = {}

    def read(self, host: str) -> tuple[tuple[str, str], ...]:
        """Return pairs of name and JSON text; equal for hosts that are served alike. Raises FleetError."""
        own = dict(self._hostvars.raw_get(host))
        # A cached fact is a variable of its own only where Ansible is told to make it one.
        own.setdefault("accelerator_detected", (own.get("ansible_facts") or {}).get("accelerator_detected"))
        names = [*needed(), *(name for name in HARDWARE if own.get(name) is not None)]
        variables = {**_defaults(), **own, **constants()}
        templar = Templar(loader=self._loader, variables={**variables, "hostvars": self._hostvars})
        pairs = [(name, self._json(name, variables[name], templar)) for name in names if name in variables]
        pairs.append((SECRETS, json.dumps(self._secret_names(variables.get(SECRETS) or {}, templar))))
        if own.get("accelerator") is None:
            groups = [name for name in own.get("group_names") or [] if name.startswith(GROUP)]
            pairs.append(("group_names", json.dumps(groups)))
        return tuple(pairs)

    def _json(self, name: str, value: Any, templar: Any) -> str:
        """Return the JSON text of a value, templated."""
        text = self._plain(value)
        if text is not None:
            return text
        key = self._inputs(value, templar.available_variables)
        if key not in self._templated:
            try:
                text = json.dumps(templar.template(value), default=str)
            except AnsibleError as exc:
                raise FleetError(f"{name}: {exc}") from exc
            if key is None:
                return text
            self._templated[key] = text
        return self._templated[key]

    def _plain(self, value: Any) -> str | None:
        """Return the JSON text of a value without templates, else None; that of a shared value is made once."""
        if not isinstance(value, (Mapping, list)):
            return _plain_json(value)
        found = self._known.get(id(value))
        if found is None:
            # The value is kept beside its text, so that its id stays its own.
            found = self._known[id(value)] = (value, _plain_json(value))
        return found[1]

    def _inputs(self, value: Any, variables: Variables) -> Any:
        """Return what decides on the result of a template: its text and the values that it names.

        None where that cannot be told beforehand: a variable that is a template itself, or one as large as a fleet.
        """
        texts = tuple(_texts(value))
        names = [name for text in texts for name in _names_in(text)]
        if any(not isinstance(text, str) for text in texts) or {"hostvars", "groups", "vars"} & set(names):
            return None
        inputs = []
        for name in names:
            text = self._plain(variables[name]) if name in variables else ""
            if text is None:
                return None
            inputs.append(text)
        return texts, tuple(inputs)

    def _secret_names(self, secrets: Any, templar: Any) -> dict[str, list[str]]:
        """Return which secrets each instance has; a secret itself is not looked at where that can be helped."""
        try:
            secrets = templar.template(secrets) if isinstance(secrets, str) else secrets
            found = {}
            for name, entries in secrets.items():
                entries = templar.template(entries) if isinstance(entries, str) else entries
                found[str(name)] = sorted(str(key) for key in entries)
        except AnsibleError as exc:
            raise FleetError(f"{SECRETS}: {exc}") from exc
        except (AttributeError, TypeError) as exc:
            raise FleetError(f"{SECRETS}: expected a mapping of instances to their secrets") from exc
        return found


def plan_fleet(hosts: Sequence[str], reader: HostReader, planner: Planner) -> Fleet:
    """Return the plans of ``hosts``. Each different set of variables is planned once; all problems are collected."""
    fleet = Fleet()
    alike: dict[Any, Alike | str | None] = {}
    for host in hosts:
        try:
            key: Any = reader.read(host)
        except FleetError as exc:
            fleet.problems.setdefault(str(exc), []).append(host)
            continue
        key = (host, key) if '"nodes"' in dict(key)["vllm_instances"] else key
        if key in alike:
            found = alike[key]
        else:
            found = alike[key] = _planned(host, {name: json.loads(text) for name, text in _pairs(key)}, planner)
            if isinstance(found, Alike):
                fleet.groups.append(found)
        if isinstance(found, Alike):
            found.hosts.append(host)
        elif found is None:
            fleet.skipped.append(host)
        else:
            fleet.problems.setdefault(found, []).append(host)
    return fleet


def _pairs(key: Any) -> Iterable[tuple[str, str]]:
    # An instance that spans hosts is planned for each of them.
    pairs: Iterable[tuple[str, str]] = key[1] if isinstance(key[0], str) else key
    return pairs


def _planned(host: str, variables: dict[str, Any], planner: Planner) -> Alike | str | None:
    """Return the plans for one set of variables, a sentence where there can be none, None without instances."""
    if not variables["vllm_instances"]:
        return None
    try:
        catalogue = load_catalogue(_listed(variables.get("accelerator_catalog_path")))
        accelerator = accelerator_of(variables, catalogue)
        settings = {name: value for name, value in _checked(variables).items() if name != SECRETS}
        asked = {key: settings[name] for key, name in SETTINGS.items() if name in settings}
        plans = planner(host, accelerator, {**asked, "secrets": variables[SECRETS]})
    except (PlanError, AcceleratorError, OptionTableError, FleetError) as exc:
        return str(exc)
    return Alike([], plans, settings)


def accelerator_of(variables: Variables, catalogue: Catalogue) -> Accelerator:
    """Return a host's accelerator as far as it is known without asking the host.

    The host's own variables come first, then a group that names a model, then what was found on it and cached. Raises
    FleetError where none of them says.
    """
    detected = variables.get("accelerator_detected") or {}
    model = variables.get("accelerator") or _model_of_groups(variables, catalogue, detected.get("model"))
    if not model:
        raise FleetError(
            "its accelerator is not known: set accelerator and accelerator_count for it in the inventory, put it into "
            f"a group {GROUP}<model> such as {GROUP}h200, or let the role accelerator find it once with a cache of "
            "facts (accelerator_detected)"
        )
    seen = detected if detected.get("model") == model else {}
    count = _number("accelerator_count", variables.get("accelerator_count", seen.get("count", 1)), int)
    memory = variables.get("accelerator_memory_gib")
    if memory is not None:
        memory = _number("accelerator_memory_gib", memory, float)
    elif seen.get("memory_mib") is not None:
        memory = seen["memory_mib"] / 1024
    facts = {name: variables.get(f"accelerator_{name}", seen.get(name)) for name in FACTS}
    return declared_accelerator(catalogue, str(model), count, memory, facts)


def _model_of_groups(variables: Variables, catalogue: Catalogue, detected: str | None) -> str | None:
    """Return the model that a host's groups name, else the detected one, which also leads among several."""
    models = models_of_groups(variables.get("group_names") or [], catalogue.models)
    if models == [UNKNOWN]:
        raise FleetError(f"it is in the group {GROUP}{UNKNOWN}: set accelerator for it in the inventory")
    if detected in models or not models:
        return detected
    if len(models) > 1:
        raise FleetError(
            f"it is in several groups that name a model: {', '.join(GROUP + name for name in models)}; "
            "leave it in one of them, or set accelerator for it in the inventory"
        )
    return models[0]


def _number(name: str, value: Any, kind: Callable[[Any], Any]) -> Any:
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = 0
    if number <= 0 or isinstance(value, bool):
        raise FleetError(f"{name}: found {value!r}, expected a number above 0")
    return number


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def _checked(variables: dict[str, Any]) -> dict[str, Any]:
    """Return variables as the role's own argument spec makes them: numbers from texts, paths spelt out."""
    spec = _argument_spec()
    names = [name for name in variables if name in spec and name != "vllm_instances"]
    result = ArgumentSpecValidator({name: spec[name] for name in names}).validate(
        {name: variables[name] for name in names}
    )
    if result.error_messages:
        raise FleetError("; ".join(result.error_messages))
    return {**variables, **result.validated_parameters}


def _plain_json(value: Any) -> str | None:
    """Return the JSON text of a value that holds no template and nothing that only Ansible can read, else None."""
    if not _is_plain(value):
        return None
    return json.dumps(value, default=str)


def _texts(value: Any) -> Iterator[Any]:
    """Yield the texts in a value, and what is neither text nor container, with the keys that lead there."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield str(key)
            yield from _texts(entry)
    elif isinstance(value, (list, tuple)):
        yield f"{len(value)} entries"
        for entry in value:
            yield from _texts(entry)
    else:
        yield json.dumps(value) if value is None or isinstance(value, (bool, int, float)) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return "{" not in value or not any(mark in value for mark in ("{{", "{%", "{#"))
    if isinstance(value, Mapping):
        return all(isinstance(key, (str, int)) and _is_plain(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, (bool, int, float))


# What the role says of itself; read once per process.


@functools.lru_cache(maxsize=None)
def needed() -> tuple[str, ...]:
    """Return the variables of the role that its plans and its templates are made from."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.j2"))]
    used = {name for source in sources for name in _names_in(source)}
    # The role's own constants are made of these; they are rendered together with the templates.
    used |= {name for key in used & set(constants()) for name in _names_in(str(constants()[key]))}
    return tuple(sorted({*SETTINGS.values(), "ansible_managed", *(used & set(_defaults()))} - {SECRETS}))


@functools.lru_cache(maxsize=None)
def _names_in(text: str) -> tuple[str, ...]:
    """Return the variables that a template names. It is not compiled, so its filters need not be there."""
    try:
        parsed = jinja2.Environment(autoescape=True).parse(text)
    except jinja2.TemplateSyntaxError:
        return ()  # whoever renders it says what is wrong
    return tuple(sorted({node.name for node in parsed.find_all(jinja2.nodes.Name)}))


@functools.lru_cache(maxsize=None)
def _defaults() -> Mapping[str, Any]:
    """Return the defaults that the role sees when site.yml runs it."""
    merged: dict[str, Any] = {}
    for role in ("accelerator", "encodings", "weights", "vllm"):
        merged.update(_trusted(_read(ROLES / role / "defaults" / "main.yml")))
    return merged


@functools.lru_cache(maxsize=None)
def constants() -> Mapping[str, Any]:
    """Return the role's own variables, which nobody sets; some are templates."""
    found: Mapping[str, Any] = _trusted(_read(ROLES / "vllm" / "vars" / "main.yml"))
    return found


@functools.lru_cache(maxsize=None)
def _argument_spec() -> Mapping[str, Mapping[str, Any]]:
    options = _read(ROLES / "vllm" / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    kept = ("type", "elements", "choices")
    return {name: {key: entry[key] for key in kept if key in entry} for name, entry in options.items()}


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def as_template(text: str) -> Any:
    """Return a text that Ansible takes for a template; from ansible-core 2.19 on it has to be told."""
    trust = getattr(ansible_template, "trust_as_template", None)
    return text if trust is None else trust(text)


def _trusted(value: Any) -> Any:
    """Return a value of the role's own files with every text taken for a template."""
    if isinstance(value, str):
        return as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(entry) for key, entry in value.items()}
    return [_trusted(entry) for entry in value] if isinstance(value, list) else value
