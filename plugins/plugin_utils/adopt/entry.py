# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the start of vLLM that somebody has into the entry of ``vllm_instances`` that means the same."""

import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ..options.arguments import Setting, lay, to_mapping
from ..options.table import Doubt, Foreign, OptionTable
from .flags import Given, read_flags
from .replacements import describe, is_accepted, leaves, newer_form, settings_instead, without_replaced
from .shell import CommandError, as_written, only_there, unreadable
from .start import Start, also_open
from .variables import CHIPS, sort_variables

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")
# How huggingface_hub and modelscope name directories of their caches; bounded, because each part may begin anywhere.
_CACHED = re.compile(
    r"(?:(?<![^/])models--([\w.-]{1,96}?)--([\w.-]{1,96})(?:/|\Z))"
    r"|(?:/modelscope/(?:hub/)?(?:models/)?([\w.-]+)/([\w.-]+)/?\Z)"
)
# Flags that name this host among several.
_OF_SEVERAL = (
    "data-parallel-address", "data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-rank",
    "data-parallel-rpc-port", "data-parallel-start-rank", "headless", "master-addr", "master-port", "nnodes",
    "node-rank",
)  # fmt: skip
# Flags that are keys of an instance, with the values that these accept.
_CHIPS = r"[0-9]{1,4}(,[0-9]{1,4})*"
_PLACES = {"host": r"[\w.:-]+", "port": r"[1-9]\d{0,4}", "served-model-name": r"(?s).+", "device-ids": _CHIPS}
_EXPECTED = {"host": "an address", "port": "a port", "served-model-name": "a name", "device-ids": "numbers of chips"}
_PLUGINS = ("tool-parser-plugin", "reasoning-parser-plugin")
_NAME_IT = "name it with -e adopt_model=ORGANISATION/NAME (--model)"
_ALL = "0.0.0.0"  # noqa: S104  vLLM's own default


@dataclass
class Adopted:
    """The entry, the names of its secrets, and each word of the command that is no part of it, with the reason.

    ``model`` is the repository of the weights. ``notes`` are remarks on words that the entry keeps.
    """

    model: str
    instance: dict[str, Any]
    secrets: list[str]
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Release:
    """What the entry is checked against: the table of a release, the other ones, and the variables of libraries."""

    table: OptionTable
    others: Sequence[OptionTable]
    foreign: Foreign
    replaced: Mapping[str, Mapping[str, str]]

    def accepts(self, settings: Sequence[Setting]) -> bool:
        """Return whether the release accepts settings as they are; none are not accepted."""
        return is_accepted(settings, self.table, self.others, self.foreign)


def adopt(start: Start, release: Release, model: str = "") -> Adopted:
    """Return the entry for a start; ``model`` names the weights where the command names a path. Raises CommandError."""
    named, flags = read_flags(start.words, release.table, release.others)
    adopted = Adopted(_model(named, model, start), {}, [])
    rest: list[Given] = []
    place: dict[str, Any] = {}
    for given in flags:
        _take(adopted, place, rest, given)
    args = _arguments(adopted, rest, release)
    found = sort_variables(start.env, release.table, release.foreign, release.others, release.replaced)
    adopted.secrets += [name for name in found.secrets if name not in adopted.secrets]
    adopted.left_out += [
        each for each in found.left_out if not _replaced_variable(adopted, args, each[0], start, release)
    ]
    adopted.notes += found.notes
    adopted.instance.update(_place(adopted, start, place))
    names = place.get("served-model-name") or ([as_written(named)] if named and named != adopted.model else [])
    if names and names != [adopted.model]:
        adopted.instance["served_model_names"] = names
    chips = start.chips or _visible(start.env)
    if "device-ids" in place:
        # They count among the chips that the command sees.
        chosen = _numbers(place["device-ids"])
        chips = [chips[number] for number in chosen] if max(chosen) < len(chips) else chosen
    # Without either of them an instance has as many copies as fill the host.
    adopted.instance.update({"chips": chips} if chips else {"replicas": 1})
    if "tensor-parallel-size" not in {given.name for given in flags}:
        # The plan would choose a number by the hardware.
        args["tensor-parallel-size"] = 1
    if args:
        adopted.instance["args"] = args
    if found.env:
        adopted.instance["env"] = {name: as_written(value) for name, value in found.env.items()}
    _of_container(adopted, start)
    return adopted


