# SPDX-License-Identifier: GPL-3.0-or-later
"""What the options of the module endpoint name: address, key, models and unit, read from the instance's files."""

from __future__ import annotations

import re
import ssl
from typing import Any, Callable

from ..common.kinds import show_value
from ..instance.config_file import API_KEY, read_secrets
from ..instance.config_host import (
    endpoint_in,
    is_worker_in,
    read_text,
    router_in,
    secrets_in,
    start_seconds_in,
    worth_masking,
)
from ..instance.listener_host import processes_of
from ..vllm.unit import Unit
from .client import AddressError, TimedClient
from .model_host import model_files, options_in
from .model_kind import CHAT, checks_for, is_trained
from .questions import CHECKS, Question


class OptionError(Exception):
    """An option, or a file that it names, cannot be used; the message is the whole sentence."""


class Endpoint:
    """The endpoint that the options name, read from the instance's files where they do."""

    def __init__(self, params: dict[str, Any], run_command: Callable[..., Any], hidden: set[str]) -> None:
        """Read the files; the secrets in them are added to ``hidden``. Raises OptionError and InstanceError."""
        self.params = params
        self._check_options()
        self.secrets = [self.params["api_key"]] if self.params["api_key"] else []
        self.url, self.models = self._address()
        instance = self.params["instance"]
        # Not shorter than its unit lets it start; where it fails before, the unit tells.
        least = start_seconds_in(self.params["config_dir"], instance) if instance else 0
        self.params["ready_timeout"] = max(self.params["ready_timeout"], least)
        options = options_in(self.params["config_dir"], instance) if instance else {}
        fitting = checks_for(options, model_files(str(options.get("model", "")))) if options else CHAT
        self.checks = fitting if self.params["checks"] is None else tuple(self.params["checks"])
        self.trained = is_trained(options)
        # A worker answers nobody: it has joined its head, or not.
        self.worker = bool(instance and not self.params["url"] and is_worker_in(self.params["config_dir"], instance))
        name = self.params["unit"] or (f"vllm@{self.params['instance']}.service" if self.params["instance"] else "")
        self.unit = Unit(name, run_command) if name else None
        key = self._api_key()
        hidden.update(self.secrets)
        try:
            # A server that is no instance of this host may run as any user.
            own = processes_of(instance) if instance and not self.params["url"] else None
            verified = self.url.startswith("https:") and (own is None or self.params["ca_path"])
            tls = self._tls() if verified else None
            self.client = TimedClient(self.url, key, tls, expected=own)
            self.router = TimedClient(self._router(), key, None, expected=own) if self._router() else None
        except AddressError as exc:
            raise OptionError(str(exc)) from exc

    def _router(self) -> str:
        instance = self.params["instance"]
        asked = self.params["remote_prefill"] and instance and not self.params["url"]
        return router_in(self.params["config_dir"], instance) if asked else ""

    def question(self) -> Question:
        params = self.params
        return Question(
            self.models,
            params["prompt"],
            params["completion_prompt"],
            params["expect"] or "",
            params["max_tokens"],
            self.trained,
        )

    def facts(self) -> dict[str, Any]:
        return {"url": self.url, "model": self.models[0], "unit": self.unit.name if self.unit else ""}

    def _check_options(self) -> None:
        for name in ("max_tokens", "ready_timeout", "request_timeout"):
            if self.params[name] <= 0:
                raise OptionError(f"{name}: found {self.params[name]:g}, expected more than 0")
        if self.params["journal_lines"] < 0:
            raise OptionError(f"journal_lines: found {self.params['journal_lines']}, expected 0 or more")
        if self.params["checks"] == []:
            raise OptionError(f"checks: the list is empty, expected some of {', '.join(CHECKS)}")
        for name in ("prompt", "completion_prompt"):
            if not self.params[name].strip():
                raise OptionError(f"{name}: is blank, expected a text")
        for name in ("instance", "unit"):
            value = self.params[name]
            if value is not None and not re.match(r"[A-Za-z0-9][\w.:@\\-]*\Z", value):
                raise OptionError(
                    f"{name}: found {show_value(value)}, expected a name such as chat or vllm@chat.service"
                )

    def _address(self) -> tuple[str, tuple[str, ...]]:
        url = "http://127.0.0.1:8000"
        models: tuple[str, ...] = ()
        instance = self.params["instance"]
        if instance and not (self.params["url"] and self.params["model"]):
            url, models = endpoint_in(self.params["config_dir"], instance)
        if self.params["model"]:
            models = (self.params["model"],)
        return (self.params["url"] or url).rstrip("/"), models

    def _api_key(self) -> str:
        given, instance = self.params["api_key_file"], self.params["instance"]
        # An instance may have no secrets, or others than the key; a server that requires one answers 401.
        secrets = secrets_in(self.params["config_dir"], instance) if instance and not given else {}
        if given:
            text = read_text(given)
            if text is None:
                raise OptionError(f"api_key_file: {given} is not on this host")
            secrets = read_secrets(text)
        self.secrets += worth_masking(secrets)
        return self.params["api_key"] or secrets.get(API_KEY, "")

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.params["ca_path"])
        except (OSError, ssl.SSLError) as exc:
            raise OptionError(f"ca_path: {self.params['ca_path']} holds no usable certificates ({exc})") from exc
        if not self.params["validate_certs"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
