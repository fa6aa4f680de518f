# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan every variant of a recipe on chips that no inventory declares: what would run where, and what would not."""

import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.accelerator.recognition import CPU, AcceleratorError, Catalogue
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.vllm.plan_document import PlanDocument
from ..catalog.accelerators import count_problem, declared_accelerator
from ..common.tables import table, wrapped
from ..planning.hardware import Accelerator
from ..planning.inputs import PermissionNeededError, PlanError
from ..planning.side_models import LOADED
from .host_plans import plan_host

# The name of the instance that is tried; messages begin with it, which the table leaves out.
NAME = "trial"
WIDTH = 120
HEADERS = ("recipe", "variant", "host", "chips", "needs", "context", "weights")
# The paths are those of the role's defaults: a trial installs nothing.
SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
}
# Chips of a common host of each model; of those that are not here, host_chips of the catalogue, else 8.
CHIPS_PER_HOST = {
    **dict.fromkeys(("rtx_5090", "rtx_pro_5000", "rtx_pro_6000", "r9700", "l4", "cpu"), 1),
    **dict.fromkeys(("arc_pro_b60", "arc_pro_b70"), 4),
}


class TrialError(ValueError):
    """The trial cannot be made; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Trial:
    """One variant of a recipe on one host: its plan, or why there is none.

    With a plan, ``problem`` is what the instance has to allow, and ``allowed`` the settings that do so.
    """

    recipe: str
    variant: str
    accelerator: Accelerator
    plan: PlanDocument | None = None
    problem: str = ""
    allowed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the trial as plain data."""
        allowed = {key: dict(values) for key, values in self.allowed.items() if values}
        found = {
            "recipe": self.recipe,
            "variant": self.variant,
            "accelerator": self.accelerator.model,
            "accelerator_count": self.accelerator.count,
            "stack": self.accelerator.stack,
            "problem": self.problem,
            **({"allowed": allowed} if self.allowed else {}),
        }
        if self.plan is None:
            return {**found, "chips": 0, "memory_required_gib": None, "max_model_len": None, "models": []}
        return {
            **found,
            "chips": len(self.plan["chips"]),
            "memory_required_gib": self.plan["memory_required_gib"],
            "max_model_len": self.plan["args"].get("max-model-len"),
            "models": list(self.plan["models"]),
        }


@dataclass(frozen=True)
class Bench:
    """What trials are made with: the release (empty: each stack's own) and the site's directories, by their option."""

    catalogue: Catalogue
    release: str = ""
    paths: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def hosts(self, wanted: Sequence[str], recipes: Iterable[Mapping[str, Any]]) -> list[Accelerator]:
        """Return the hosts to try: those requested, as MODEL or MODEL:COUNT, else those that the recipes list."""
        if wanted:
            return [self._host(entry) for entry in wanted]
        listed = [(recipe.get("meta") or {}).get("hardware") or {} for recipe in recipes]
        known = (self._host(key) for key, model in self.catalogue.models.items() if not model.unsupported)
        return [host for host in known if any(host.pick(names) not in (None, "unsupported") for names in listed)]

    def _host(self, entry: str) -> Accelerator:
        model, colon, count = entry.partition(":")
        if colon and not re.fullmatch(r"[1-9]\d{0,2}", count, re.ASCII):
            raise TrialError(f"accelerators: found {show_value(entry)}, expected MODEL or MODEL:COUNT, such as h200:8")
        if model not in {*self.catalogue.models, CPU}:
            known = nearest(model, self.catalogue.models)
            raise TrialError(f"accelerators: found {show_value(entry)}, which is in no file of the catalogue; {known}")
        most = self.catalogue.models[model].host_chips if model != CPU else None
        chips = int(count or CHIPS_PER_HOST.get(model) or most or 8)
        if problem := count_problem(self.catalogue, model, chips):
            raise TrialError(f"accelerators: {entry}: {problem}")
        try:
            return declared_accelerator(self.catalogue, model, chips)
        except AcceleratorError as exc:
            raise TrialError(f"accelerators: {exc}") from exc

    def try_recipe(self, name: str, recipe: Mapping[str, Any], hosts: Sequence[Accelerator]) -> list[Trial]:
        """Return a trial of each variant on each host."""
        variants = recipe.get("variants") or {"default": {}}
        return [self._try(name, variant, host) for variant in variants for host in hosts]

    def _try(self, name: str, variant: str, host: Accelerator) -> Trial:
        problems: list[str] = []
        allowed: dict[str, dict[str, Any]] = {}
        while True:
            instance = {"recipe": name, "variant": variant, "replicas": 1, **allowed}
            settings = {**SITE, **self.paths, "instances": {NAME: instance}, "release": self.release}
            try:
                plan = plan_host("trial", host, settings)[NAME]
            except PermissionNeededError as exc:
                problems.append(_without_place(str(exc)))
                if all(values.items() <= allowed.get(key, {}).items() for key, values in exc.settings.items()):
                    return Trial(name, variant, host, problem="; ".join(problems))
                # The recipe can be tried all the same: nothing is installed.
                allowed = {key: {**allowed.get(key, {}), **values} for key, values in exc.settings.items()} | {
                    key: values for key, values in allowed.items() if key not in exc.settings
                }
            except PlanError as exc:
                return Trial(name, variant, host, problem=_without_place(str(exc)))
            else:
                return Trial(name, variant, host, plan, "; ".join(problems), allowed)


