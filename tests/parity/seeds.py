# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of seeds.yml, and the plans that are to be the same: read, asked for, and made comparable."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from ansible.plugins.filter.core import to_nice_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_foreign, load_table
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host

HERE = Path(__file__).parent
# Releases that hold every stack, so that each stack's plan can be read by a real parser.
RELEASES = HERE / "releases"

# Model path, host, port, served names and file locations: what differs between a guide and a site.
PLACES = ("model", "revision", "host", "port", "served-model-name")
# What these releases do without being told; the real parsers agree (test_seeds.py).
DEFAULTS = {"tensor-parallel-size": 1, "shutdown-timeout": 0, "enforce-eager": False}
# A site that adds nothing of its own: vLLM stops at once, and passes over variables that it does not know.
SITE = {
    "weights_root": "/srv/weights",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 0,
    # For instances that span hosts.
    "members": {
        "host": {"address": "10.0.0.1", "interface": "eth1"},
        "other": {"address": "10.0.0.2", "interface": "eth1"},
    },
}
PLAIN_ARGS = {"fail-on-environ-validation": None, "allowed-media-domains": None}
# vLLM's own variables that the collection sets: where its caches lie, that it reports nothing, and that no client of a
# model that takes pictures has it ask addresses of the network.
QUIET = ("VLLM_CACHE_ROOT", "VLLM_NO_USAGE_STATS", "VLLM_MEDIA_URL_ALLOW_REDIRECTS")
# Variables whose value is a path: that it is set is the same.
FILE_LOCATIONS = ("TIKTOKEN_ENCODINGS_BASE",)
# How a start makes the engine's processes: the recipes choose it from measured starts, and no answer depends on it.
OF_THE_START = ("VLLM_WORKER_MULTIPROC_METHOD",)


@dataclass(frozen=True)
class Ours:
    """How the same is asked of this collection: one instance, on any of these hosts, in any of these releases."""

    accelerators: list[str]
    releases: list[str]
    instance: dict
    count: int = 8
    facts: dict = field(default_factory=dict)
    # What the seed sets and ours cannot, with the reason.
    lacks: dict = field(default_factory=dict)
    # Part of the reason why the plan is refused; empty where it is not.
    refused: str = ""
    # Variables of ours that the seed does not have: the names of released vLLMs for those of its pre-release.
    more_env: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Seed:
    """One command line of a document."""

    id: str
    document: str
    where: str
    release: str
    hardware: str
    command: str
    ours: list[Ours]
    env: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)

    @property
    def words(self):
        """The command as one list of words; its config file expanded as vLLM does it: before the other flags."""
        words = shlex.split(self.command)
        if "--config" not in words:
            return words
        at = words.index("--config")
        model, rest = words[:3], words[3:at] + words[at + 2 :]
        return [*model, *config_words(self.config), *rest]

    @property
    def command_words(self):
        """The words without the file that --config names."""
        words = shlex.split(self.command)
        at = words.index("--config") if "--config" in words else len(words)
        return words[:at] + words[at + 2 :]

    @property
    def config_text(self):
        """The text of the file that --config names, None where there is none."""
        return yaml.safe_dump(self.config, sort_keys=False) if self.config else None


def config_words(config):
    """Return the words that a ``--config`` file stands for."""
    words = []
    for name, value in config.items():
        words.append(f"--{name}")
        if value is not True:
            words.append(str(value))
    return words


def load():
    """Return the documents by name, and the commands."""
    data = yaml.safe_load((HERE / "seeds.yml").read_text(encoding="utf-8"))
    seeds = [Seed(**{**entry, "ours": [Ours(**ours) for ours in entry.get("ours", [])]}) for entry in data["commands"]]
    return data["documents"], seeds


def settings(release, instance, **more):
    """Return what plan_host is asked with for one instance called chat."""
    args = {**PLAIN_ARGS, **(instance.get("args") or {})}
    return {
        **SITE,
        "instances": {"chat": {**instance, "args": args}},
        "release": release,
        "release_path": [str(RELEASES)],
        **more,
    }


