# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of `inference`: which playbook each one runs, and which variable each of its options sets.

A verb decides nothing that a playbook does not: `inference -v` prints the line that does the same with Ansible.
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """An option of a verb, such as --reason: the variable that it sets, and what help says of it.

    ``value`` is the word for its value in help; a flag has none and sets its only choice, or ``true``.
    """

    name: str
    variable: str
    help: str
    value: str = ""
    choices: tuple[str, ...] = ()


class Verb(NamedTuple):
    """A verb: its playbooks, the variable that names the hosts ("" where hosts cannot be chosen), and its options.

    ``hosts`` may be Ansible's own -l. ``needs_hosts``: without HOST it would concern every host. ``changes``: --check
    tries it. ``exclusive``: options of which exactly one is given; "hosts" stands for HOST. ``arguments``: Ansible's
    own. ``json``: the variable with which a playbook shows a document by itself.
    """

    help: str
    playbooks: tuple[str, ...]
    hosts: str = ""
    options: tuple[Option, ...] = ()
    needs_hosts: bool = False
    changes: bool = False
    exclusive: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    json: str = ""


INSTANCE = "one instance only"
# Of these, those whose hosts are meant: servers and mirrors, and gateways.
SERVING = ("site", "gateway")
VERBS: dict[str, Verb] = {
    "check": Verb(
        "show what apply would change, and change nothing", SERVING, "-l", arguments=("--check", "--diff")
    ),
    "plan": Verb(
        "show what every host would run, and where each setting comes from; connects to no host",
        ("explain",),
        "target_hosts",
        (
            Option("instance", "explain_instance", INSTANCE, "NAME"),
            Option("all", "explain_format", "also what the collection sets, and the commands", choices=("table",)),
        ),
        arguments=("-e", "explain_format=short"),
        json="explain_format",
    ),
    "render": Verb(
        "write the plan and the files of every instance into a directory; connects to no host",
        ("render",),
        "target_hosts",
        (
            Option("directory", "render_dir", "the directory; required", "DIR"),
            Option("commands", "render_commands", "also write each command as one line that a shell takes"),
        ),
        changes=True,
        exclusive=("directory",),
    ),
    "fit": Verb(
        "show which models fit on which chips, and why not; needs no site",
        ("fit",),
        options=(
            Option("models", "fit_recipes", "recipes, separated by commas, or all", "NAME,..."),
            Option("chips", "fit_accelerators", "such as h100:8,h200", "CHIP[:NUMBER],..."),
            Option("release", "fit_release", "the release of vLLM", "RELEASE"),
        ),
    ),
    "adopt": Verb(
        "turn a command that starts vLLM into an instance: docker run, compose file, unit, vllm serve; needs no site",
        ("adopt",),
        options=(
            Option("file", "adopt_file", "a command, a compose file, a unit or a quadlet; required", "FILE"),
            Option("name", "adopt_name", "the name of the instance; chat where it is not given", "NAME"),
            Option("model", "adopt_model", "the repository of the weights, where the command names a path", "NAME"),
            Option("chips", "adopt_accelerator", "the host to plan on, such as h200:8", "CHIP[:NUMBER]"),
            Option("release", "adopt_release", "the release of vLLM", "RELEASE"),
            Option("service", "adopt_service", "the service of a compose file that has several", "NAME"),
        ),
        exclusive=("file",),
    ),
    "apply": Verb(
        "bring the hosts to what the site says, and have each instance answer a chat; then the gateways",
        SERVING,
        "-l",
        changes=True,
    ),
    "status": Verb(
        "show what serves, what is drained or sick, since when and why",
        ("status",),
        "target_hosts",
        (
            Option("versions", "status_versions", "also which releases are installed, read on every host"),
            Option("starts", "status_starts", "also where the seconds of the last starts went, read on every host"),
            Option("page", "status_page", "also write the page of the fleet to FILE", "FILE.html"),
        ),
    ),
    "verify": Verb(
        "ask every instance what its model can answer",
        ("verify",),
        "target_hosts",
        (Option("expect", "verify_expect", "a text that each answer must contain", "TEXT"),),
    ),
    "rollout": Verb(
        "apply the site to the hosts that differ from it, wave by wave, without a failed request",
        ("rollout",),
        "target_hosts",
        changes=True,
    ),
    "rollback": Verb(
        "return hosts to the state before a rollout, which they have kept: --rollout last, or HOST...",
        ("rollback",),
        "target_hosts",
        (Option("rollout", "rollout_undo", "all hosts of this rollout; last is the newest", "last|ID"),),
        changes=True,
        exclusive=("hosts", "rollout"),
    ),
    "drain": Verb(
        "take hosts out of service at their gateways, and wait until no request runs on them",
        ("drain",),
        "target_hosts",
        (
            Option("reason", "drain_reason", "what status shows beside the host", "TEXT"),
            Option("timeout", "drain_timeout", "how long to wait for running requests", "SECONDS"),
            Option("instance", "drain_instance", "this instance over several hosts, in place of HOST", "NAME"),
            Option("force", "drain_force", "even if fewer servers stay than the site wants"),
        ),
        exclusive=("hosts", "instance"),
    ),
    "undrain": Verb(
        "return hosts to service, and wait until their gateways see them up",
        ("undrain",),
        "target_hosts",
        (
            Option("timeout", "undrain_timeout", "how long to wait", "SECONDS"),
            Option("instance", "drain_instance", "this instance over several hosts, in place of HOST", "NAME"),
            Option("force", "undrain_force", "hosts that a rollout drained, too"),
        ),
        exclusive=("hosts", "instance"),
    ),
    "bench": Verb(
        "measure an instance with vLLM's own benchmark; drain its host first",
        ("bench",),
        "target_hosts",
        (
            Option("instance", "bench_instance", INSTANCE, "NAME"),
            Option("workloads", "bench_workloads", "such as chat,agent", "NAME,..."),
            Option("concurrency", "bench_concurrency", "requests at a time, such as 1,8,64", "NUMBER,..."),
        ),
        needs_hosts=True,
    ),
    "usage": Verb(
        "show the tokens of each client, by team and model",
        ("gateway_usage",),
        "target_hosts",
        (
            Option("since", "gateway_usage_since", "a day, or a time such as 30d", "TIME"),
            Option("until", "gateway_usage_until", "a day", "TIME"),
            Option("format", "gateway_usage_format", "how to print them", "FORMAT", choices=("table", "csv")),
            Option("file", "gateway_usage_file", "write them to FILE", "FILE"),
        ),
        json="gateway_usage_format",
    ),
    "key add": Verb(
        "make a client of the gateways, and show its key once",
        ("gateway_keys",),
        "target_hosts",
        (
            Option("team", "gateway_keys_team", "the client's team", "TEAM"),
            Option("expires", "gateway_keys_expires", "the last day of the key", "DAY"),
            Option("tokens-per-day", "gateway_keys_tokens_per_day", "its budget", "NUMBER"),
            Option("rate", "gateway_keys_rate", "requests per minute", "NUMBER"),
        ),
        changes=True,
    ),
    "key list": Verb("list the clients of the gateways", ("gateway_keys",), "target_hosts"),
    "key end": Verb(
        "end the keys of a client at once", ("gateway_keys",), "target_hosts", changes=True
    ),
    "remove": Verb(
        "remove one thing, or everything of the collection, from hosts",
        ("remove",),
        "target_hosts",
        (
            Option("instance", "remove_instance", "an instance", "NAME"),
            Option("model", "remove_model", "the weights of a model", "NAME"),
            Option("environment", "remove_environment", "the environment of a release", "RELEASE"),
            Option("image", "remove_image", "an image", "NAME"),
            Option("everything", "remove_everything", "all of the collection except driver and container engine"),
        ),
        needs_hosts=True,
        changes=True,
        exclusive=("instance", "model", "environment", "image", "everything"),
    ),
}  # fmt: skip
# Verbs whose first word is a name: the variable that it sets.
NAMES = {"key add": "gateway_keys_make", "key end": "gateway_keys_end"}
