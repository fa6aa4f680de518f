# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the variables of a host that decide its plans; the role's own defaults and constants have lower precedence."""

import difflib
import functools
import json

# Not those of typing: isinstance takes three times as long with them, which a large fleet feels.
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jinja2
import jinja2.nodes
from ansible import constants as of_ansible
from ansible.errors import AnsibleError
from ansible.template import Templar

from ...module_utils.common.kinds import name_kind
from ...module_utils.weights.manifest import WeightsError, parse_manifest
from ..catalog.manifests import requested_models
from ..common.group_names import MODEL_PREFIX as GROUP
from ..common.group_names import PURPOSES
from ..common.origins import origin_of
from ..common.places import ROLES
from ..common.role_options import (
    OF_SERVERS,
    SERVING,
    RoleOptionError,
    check_names_and_values,
    has_template,
    misspelt_options,
    options_of,
)
from ..common.templates import as_template, as_text, is_template
from ..common.yaml import read_yaml
from ..planning.inputs import SETTINGS, PlanError
from ..planning.instances import secret_problem
from ..planning.scale import check_scale_hosts
from ..provisioning.entry import Entry, ProvisionError, read_entry, shared
from ..provisioning.site_options import check_site_options
from .host_plans import PATHS
from .members import HOST_KEYS, PLACE_VARIABLES, UnknownPlaceError, expand, members_of, place_of, spans
from .ports import Taken, taken_ports

TEMPLATES = ROLES / "vllm" / "templates"

# Roles that run for a host elsewhere: the names of their options are checked, in their own group the values, too.
ELSEWHERE = {"gateway": "gateways", "mirror": "mirrors", "rollout": "inference", "provisioner": "provisioner"}
NAMED = tuple(ELSEWHERE)
SECRETS = "vllm_secrets"
INDEX = "vllm_wheel_index"
MEMBERS = "__vllm_members"
# The role's variables that are not called vllm_<setting>.
_OTHER_NAMES = {
    "config_dir": "__vllm_config_dir",
    "cache_root": "__vllm_cache_dir",
    "secrets": SECRETS,
    "members": MEMBERS,
}
# A setting of plan_host -> the variable of the role vllm that holds it.
SETTING_VARIABLES = {
    name: _OTHER_NAMES.get(name, f"vllm_{name}") for name in ("instances", *SETTINGS, *PATHS, "wheel_index")
}
# Variables that declare a host's accelerator; accelerator_catalog_path is an option of the role accelerator.
HARDWARE = (
    "accelerator", "accelerator_count", "accelerator_memory_gib", "accelerator_partition",
    "accelerator_driver_version", "accelerator_cuda_version", "accelerator_mec_firmware", "accelerator_catalog_path",
    "accelerator_detected", "accelerators",
)  # fmt: skip

# What decides which server a connection reaches; behind other gateways the same address may be another server's.
_WAY = (
    "ansible_host", "ansible_port", "ansible_connection", "ansible_ssh_args", "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
)  # fmt: skip