def _model(named: str, wanted: str, start: Start) -> str:
    """Return the repository of the weights."""
    if wanted:
        if not _REPOSITORY.match(wanted):
            raise CommandError(f"adopt_model: found {show_value(wanted)}, expected ORGANISATION/NAME as on the hub")
        return wanted
    if not named:
        raise CommandError("the command names no model, expected `vllm serve MODEL` or `--model MODEL`")
    if unreadable(named):
        raise CommandError(f"the model: {only_there(named)}; {_NAME_IT}{also_open(start, named)}")
    cached = _CACHED.search(named)
    if cached:
        return "/".join(text for text in cached.groups() if text)
    if not _REPOSITORY.match(named):
        what = ", a path that only that machine has" if re.match(r"[~./]*/", named) else ""
        raise CommandError(
            f"the model: found {show_value(as_written(named))}{what}, expected a repository of the hub; {_NAME_IT}"
            f"{also_open(start, named)}"
        )
    return named


def _take(adopted: Adopted, place: dict[str, Any], rest: list[Given], given: Given) -> None:
    """Sort one flag: into the keys of an instance, the secrets, what is left out, or the arguments."""
    name, flag = given.name, given.flag
    part = next(filter(None, map(only_there, given.values)), "")
    value = given.settings[0].value if given.settings else None
    if name == "api-key":
        adopted.secrets.append("VLLM_API_KEY")
    elif name == "hf-token":
        adopted.left_out.append((flag, "a secret; hosts ask no hub, so give the token to pin_weights.yml"))
    elif name in _OF_SEVERAL:
        raise CommandError(
            f"{flag}: the command starts one of several hosts of an instance, which `nodes` of the instance names "
            "(docs/operate/several-hosts.md); read its other flags without those for hosts"
        )
    elif part:
        adopted.left_out.append((flag, f"{part}; set args {name}"))
    elif name in _PLACES and not re.fullmatch(_PLACES[name], str(value)):
        adopted.left_out.append((flag, f"found {show_value(' '.join(given.values))}, expected {_EXPECTED[name]}"))
    elif name in _PLACES:
        place[name] = list(map(str, given.values)) if name == "served-model-name" else value
    elif name == "revision":
        reason = f"a manifest pins it: pin_weights.yml -e pin_revision={given.values[0]}" if given.values else ""
        adopted.left_out.append((flag, reason))
    elif name in _LEFT_OUT:
        adopted.left_out.append((flag, _LEFT_OUT[name]))
    else:
        rest.append(given)


_LEFT_OUT = {
    "config": "names a file of that machine; add its lines to args",
    "download-dir": "weights are below weights_root",
    "shutdown-timeout": "the role variable vllm_drain_timeout sets it",
    "ssl-keyfile": "the gateway speaks TLS (docs/operate/gateway.md)",
    "ssl-certfile": "the gateway speaks TLS (docs/operate/gateway.md)",
    "fail-on-environ-validation": "the plan sets it where it can",
}