def models_of(trials: Iterable[Trial]) -> list[str]:
    """Return the repositories whose weights the plans serve, each once."""
    plans = [trial.plan for trial in trials if trial.plan]
    found = (name for plan in plans for name in plan["models"] if name not in without_weights(plan))
    return list(dict.fromkeys(found))


def tokenizers_of(trials: Iterable[Trial]) -> list[str]:
    """Return the repositories of which the plans read tokenizer or configuration only, each once."""
    trials = list(trials)
    found = [name for trial in trials if trial.plan for name in without_weights(trial.plan)]
    return [name for name in dict.fromkeys(found) if name not in models_of(trials)]


def without_weights(plan: PlanDocument) -> list[str]:
    """Return the repositories of which a plan reads tokenizer or configuration only."""
    # A pinned repository stands there as its path, which holds its name.
    loaded = str([plan["args"].get(name) for name in LOADED])
    return [name for name in plan["models"] if name.partition("@")[0] != plan["model"] and name not in loaded]


def trial_table(trials: Sequence[Trial], width: int = WIDTH) -> str:
    """Return what each variant takes on each host, at most ``width`` columns wide, and below it why others cannot."""
    rows = _hosts_by((trial, _cells(trial)) for trial in trials if trial.plan)
    lines = [(key[0], key[1], hosts, *key[2:]) for key, hosts in rows.items()]
    refused = _hosts_by((trial, (trial.recipe, trial.variant, _reason(trial))) for trial in trials if not trial.plan)
    needing = _hosts_by((trial, (trial.recipe, trial.variant, trial.problem)) for trial in trials if trial.allowed)
    notes = [
        wrapped(f"{recipe}, {variant}, {how} {hosts}: {reason}", width, further="  ")
        for how, found in (("not on", refused), ("only with your permission on", needing))
        for (recipe, variant, reason), hosts in found.items()
    ]
    return "\n".join(part for part in (table(HEADERS, lines, width, whole=40), *notes) if part)


def _hosts_by(entries: Iterable[tuple[Trial, tuple[str, ...]]]) -> dict[tuple[str, ...], str]:
    """Return the hosts of the trials that have the same cells, in words."""
    found: dict[tuple[str, ...], list[str]] = {}
    for trial, key in entries:
        found.setdefault(key, []).append(f"{trial.accelerator.count} x {trial.accelerator.model}")
    return {key: ", ".join(hosts) for key, hosts in found.items()}


def _cells(trial: Trial) -> tuple[str, ...]:
    """Return the cells of a planned trial without its host."""
    plan = trial.plan
    if plan is None:
        return ()
    memory, length = plan["memory_required_gib"], plan["args"].get("max-model-len")
    return (
        trial.recipe,
        trial.variant,
        str(len(plan["chips"]) or "host"),
        f"{memory:g} GiB" if memory else "unknown",
        str(length or "the model's"),
        "pinned" if plan["revision"] else "not pinned",
    )


def _reason(trial: Trial) -> str:
    """Return why a variant cannot be served, without the name of the chip, so that hosts share a reason."""
    found = re.match(rf".* is not for {re.escape(trial.accelerator.model)}: ([^;]+)", trial.problem)
    return found[1] if found else trial.problem


def _without_place(message: str) -> str:
    return re.sub(rf"^vllm_instances\.{NAME}(\.\w+)?: |^vllm_instances: ", "", message)