Variables = Mapping[str, Any]
# Variables of core's own plugins (ssh, paramiko_ssh, su) that Ansible's table lacks and that resemble one in it.
_OF_PLUGINS = {
    "ansible_paramiko_private_key_file", "ansible_podman_extra_args", "ansible_private_key", "ansible_scp_executable",
    "ansible_sftp_executable", "ansible_ssh_args", "ansible_ssh_password", "ansible_ssh_private_key", "ansible_su_pass",
    "ansible_su_user",
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _misspelt_connection(name: str, is_list: bool) -> str:
    """Return a warning for a misspelt variable of Ansible's connections: another host or user would be asked."""
    table = getattr(of_ansible, "MAGIC_VARIABLE_MAPPING", {})
    known = _OF_PLUGINS.union(*table.values())
    word = name.removeprefix("ansible_")
    # A site may have lists of its own, such as ansible_users.
    if name in known or (is_list and name.rstrip("s") in known):
        return ""
    near = difflib.get_close_matches(word, {each.removeprefix("ansible_") for each in known}, n=1, cutoff=0.74)
    return f"{name} is no variable of Ansible; nearest: 'ansible_{near[0]}'" if near else ""


class FleetError(ValueError):
    """Hosts that cannot be planned; the message has a line for each problem with its hosts."""


class UnrenderedError(FleetError):
    """A variable cannot be rendered; it may need facts of the host."""


class HostReader:
    """Reads the few variables of a host that matter, as plain data.

    Templating a value takes longer than everything else for a host. So values without a template are not templated,
    and the others are templated once for each different set of the variables that they use.
    """

    def __init__(self, hostvars: Any, loader: Any) -> None:
        self._hostvars = hostvars
        self._loader = loader
        self._known: dict[int, tuple[Any, str | None]] = {}
        self._scalars: dict[tuple[type, Any], str | None] = {}
        self._templated: dict[Any, str] = {}
        self._places: dict[str, dict[str, str]] = {}
        # The names of all variables of a group's hosts.
        self._set_in: dict[str, set[str]] = {}
        # The instances of hosts that have some with nodes, and those resolved.
        self.spanning: dict[str, dict[str, Any]] = {}
        # How each address is reached -> its first host.
        self._addresses: dict[Any, str] = {}
        # What else than instances listens on a host.
        self.ports: dict[str, dict[int, Taken]] = {}
        # The servers that provision.yml may write, by host.
        self._servers: dict[str, Entry] = {}
        # Variables that resemble options of roles: sentence -> hosts.
        self.warnings: dict[str, list[str]] = {}

    def read(self, host: str) -> tuple[tuple[str, str], ...]:
        """Return pairs of name and JSON text; equal for hosts with the same plans. Raises FleetError."""
        own = dict(self._hostvars.raw_get(host))
        try:
            here = tuple(role for role, group in ELSEWHERE.items() if group in (own.get("group_names") or ()))
            warnings = [*check_names_and_values(own, (*SERVING, *here)), *misspelt_options(frozenset(own), NAMED)]
            for text in (*warnings, *self._unread(host, own)):
                self.warnings.setdefault(text, []).append(host)
            self._read_server(host, own)
            self.ports[host] = taken_ports(own)
            models = [own.get("weights_models") or [], own.get("weights_manifest_path") or []]
            if models[0] and _is_plain(models):
                _check_models(json.dumps(models))
        except (RoleOptionError, ProvisionError, WeightsError) as exc:
            raise FleetError(str(exc)) from exc
        # A cached fact becomes its own variable only where Ansible is configured to inject facts.
        own.setdefault("accelerator_detected", (own.get("ansible_facts") or {}).get("accelerator_detected"))
        names = [*needed(), *(name for name in HARDWARE if own.get(name) is not None)]
        variables = {**defaults(), **own, **constants()}
        templar = Templar(loader=self._loader, variables={**variables, "hostvars": self._hostvars})
        pairs = [(name, self._json(name, variables[name], templar)) for name in names if name in variables]
        pairs = self._with_members(host, pairs, own.get("groups") or {})
        # Only whether there is one matters, and a template may need facts of the mirror.
        pairs.append((INDEX, json.dumps(str(own.get(INDEX) or ""))))
        pairs.append((SECRETS, json.dumps(self._secret_names(variables.get(SECRETS) or {}, templar))))
        groups = [name for name in own.get("group_names") or [] if name.startswith(GROUP) or name in PURPOSES]
        pairs.append(("group_names", json.dumps(groups)))
        return tuple(pairs)

    def _read_server(self, host: str, own: Variables) -> None:
        """Judge what provision.yml would read of a host. Raises ProvisionError."""
        value, has_provisioner = own.get("provision"), (own.get("groups") or {}).get("provisioner")
        # A site without a provisioner may have a separate variable with this name.
        if not has_provisioner and not isinstance(value, Mapping):
            return
        check_site_options(own)
        if value is not None and not has_template(value):
            self._servers[host] = read_entry(host, value)
        elif value is None and "provision" in own:
            text = "provision: found nothing, so provision.yml passes over this host"
            self.warnings.setdefault(text, []).append(host)

    def shared_servers(self) -> Iterator[tuple[str, list[str]]]:
        """Yield a sentence and its hosts where hosts that were read share a BMC, an address or a disk."""
        return shared(self._servers.values())

    def _unread(self, host: str, own: Variables) -> Iterator[str]:
        """Yield a warning for each variable that nothing reads: misspelt ones of Ansible, and options on other hosts.

        A role's option is read on the hosts of the role's group.
        """
        if first := self._same_server(host, own):
            yield f"ansible_host: {own['ansible_host']} is the address of {first} too; give each host its own"
        if "accelerators" in own and not any(name.startswith(GROUP) for name in own.get("group_names") or ()):
            yield (
                "accelerators: chips are taken from it by the inventory plugin baremetal.inference.accelerators only, "
                "and it has not sorted this host; set accelerator and accelerator_count, or use the plugin"
            )
        yield from (
            text
            for name in own
            if name.startswith("ansible_")
            and (text := _misspelt_connection(name, isinstance(own[name], (list, Mapping))))
        )
        for role, group in ELSEWHERE.items():
            members = (own.get("groups") or {}).get(group) or ()
            if not members or host in members:
                continue
            if group not in self._set_in:
                self._set_in[group] = {name for member in members for name in self._hostvars.raw_get(member)}
            if unread := sorted(options_of(role) & own.keys() - set(OF_SERVERS) - self._set_in[group]):
                yield f"{', '.join(unread)}: set here, read on the hosts of the group {group}, and set for none of them"

    def _same_server(self, host: str, own: Variables) -> str:
        """Return the first host of the same purpose that is reached in the same way, "" for that one."""
        way = [own.get(name) for name in _WAY]
        if not own.get("ansible_host") or own.get("ansible_connection") == "local" or has_template(way):
            return ""
        groups = own.get("group_names") or ()
        first = self._addresses.setdefault((*map(str, way), *(name for name in PURPOSES if name in groups)), host)
        return "" if first == host else first

    def declares_instances(self, hosts: Iterable[str]) -> bool:
        """Return whether any host has vllm_instances; ``{}`` counts, because somebody wrote that nothing is served."""
        return any(self._hostvars.raw_get(host).get("vllm_instances") not in (None, []) for host in hosts)

    def places_of(self, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return address and interface of each host in the network of the groups. Raises FleetError."""
        for host in hosts:
            if host not in self._places:
                self._places[host] = self._place_of(host)
        return {host: self._places[host] for host in hosts}

    def _place_of(self, host: str) -> dict[str, str]:
        own = dict(self._hostvars.raw_get(host))
        templar = Templar(loader=self._loader, variables={**own, "hostvars": self._hostvars})
        texts = {name: self._json(name, own[name], templar) for name in PLACE_VARIABLES if own.get(name) is not None}
        variables = {name: json.loads(text) for name, text in texts.items()}
        try:
            return place_of(host, variables, own.get("ansible_facts") or {})
        except UnknownPlaceError as exc:
            raise UnrenderedError(str(exc)) from exc
        except PlanError as exc:
            raise FleetError(str(exc)) from exc

    def _with_members(
        self, host: str, pairs: list[tuple[str, str]], groups: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return pairs with the hosts of instances that span several, and those hosts' places in the network."""
        texts = dict(pairs)
        text = texts["vllm_instances"]
        if '"scale"' in text:
            self._check_scale(json.loads(text), groups)
        instances = json.loads(text) if any(f'"{key}"' in text for key in HOST_KEYS) else {}
        if not spans(instances):
            return pairs
        try:
            instances = expand(instances, groups)
        except PlanError as exc:
            raise FleetError(str(exc)) from exc
        self.spanning[host] = instances
        texts["vllm_instances"] = json.dumps(instances)
        return [*texts.items(), (MEMBERS, json.dumps(self.places_of(members_of(instances))))]

    def _check_scale(self, instances: Any, groups: Mapping[str, Any]) -> None:
        """Raise FleetError for a replica on a host that the inventory does not have."""
        try:
            check_scale_hosts(instances, groups.get("all") or ())
        except PlanError as exc:
            raise FleetError(str(exc)) from exc

    def located(self, problems: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Return the problems of hosts, each with the file and the line of its value where that is one for all."""
        found: dict[str, list[str]] = {}
        for text, hosts in problems.items():
            places = {origin_of(text, self._hostvars.raw_get(host)) for host in (hosts[0], hosts[-1])}
            place = places.pop() if len(places) == 1 else ""
            found.setdefault(f"{text} ({place})" if place else text, []).extend(hosts)
        return found

    def all_hosts(self, host: str) -> list[str]:
        """Return all hosts of the inventory, from the variables of one of them."""
        return list((self._hostvars.raw_get(host).get("groups") or {}).get("all") or [])

    def names_elsewhere(self, wanted: Iterable[str], hosts: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return which of the instances ``wanted`` no host has, and all names that were found in the search."""
        missing, seen = set(wanted), set()
        for host in hosts:
            if not missing:
                break
            own = dict(self._hostvars.raw_get(host))
            names = self._instance_names(own)
            seen |= names
            missing -= names
        return missing, seen

    def _instance_names(self, own: Mapping[str, Any]) -> set[str]:
        instances = own.get("vllm_instances") or {}
        if isinstance(instances, str):
            variables = {**defaults(), **own, **constants(), "hostvars": self._hostvars}
            try:
                instances = Templar(loader=self._loader, variables=variables).template(instances)
            except AnsibleError:
                return set()  # the plan of that host reports it
        return {str(name) for name in instances} if isinstance(instances, Mapping) else set()

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
                raise UnrenderedError(f"{name}: {exc}") from exc
            if key is None:
                return text
            self._templated[key] = text
        return self._templated[key]

    def _plain(self, value: Any) -> str | None:
        """Return the JSON text of a value without templates, else None; equal values are converted only once."""
        if isinstance(value, str) and "{" in value:
            # An equal text from another source may be a template.
            return _plain_json(value)
        if isinstance(value, (str, int, float)):
            # With its type, because 1 and True are equal.
            scalar = (type(value), value)
            if scalar not in self._scalars:
                self._scalars[scalar] = _plain_json(value)
            return self._scalars[scalar]
        if not isinstance(value, (dict, list)):
            return _plain_json(value)
        found = self._known.get(id(value))
        if found is None:
            # The value is kept beside its text, so that its id is not reused.
            found = self._known[id(value)] = (value, _plain_json(value))
        return found[1]

    def _inputs(self, value: Any, variables: Variables) -> Any:
        """Return the inputs of a template: its text and the values that it uses.

        None if they are unknown beforehand: for a variable that is a template itself, or one as large as a fleet.
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

    def _secret_names(self, secrets: Any, templar: Any) -> dict[str, dict[str, str]]:
        """Return what is wrong with each instance's secrets, by name; templates and encrypted values are not read."""
        try:
            secrets = as_text(templar.template(secrets)) if isinstance(secrets, str) else secrets
            if not isinstance(secrets, Mapping):
                raise FleetError(
                    f"{SECRETS}: found {name_kind(secrets)}, expected a mapping of instances to their secrets"
                )
            found = {}
            for name, entries in secrets.items():
                entries = templar.template(entries) if isinstance(entries, str) else entries
                if not isinstance(entries, Mapping):
                    # The value may be the secret itself, so the message has its kind alone.
                    raise FleetError(
                        f"{SECRETS}.{name}: found {name_kind(entries)}, expected a mapping of environment variables, "
                        "as in {VLLM_API_KEY: ...}"
                    )
                found[str(name)] = {str(key): secret_problem(value) for key, value in sorted(entries.items())}
        except AnsibleError as exc:
            raise UnrenderedError(f"{SECRETS}: {exc}") from exc
        return found


@functools.lru_cache(maxsize=256)
def _check_models(text: str) -> None:
    """Raise WeightsError for weights_models that no manifest pins; ``text`` holds them and the directories."""
    models, path = json.loads(text)
    for number, model in enumerate(requested_models(models, path)):
        try:
            parse_manifest(model)
        except WeightsError as exc:
            raise WeightsError(f"weights_models[{number}]: {exc}") from exc


def _plain_json(value: Any) -> str | None:
    """Return the JSON text of a value that holds no template and nothing that only Ansible can read, else None."""
    if not _is_plain(value):
        return None
    return json.dumps(value, default=str)


def _texts(value: Any) -> Iterator[Any]:
    """Yield the texts and other scalars in a value, with the keys that lead there."""
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
        return not is_template(value)
    if isinstance(value, Mapping):
        return all(isinstance(key, (str, int)) and _is_plain(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, (bool, int, float))


# Files of the role; read once per process.


@functools.lru_cache(maxsize=None)
def needed() -> tuple[str, ...]:
    """Return the variables of the role that its plans and its templates use."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.j2"))]
    used = {name for source in sources for name in _names_in(source)}
    # The role's own constants use these; they are rendered together with the templates.
    used |= {name for key in used & set(constants()) for name in _names_in(str(constants()[key]))}
    return tuple(sorted({*SETTING_VARIABLES.values(), "ansible_managed", *(used & set(defaults()))} - {SECRETS, INDEX}))


@functools.lru_cache(maxsize=None)
def _names_in(text: str) -> tuple[str, ...]:
    """Return the variables that a template names. It is not compiled, so its filters need not exist."""
    try:
        parsed = jinja2.Environment(autoescape=True).parse(text)
    except jinja2.TemplateSyntaxError:
        return ()  # rendering it reports the fault
    return tuple(sorted({node.name for node in parsed.find_all(jinja2.nodes.Name)}))


@functools.lru_cache(maxsize=None)
def defaults() -> Mapping[str, Any]:
    """Return the defaults that the role sees when site.yml runs it."""
    merged: dict[str, Any] = {}
    for role in ("accelerator", "encodings", "weights", "vllm"):
        merged.update(_trusted(read_yaml(ROLES / role / "defaults" / "main.yml")))
    return merged


@functools.lru_cache(maxsize=None)
def constants() -> Mapping[str, Any]:
    """Return the role's own constants; some are templates."""
    found: Mapping[str, Any] = _trusted(read_yaml(ROLES / "vllm" / "vars" / "main.yml"))
    return found


@functools.lru_cache(maxsize=None)
def argument_spec() -> Mapping[str, Mapping[str, Any]]:
    options = read_yaml(ROLES / "vllm" / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    kept = ("type", "elements", "choices")
    return {name: {key: entry[key] for key in kept if key in entry} for name, entry in options.items()}


def _trusted(value: Any) -> Any:
    """Return a value of the role's own files with every text treated as a template."""
    if isinstance(value, str):
        return as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(entry) for key, entry in value.items()}
    return [_trusted(entry) for entry in value] if isinstance(value, list) else value