def _arguments(adopted: Adopted, flags: Sequence[Given], release: Release) -> dict[str, Any]:
    """Return the arguments that the release accepts, in the form of an instance; the others are left out."""
    args: dict[str, Any] = {}
    for given in flags:
        setting, instead = without_replaced(given.settings[0], release.table, release.replaced, release.accepts)
        for name, each in instead:
            args = _replace(adopted, args, f"{given.flag} {name.partition('.')[2]}", [each])
        if setting.value is None and instead:
            continue
        alone = lay({}, setting)
        for plugin in _PLUGINS:
            alone.update({other.name: other.settings[0].value for other in flags if other.name == plugin})
        found = release.table.check_args(
            to_mapping(alone, release.table), release.others, release.replaced, release.foreign.values
        )
        problems = [text for text in found if not isinstance(text, Doubt)]
        other = newer_form(given.name, setting.value)
        word = " ".join([given.flag, *given.values]) if other else given.flag
        if problems and not other:
            other = settings_instead(given.name, given.values, release.table, release.replaced)
        if release.accepts(other):
            args = _replace(adopted, args, word, other)
            continue
        if problems:
            # JSON that cannot be read may hold secrets under any key.
            reason = re.sub(r'found "[{\[].*', "found a text that is not JSON", problems[0], flags=re.S)
            adopted.left_out.append((given.flag, re.sub(r"^--[\w.-]+: ", "", reason)))
            continue
        adopted.notes += [(given.flag, re.sub(r"^--[\w.-]+: ", "", text)) for text in found]
        path = next(_paths(setting.value), "")
        if path:
            adopted.notes.append((given.flag, f"names {path}, a path of that machine; hosts need it there too"))
        # The whole of a JSON flag would take the place of the keys that stand for others of it.
        parts = leaves((setting.name, *setting.keys), setting.value) if instead else ()
        for part in [setting._replace(keys=path[1:], value=leaf) for path, leaf in parts] or [setting]:
            args = lay(args, part)
    return to_mapping(args, release.table)


def _replace(adopted: Adopted, args: dict[str, Any], word: str, instead: Sequence[Setting]) -> dict[str, Any]:
    """Return the arguments with what stands in place of a word that is gone, and note it."""
    adopted.notes.append((word, f"is gone, the entry has {describe(instead)} in its place"))
    for setting in instead:
        args = lay(args, setting)
    return args


def _replaced_variable(adopted: Adopted, args: dict[str, Any], name: str, start: Start, release: Release) -> bool:
    """Return whether an argument stands in place of a variable that is gone; a flag of the command goes before it."""
    value = start.env.get(name)
    if not value or unreadable(value):
        return False
    instead = settings_instead(name, [value], release.table, release.replaced)
    if any(setting.name in args for setting in instead) or not release.accepts(instead):
        return False
    args.update(to_mapping(_replace(adopted, {}, name, instead), release.table))
    return True


def _paths(value: Any) -> Iterator[str]:
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _paths(inner)
    if isinstance(value, str) and re.match(r"(?:[\w.-]+=)?(?:~|\.{0,2})/[^\s{]*\Z", value):
        yield value


def _place(adopted: Adopted, start: Start, place: Mapping[str, Any]) -> dict[str, Any]:
    """Return host and port, at which clients reach the start: of a container, those that are published."""
    host, port = str(place.get("host") or _ALL), int(place.get("port") or 8000)
    if start.image and not start.host_network:
        host = "127.0.0.1" if not start.ports else host
        for published in start.ports:
            parts = published.partition("/")[0].rsplit(":", 2)
            if unreadable(published):
                adopted.left_out.append(("--publish", f"{only_there(published)}; set port"))
            elif parts[-1] == str(port) and len(parts) > 1 and re.fullmatch("[0-9]{1,5}", parts[-2]):
                port, host = int(parts[-2]), parts[0] if len(parts) > 2 and parts[0] else _ALL
                break
    return {**({"host": host} if host not in ("127.0.0.1", "localhost") else {}), "port": port}


def _visible(env: Mapping[str, str | None]) -> list[int]:
    """Return the chips that a variable of the command names."""
    for name, value in env.items():
        if name in CHIPS and re.fullmatch(_CHIPS, value or ""):
            return _numbers(value)
    return []


def _numbers(text: Any) -> list[int]:
    return [int(number) for number in str(text).split(",")]


def _of_container(adopted: Adopted, start: Start) -> None:
    """Note what becomes of the container's options."""
    own = list(dict.fromkeys(start.container))
    if own:
        adopted.left_out.append((", ".join(own), "the role vllm sets for its containers what they need"))
    for name in dict.fromkeys(start.lost):
        adopted.left_out.append((name, "has no counterpart in an instance"))
