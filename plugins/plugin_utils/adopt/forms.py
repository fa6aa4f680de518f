# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the start of vLLM in any form: a shell's text, a compose file, a unit of systemd, a quadlet of podman."""

import re
import shlex
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import name_kind
from ...module_utils.common.spelling import nearest
from ..common.yaml import load_yaml
from ..common.yaml_events import EventYamlError
from .containers import read_run, run_command, take
from .shell import (
    FLAG,
    CommandError,
    as_written,
    check_text,
    expand,
    expand_words,
    interpolated,
    lost_line,
    script,
    statements,
)
from .start import (
    Start,
    assignments,
    check_image,
    finish,
    inner_statements,
    is_shell,
    package_of,
    program_of,
    served_words,
)

_SECTION = re.compile(r"^\[(Service|Container|Unit)\]\s*$", re.MULTILINE)
_SERVICES = re.compile(r"^(?:services|[\w.-]+):\s*(?:#.*)?$", re.MULTILINE)
# Keys of a compose service that name what an option of docker run names.
_SINGLE = {
    "ipc": "ipc",
    "network_mode": "network",
    "container_name": "name",
    "shm_size": "shm-size",
    "runtime": "runtime",
}
_COMPOSE_BY_ROLE = {
    "build", "cap_add", "cap_drop", "depends_on", "deploy", "expose", "extra_hosts", "group_add", "healthcheck",
    "hostname", "init", "labels", "logging", "networks", "platform", "privileged", "profiles", "pull_policy",
    "read_only", "restart", "security_opt", "stdin_open", "stop_grace_period", "tmpfs", "tty", "ulimits", "user",
    "volumes", "working_dir",
}  # fmt: skip
# Keys of a quadlet's [Container], by the option of podman run.
_QUADLET = {
    "AddDevice": "device", "ContainerName": "name", "Entrypoint": "entrypoint", "EnvironmentFile": "env-file",
    "Network": "network", "PublishPort": "publish", "ShmSize": "shm-size", "Volume": "volume",
}  # fmt: skip


def read_start(text: str, service: str = "") -> Start:
    """Return the one start of vLLM in a text; ``service`` names one of a compose file. Raises CommandError."""
    check_text(text)
    if re.search(r"^apiVersion:", text, re.MULTILINE):
        raise CommandError("found a manifest of Kubernetes, expected its image, variables and args as `docker run`")
    if _SECTION.search(text):
        start = _unit(text)
    elif _SERVICES.search(text) and "image:" in text:
        start = _compose(text, service)
    else:
        start = read_shell(text)
    check_image(start)
    if not start.words:
        raise CommandError(
            f"the {start.form} starts no vLLM that can be read: found {_describe(start)}, expected `vllm serve MODEL` "
            "or `--model MODEL`"
        )
    return start


def _describe(start: Start) -> str:
    if start.image:
        return f"the image {start.image!r} without a command"
    return ", ".join(dict.fromkeys(start.others)) or "no command"


def _shell_statements(text: str) -> Iterator[list[str]]:
    """Yield the statements of a shell, and those of ``bash -c`` outside of a container in its place."""
    for words in script(text):
        whole = run_command(words) is not None or served_words(words)
        yield from [words] if whole else inner_statements(words)


def read_shell(text: str, env: Mapping[str, str | None] | None = None) -> Start:
    """Return the start of vLLM in the statements of a shell. Raises CommandError."""
    known = {name: value for name, value in (env or {}).items() if value is not None}
    exported: dict[str, str] = {}
    starts: list[Start] = []
    container: Start | None = None
    package = ""
    others: list[str] = []
    for words in _shell_statements(text):
        package = package_of(words) or package
        others.append(program_of(words))
        place = run_command(words)
        served = served_words(words)
        if place is not None:
            container, command = read_run(words[place:], known)
            # What a shell has exported before reaches no container.
            exported = {}
            if finish(container, command, known):
                starts.append(container)
            elif not is_shell(command):
                check_image(container)
        elif served is not None:
            start = container if container and not container.words else Start("command")
            start.env.update({**exported, **dict(assignments(served[0], known))})
            start.words = list(expand_words(served[1], known))
            start.package = "" if start.image else package
            starts.append(start)
        else:
            found = dict(assignments(words, known))
            known.update(found)
            if words[0] in ("export", "env"):
                exported.update(found)
    if len(starts) > 1:
        raise CommandError(f"found {len(starts)} commands that start vLLM, expected one; give each of them its own run")
    return starts[0] if starts else container or Start("command", others=list(filter(None, others)))


# Units of systemd, and quadlets


def _unit(text: str) -> Start:
    entries = _entries(text)
    if any(section == "Container" for section, _key, _value in entries):
        return _quadlet([(key, value) for section, key, value in entries if section == "Container"])
    env: dict[str, str | None] = {}
    files, command = [], ""
    for section, key, value in entries:
        if section == "Service" and key == "Environment":
            env.update(assignments(_split(value), {}))
        elif section == "Service" and key == "EnvironmentFile":
            files.append(f"EnvironmentFile={value.lstrip('-')}")
        elif section == "Service" and key == "ExecStart":
            # systemd splits $NAME into words, as a shell does, and leaves ${NAME} in one.
            command = re.sub(r"(?<!\S)\$\{\w+\}(?!\S)", r'"\g<0>"', value.lstrip("-@+!:|"))
    start = read_shell(command, env)
    start.env = {**env, **start.env} if start.form == "command" else start.env
    start.form = "unit"
    start.lost += files
    return start


