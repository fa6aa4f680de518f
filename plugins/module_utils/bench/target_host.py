# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from the files of an instance how it is measured on this host."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..containers.run_command import container_name
from ..endpoint.client import AddressError, TimedClient, split_url
from ..instance.config_file import API_KEY, InstanceError, Value
from ..instance.config_host import NotInstalledError, config_in, endpoint_in, read_text, secrets_in, worth_masking
from ..instance.listener_guard_host import ListenerGuard
from ..instance.listener_host import StrangerError, processes_of
from ..instance.marks import CONFIG_DIR, STATE_DIR
from ..slots.installed_host import Host
from ..slots.state import launch_of
from .measurement import BY_MODULE, COMMAND, BenchError, Target

# The instance's arguments that the benchmark needs to load the tokenizer as the instance does.
_VALUES, _SWITCHES = ("tokenizer-mode",), ("trust-remote-code",)


@dataclass(frozen=True)
class Instance:
    """An instance on this host. api_key: empty where it requires none; secrets: values that no output may show."""

    name: str
    target: Target
    api_key: str
    secrets: tuple[str, ...]

    def client(self) -> TimedClient:
        """Return a client of its address, with its key. Raises BenchError."""
        try:
            return TimedClient(self.target.url, self.api_key, expected=processes_of(self.name))
        except AddressError as exc:
            raise BenchError(f"instance {self.name}: {exc}") from exc

    def guard(self) -> ListenerGuard | None:
        """Return the guard of a program that is sent the key; None where nobody listens, which the benchmark reports.

        Raises BenchError if another process than the instance's would be sent the key.
        """
        parts = split_url(self.target.url)
        try:
            return ListenerGuard(parts.hostname or "", parts.port or 0, processes_of(self.name))
        except StrangerError as exc:
            raise BenchError(f"instance {self.name}: {exc}") from exc
        except OSError:
            return None


def read_instance(name: str, root: str = "/") -> Instance:
    """Return the instance that is installed below ``root``. Raises BenchError."""
    host = Host(root, lambda _engine, _image: "")
    directory = host.at(CONFIG_DIR)
    path = os.path.join(directory, f"{name}.yaml")
    try:
        config, (url, models) = config_in(directory, name), endpoint_in(directory, name)
        secrets = secrets_in(directory, name)
    except NotInstalledError as exc:
        raise BenchError(f"{exc}; run playbooks/site.yml") from exc
    except InstanceError as exc:
        raise BenchError(str(exc)) from exc
    command, inside = _command(name, host)
    options = [word for key in _VALUES if key in config for word in (f"--{key}", _word(config, key))]
    options += [f"--{key}" for key in _SWITCHES if _word(config, key).lower() == "true"]
    options += ["--insecure"] if url.startswith("https:") else []
    tokenizer = _word(config, "tokenizer") or _word(config, "model")
    if not tokenizer:
        raise BenchError(f"{path}: found neither tokenizer nor model; the benchmark needs the name of the tokenizer")
    target = Target(url, models[0], tokenizer, command, tuple(options), inside)
    return Instance(name, target, secrets.get(API_KEY, ""), tuple(worth_masking(secrets)))


def _command(name: str, host: Host) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words that start the benchmark, and those that run a command inside of the instance's container."""
    state = host.state(name)
    if state.image and state.image.engine:
        return ("vllm", *COMMAND), (state.image.engine, "exec", container_name(name))
    if not state.venv:
        raise BenchError(
            f"instance {name}: its start script names no virtual environment and no image; run playbooks/site.yml"
        )
    script = f"{STATE_DIR}/{name}/serve"
    by_module = launch_of(name, state.kind, {script: read_text(host.at(script)) or ""}).by_module
    by_module = by_module or host.has_metadata(name)
    program = f"{state.venv}/bin/{'python' if by_module else 'vllm'}"
    if not os.access(program, os.X_OK):
        raise BenchError(f"instance {name}: {program} is not there, expected vLLM's command; run playbooks/site.yml")
    return (program, *(("-c", BY_MODULE) if by_module else COMMAND)), ()


def _word(config: dict[str, Value], key: str) -> str:
    value = config.get(key, "")
    return value if isinstance(value, str) else ""
