# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask an instance of this host the gates that the options name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Sequence

from ..common.kinds import show_value
from ..instance.config_file import API_KEY
from ..instance.config_host import endpoint_in, secrets_in, worth_masking
from ..instance.listener_host import processes_of
from ..vllm.unit import mask
from .client import AddressError, TimedClient
from .gates import GateError, Verdict, limits_of, load_of, message, prompts_of
from .model_host import model_files, options_in
from .model_kind import checks_for
from .run_gates import Asker, Gates


class Instance:
    """The instance on this host, read from its files."""

    def __init__(self, name: str, config_dir: str, checks: Sequence[str] | None) -> None:
        if not re.match(r"[A-Za-z0-9][\w.:@\\-]*\Z", name):
            raise GateError(f"instance: found {show_value(name)}, expected a name such as chat")
        self.url, models = endpoint_in(config_dir, name)
        self.name, self.model = name, models[0]
        options = options_in(config_dir, name)
        fitting = checks_for(options, model_files(str(options.get("model", ""))))
        self.checks = fitting if checks is None else tuple(checks)
        values = secrets_in(config_dir, name)
        self.secrets = worth_masking(values)
        try:
            self.client = TimedClient(self.url, values.get(API_KEY, ""), expected=processes_of(name))
        except AddressError as exc:
            raise GateError(f"instance {name}: {exc}") from exc

    def facts(self) -> dict[str, Any]:
        return {"url": self.url, "model": self.model}


def gates_of(params: dict[str, Any]) -> Gates:
    """Return what the options ask for; raises GateError."""
    if params["request_timeout"] <= 0:
        raise GateError(f"request_timeout: found {params['request_timeout']:g}, expected more than 0 seconds")
    for name, least in (("warm", 0), ("tries", 1), ("pause", 0)):
        if params[name] < least:
            raise GateError(f"{name}: found {params[name]:g}, expected {least} or more")
    return Gates(
        prompts=prompts_of(params["prompts"]),
        warm=params["warm"],
        load=load_of(params["measure"]),
        baseline=params["baseline"] or {},
        limits=limits_of(params),
        tries=params["tries"],
        pause=params["pause"],
    )


def asked(instance: Instance, gates: Gates, timeout: float) -> dict[str, Any]:
    """Return the result of the module; secrets are masked, because a server may echo its request."""
    figures: dict[str, Any] = {}
    verdicts = [Verdict("chat", True, f"not asked: the model answers {', '.join(instance.checks[1:]) or 'no chats'}")]
    if "chat_stream" in instance.checks:
        figures, verdicts = Asker(instance.client, instance.model, timeout).ask(gates)
    verdicts = [replace(verdict, detail=mask(verdict.detail, instance.secrets)) for verdict in verdicts]
    return {
        "changed": False,
        **instance.facts(),
        "passed": all(verdict.ok for verdict in verdicts),
        "figures": figures,
        "verdicts": [verdict.row() for verdict in verdicts],
        "msg": message(f"Instance {instance.name} at {instance.url}", verdicts, figures, gates.baseline),
    }
