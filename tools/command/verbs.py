# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of `inference`: which playbooks each one runs, and which variable each of its options sets.

A verb decides nothing that a playbook does not: `inference -v` prints the line that does the same with Ansible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# A verb is a line `VERB: PLAYBOOK ...; TRAIT ...; HELP`, an option `NAME[=WORD] VARIABLE[:CHOICE|...] HELP`. Without
# the word for its value an option is a flag, which sets its only choice, or `true`. The traits are fields of Verb:
#   changes         --check tries it
#   hosts=VARIABLE  what names the hosts: target_hosts, or Ansible's own -l; empty where hosts cannot be chosen
#   needs_hosts     without HOST it would concern every host
#   client=VARIABLE its first word is a client of the gateways
#   exclusive=A|B   options of which exactly one is given; "hosts" stands for HOST
#   arguments=A|B   words for ansible-playbook
#   json=VARIABLE   with this the playbook shows a document by itself
TABLE = """\
check: site gateway; hosts=-l arguments=--check|--diff; show what apply would change, and change nothing
plan: explain; arguments=-e|explain_format=short json=explain_format; show what every host would run, and where each setting comes from; connects to no host
  instance=NAME explain_instance one instance only
  all explain_format:table also what the collection sets, and the commands
render: render; changes exclusive=directory; write the plan and the files of every instance into a directory; connects to no host
  directory=DIR render_dir the directory; required
  commands render_commands also write each command as one line that a shell takes
fit: fit; hosts=; show which models fit on which chips, and why not; needs no site
  models=NAME,... fit_recipes recipes, separated by commas, or all
  chips=CHIP[:NUMBER],... fit_accelerators such as h100:8,h200
  release=RELEASE fit_release the release of vLLM
adopt: adopt; hosts= exclusive=file; turn a command that starts vLLM into an instance: docker run, compose file, unit, vllm serve; needs no site
  file=FILE adopt_file a command, a compose file, a unit or a quadlet; required
  name=NAME adopt_name the name of the instance; chat where it is not given
  model=NAME adopt_model the repository of the weights, where the command names a path
  chips=CHIP[:NUMBER] adopt_accelerator the host to plan on, such as h200:8
  release=RELEASE adopt_release the release of vLLM
  service=NAME adopt_service the service of a compose file that has several
apply: site gateway; hosts=-l changes; bring the hosts to what the site says, and have each instance answer a chat; then the gateways
status: status; ; show what serves, what is drained or sick, since when and why
  versions status_versions also which releases are installed, read on every host
  starts status_starts also where the seconds of the last starts went, read on every host
  page=FILE.html status_page also write the page of the fleet to FILE
verify: verify; ; ask every instance what its model can answer
  expect=TEXT verify_expect a text that each answer must contain
rollout: rollout; changes; apply the site to the hosts that differ from it, wave by wave, without a failed request
rollback: rollback; changes exclusive=hosts|rollout; return hosts to the state before a rollout, which they have kept: --rollout last, or HOST...
  rollout=last|ID rollout_undo all hosts of this rollout; last is the newest
drain: drain; exclusive=hosts|instance; take hosts out of service at their gateways, and wait until no request runs on them
  reason=TEXT drain_reason what status shows beside the host
  timeout=SECONDS drain_timeout how long to wait for running requests
  instance=NAME drain_instance this instance over several hosts, in place of HOST
  force drain_force take over servers that a rollout or another person has drained
undrain: undrain; exclusive=hosts|instance; return hosts to service, and wait until their gateways see them up
  timeout=SECONDS undrain_timeout how long to wait
  instance=NAME drain_instance this instance over several hosts, in place of HOST
  force undrain_force hosts that a rollout drained, too
bench: bench; needs_hosts; measure an instance with vLLM's own benchmark; drain its host first
  instance=NAME bench_instance one instance only
  workloads=NAME,... bench_workloads such as chat,agent
  concurrency=NUMBER,... bench_concurrency requests at a time, such as 1,8,64
usage: gateway_usage; json=gateway_usage_format; show the tokens of each client, by team and model
  since=TIME gateway_usage_since a day, or a time such as 30d
  until=TIME gateway_usage_until a day
  format=FORMAT gateway_usage_format:table|csv how to print them
  file=FILE gateway_usage_file write them to FILE
key add: gateway_keys; client=gateway_keys_make changes; make a client of the gateways, and show its key once
  team=TEAM gateway_keys_team the client's team
  expires=DAY gateway_keys_expires the last day of the key
  tokens-per-day=NUMBER gateway_keys_tokens_per_day its budget
  rate=NUMBER gateway_keys_rate requests per minute
key list: gateway_keys; ; list the clients of the gateways
key end: gateway_keys; client=gateway_keys_end changes; end the keys of a client at once
remove: remove; needs_hosts changes exclusive=instance|model|environment|image|everything; remove one thing, or everything of the collection, from hosts
  instance=NAME remove_instance an instance
  model=NAME remove_model the weights of a model
  environment=RELEASE remove_environment the environment of a release
  image=NAME remove_image an image
  everything remove_everything all of the collection except driver and container engine
"""  # noqa: E501


# What `apply` and `check` run: the playbook of servers and mirrors, and that of gateways.
SERVING = ("site", "gateway")


class Option(NamedTuple):
    """An option of a verb, such as --reason; the table says what its fields are."""

    name: str
    value: str
    variable: str
    choices: tuple[str, ...]
    help: str


class Verb(NamedTuple):
    """A verb; the table says what its fields are."""

    help: str
    playbooks: tuple[str, ...]
    options: tuple[Option, ...] = ()
    hosts: str = "target_hosts"
    needs_hosts: bool = False
    client: str = ""
    changes: bool = False
    exclusive: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    json: str = ""


def _read() -> dict[str, Verb]:
    verbs: dict[str, Verb] = {}
    name = ""
    for line in TABLE.splitlines():
        if line.startswith(" "):
            option, variable, text = line.split(maxsplit=2)
            option, _equals, value = option.partition("=")
            variable, _colon, choices = variable.partition(":")
            one = Option(option, value, variable, tuple(choices.split("|")) if choices else (), text)
            verbs[name] = verbs[name]._replace(options=(*verbs[name].options, one))
            continue
        name, _colon, line = line.partition(": ")
        playbooks, words, text = line.split("; ", 2)
        traits: dict[str, Any] = {}
        for trait, equals, value in (word.partition("=") for word in words.split()):
            is_list = isinstance(Verb._field_defaults[trait], tuple)
            traits[trait] = tuple(value.split("|")) if is_list else value if equals else True
        verbs[name] = Verb(text, tuple(playbooks.split()), **traits)
    return verbs


VERBS = _read()