def _entries(text: str) -> list[tuple[str, str, str]]:
    """Return section, key and value of each line of a unit; lines that end with a backslash go on."""
    section, found = "", []
    for line in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif FLAG.match(line):
            raise CommandError(lost_line(text, line.split()[0]))
        elif "=" in line and line[0] not in "#;":
            key, _equals, value = line.partition("=")
            found.append((section, key.strip(), value.strip()))
    return found


def _split(value: str) -> list[str]:
    return [word for words in statements(value) for word in words]


def _quadlet(entries: Sequence[tuple[str, str]]) -> Start:
    start, command = Start("quadlet"), ""
    for key, value in entries:
        if key == "Image":
            start.image = value
        elif key == "Exec":
            command = value
        elif key == "PodmanArgs":
            more, _rest = read_run([*_split(value), start.image], {})
            start.ports += more.ports
            start.container += more.container
            start.lost += more.lost
        elif key == "Environment":
            start.env.update(assignments(_split(value), {}))
        elif key in _QUADLET:
            take(start, _QUADLET[key], value, {})
        else:
            start.container.append(f"{key}=")
    finish(start, _split(command), {})
    return start


# Compose files


def _compose(text: str, service: str) -> Start:
    try:
        document = load_yaml(text)
    except EventYamlError as exc:
        raise CommandError(f"the compose file is not YAML: line {exc.line}, column {exc.column}") from exc
    services = document.get("services", document) if isinstance(document, Mapping) else None
    if not isinstance(services, Mapping):
        raise CommandError(f"the compose file: found {name_kind(services)}, expected a mapping of services")
    starts = {str(name): _service(entry) for name, entry in services.items() if isinstance(entry, Mapping)}
    if service:
        if service not in starts:
            raise CommandError(
                f"adopt_service: the compose file has no service {service!r}; {nearest(service, starts)}"
            )
        return starts[service]
    serving = [name for name, start in starts.items() if start.words]
    if len(serving) > 1:
        raise CommandError(
            f"the compose file has {len(serving)} services that start vLLM ({', '.join(serving)}); name one with -e "
            "adopt_service=NAME"
        )
    return starts[serving[0]] if serving else next(iter(starts.values()), Start("compose"))


def _service(entry: Mapping[str, Any]) -> Start:
    start = Start("compose", image=_text(entry.get("image")))
    for name, value in _variables(entry.get("environment")):
        start.env[name] = value
    start.ports = [_port(port) for port in _list(entry.get("ports"))]
    for key, option in _SINGLE.items():
        if key in entry:
            take(start, option, _text(entry[key]), {})
    for device in _list(entry.get("devices")):
        take(start, "device", _text(device), {})
    for reserved in _reserved(entry):
        start.chips += [
            int(chip) for chip in _list(reserved.get("device_ids")) if re.fullmatch("[0-9]{1,4}", str(chip))
        ]
    for file in _list(entry.get("env_file")):
        start.lost.append(f"env_file {as_written(_text(file.get('path') if isinstance(file, Mapping) else file))}")
    read = {"image", "environment", "ports", "devices", "env_file", "entrypoint", "command", "gpus", *_SINGLE}
    for key in entry:
        if key not in read:
            (start.container if key in _COMPOSE_BY_ROLE else start.lost).append(str(key))
    entrypoint = _command(entry.get("entrypoint"))
    start.entrypoint = [word for word in entrypoint if word] or None
    finish(start, _command(entry.get("command")), {})
    return start


def _text(value: Any) -> str:
    """Return a scalar as compose passes it on, with its variables marked, or replaced by their defaults."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else expand(interpolated(str(value)), {})


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _variables(environment: Any) -> list[tuple[str, str | None]]:
    if isinstance(environment, Mapping):
        return [(str(name), None if value is None else _text(value)) for name, value in environment.items()]
    pairs = [_text(entry).partition("=") for entry in _list(environment)]
    return [(name, value if equals else None) for name, equals, value in pairs]


def _port(port: Any) -> str:
    if isinstance(port, Mapping):
        parts = [port.get("host_ip"), port.get("published"), port.get("target")]
        return ":".join(_text(part) for part in parts if part is not None)
    return _text(port)


def _reserved(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the devices that a service reserves."""
    found: Any = entry
    for key in ("deploy", "resources", "reservations", "devices"):
        found = found.get(key) if isinstance(found, Mapping) else None
    gpus = entry.get("gpus")
    return [device for device in (*_list(found), *_list(gpus)) if isinstance(device, Mapping)]


def _command(value: Any) -> list[str]:
    """Return the words of a command or an entrypoint: a list of words, or one text that compose splits like a shell."""
    if isinstance(value, (list, tuple)):
        return [_text(word) for word in value]
    try:
        return [_text(word) for word in shlex.split(str(value or ""))]
    except ValueError as exc:
        raise CommandError(f"the compose file: a command has a quote that is never closed ({exc})") from exc