def release_name(version):
    """Return the release that has every stack, where there is one for the version; else the catalogue's."""
    name = f"every-stack-{version}"
    return name if (RELEASES / f"{name}.yml").exists() else version


def plan(ours, accelerator, version, **more):
    """Return our plan, with ``more`` settings of the site. Raises PlanError."""
    hardware = declared_accelerator(load_catalogue(), accelerator, ours.count, facts=ours.facts)
    return plan_host("host", hardware, settings(release_name(version), ours.instance, **more))["chat"]


def plan_config(plan):
    """Return the text of the plan's --config file, as the role's template writes it."""
    return str(to_nice_yaml(plan["config"], width=1000))


def setting_words(words, table):
    """Yield (flag, keys, its values) for the words after the model."""
    rest = words[2:] if words[2:3] == ["--model"] else words[3:]
    flag, values = None, []
    for word in [*rest, "--end"]:
        if not word.startswith("-") or _is_number(word):
            values.append(word)
            continue
        if flag is not None:
            yield flag, values
        name, equals, value = word.partition("=")
        flag, values = name, [value] if equals else []


def _is_number(word):
    try:
        float(word)
    except ValueError:
        return False
    return True


def words_of(plan):
    """Return the command of a plan without the collection's own middleware, which no recipe, seed or file has."""
    words, own = list(plan["argv"]), list(plan["middleware"])
    at = next((at for at in range(len(words)) if words[at : at + len(own)] == own), None)
    assert at is not None, f"{own} is not in {words}"
    return words[:at] + words[at + len(own) :]


def canonical(words, table):
    """Return what words set, by the release's own names of flags: JSON flags key by key, values as what they are.

    Places and what the release does anyway are left out. A flag that the release does not have is a KeyError.
    """
    found = {}
    for spelling, values in setting_words(words, table):
        flag = table.canonical(spelling)
        if flag is None:
            raise KeyError(f"vLLM {table.version} has no {spelling}")
        kind = table.flags[flag.name]["kind"]
        if not values:
            value = not flag.off
        elif kind == "json" or flag.keys:
            value = _json(values[0])
        elif kind in ("integer", "number"):
            value = _number(values[0])
        else:
            value = values[0] if len(values) == 1 else values
        for keys, leaf in _leaves(flag.keys, value):
            found[".".join((flag.name, *keys))] = leaf
    return {name: value for name, value in found.items() if name not in PLACES and DEFAULTS.get(name) != value}


def _number(text):
    try:
        return float(text)
    except ValueError:
        # A word that an integer's flag takes too, such as auto.
        return text


def _json(text):
    if text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _leaves(path, value):
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from _leaves((*path, key), item)


def namespace(parser, words, config=None, aside=()):
    """Return what the real parser makes of words; places, and what is named by its flag, aside. Raises Refused."""
    aside = {name.replace("-", "_") for name in (*PLACES, *aside)}
    return {name: value for name, value in parser.read(words, config).items() if name not in aside}


def read_variables(seed, release, accelerator):
    """Return the seed's variables that the release or a library below it reads, and the names of the others."""
    table, foreign = load_table(release), load_foreign(accelerator_stack(accelerator))
    read = {name: value for name, value in seed.env.items() if name in table.env or foreign.covers(name, release)}
    return read, [name for name in seed.env if name not in read]


def accelerator_stack(name):
    return declared_accelerator(load_catalogue(), name, 1).stack


def own_variables(plan, named=()):
    """Return the variables of a plan that recipe and site set, and those that ``named`` holds.

    File locations are left out, and how a start makes its processes.

    The rest is what the collection sets for every instance: caches, and that it asks nobody on the network.
    """
    layers = {row["key"]: row["layer"] for row in plan["explain"]}
    return {
        name: value
        for name, value in plan["env"].items()
        if name not in FILE_LOCATIONS
        and (name not in OF_THE_START or name in named)
        and (layers[f"env.{name}"] != "collection" or name in named or (name[:5] == "VLLM_" and name not in QUIET))
    }


def real_releases():
    """Return the releases whose real parsers are asked."""
    return [path.stem.rpartition("-")[2] for path in sorted(RELEASES.glob("every-stack-*.yml"))]
