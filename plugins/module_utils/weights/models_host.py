# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and fetch all models of a host, then remove old revisions."""

from __future__ import annotations

import json
import os
from typing import Any

from ..common.foreign_text import quote_foreign
from ..common.module import Module
from ..common.mounts_host import MountedError
from ..transfer.fetch import Settings
from .fetch_host import (
    FetchOutcome,
    NoSourceError,
    ProgressTracker,
    WeightsStore,
    check_preconditions,
    choose_source,
    fetch_weights,
    inspect_weights,
)
from .files_host import ModelState
from .manifest import WeightsError, check_unique, parse_manifest
from .owners_host import Owners
from .progress_host import Reporter
from .retention_host import OldDirectory, UnknownUseError, find_prunable, mark_served, remove_old
from .serving_host import REFUSE, REPORT, describe_serving, find_serving
from .sources import Access, parse_sources

BYTES_OF_MEGABIT = 125_000
BYTES_OF_KILOBYTE = 1000
SHARED = {"auto": None, "yes": True, "no": False}


def damaged_in_service(module: Module, outcomes: list[FetchOutcome]) -> list[str]:
    """Return a sentence for each damaged model that an instance uses."""
    found = []
    for outcome in outcomes:
        units = find_serving(outcome.state, module.params["state_dir"], lambda unit: is_active(module, unit))
        if units:
            found.append(describe_serving(outcome.state, units))
    return found


def describe_foreign(state: ModelState) -> str:
    """Return a sentence on a model whose files another user can change."""
    return (
        f"{state.directory}: another user owns or can write {quote_foreign(min(state.foreign))} or a directory above "
        "it, or a link leads to it, so each run reads such files again; put a copy that root has made (cp -r) in the "
        f"place of {os.path.dirname(os.path.dirname(state.directory))}"
    )


class NoSourcesError(WeightsError):
    """No source has the missing files of some models; ``models`` holds each one's files and partial directory."""

    def __init__(self, errors: list[NoSourceError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.models = [
            {
                "path": error.state.manifest.path,
                "partial": error.state.partial,
                "files": {file.name: file.size for file in error.state.missing},
            }
            for error in errors
        ]


def run(module: Module, access: dict[str, dict[str, Any]]) -> tuple[list[FetchOutcome], list[OldDirectory]]:
    """Check all models, fetch missing files, then remove old revisions. Raises WeightsError."""
    track = ProgressTracker()
    # Report from the beginning: reading files may take as long as fetching them.
    with Reporter(module.params["progress_file"] or "", track.report):
        return _run(module, access, track)


def _run(
    module: Module, access: dict[str, dict[str, Any]], track: ProgressTracker
) -> tuple[list[FetchOutcome], list[OldDirectory]]:
    params = module.params
    manifests = [parse_manifest(model) for model in params["models"]]
    check_unique(manifests)
    site = site_of(module, access)
    states = []
    for manifest in manifests:
        track.model = manifest.repository
        states.append(inspect_weights(site.root, manifest, params["verify"] == "full"))
    check_preconditions(states, site)

    def superfluous() -> list[OldDirectory]:
        try:
            shared = SHARED[params["shared"]]
            return find_prunable(site.root, manifests, params["keep"], site.state_dir, shared, warn=module.warn)
        except UnknownUseError as exc:
            module.warn(str(exc))
            return []

    if module.check_mode and not params["check_sources"]:
        return [FetchOutcome(state) for state in states], superfluous()
    chosen = choose_all(states, site)
    if module.check_mode:
        return chosen, superfluous()
    # Independent of the connection's umask, because every instance's user must read the weights.
    os.umask(0o022)
    outcomes = fetch_all(module, chosen, site, track)
    # Only now, because another revision may have come into use during a fetch of hours.
    mark_served(site.root, manifests, site.state_dir)
    owners = Owners(site.root)

    def is_removed(old: OldDirectory) -> bool:
        try:
            return remove_old(old, owners)
        except MountedError as exc:
            module.warn(str(exc))
            return False

    return outcomes, [old for old in superfluous() if is_removed(old)]


def site_of(module: Module, access: dict[str, dict[str, Any]]) -> WeightsStore:
    params = module.params
    sources = parse_sources(params["sources"])
    return WeightsStore(
        root=params["root"],
        sources=sources,
        access=tuple(Access(**access.get(str(number), {})) for number in range(len(sources))),
        state_dir=params["state_dir"],
        is_active=lambda unit: is_active(module, unit),
        settings=Settings(
            ca_file=params["ca_file"],
            stall_timeout=params["stall_timeout"],
            connections=params["connections"],
            limit=params["bandwidth"] * BYTES_OF_MEGABIT,
            lowest_rate=params["lowest_rate"] * BYTES_OF_KILOBYTE,
        ),
        lock_timeout=params["lock_timeout"],
        pushed=params["pushed"],
        # Only check mode may just report it.
        serving=REFUSE if params["serving"] == REPORT and not module.check_mode else params["serving"],
        systemctl=lambda verb, unit: systemctl(module, verb, unit),
    )


def read_access(path: str | None) -> dict[str, dict[str, Any]]:
    """Read the tokens and addresses from the controller's file, and remove the file."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, dict[str, Any]] = json.load(file)
        os.unlink(path)
    except FileNotFoundError:
        raise WeightsError(
            f"{path}: the tokens for the sources were removed, because more than 15 minutes passed since "
            "the controller wrote them; run again"
        ) from None
    return found


def choose_all(states: list[ModelState], site: WeightsStore) -> list[FetchOutcome]:
    """Return the source of each model. Raises NoSourcesError that names all models without one."""
    chosen, errors = [], []
    for state in states:
        try:
            chosen.append(choose_source(state, site))
        except NoSourceError as exc:
            errors.append(exc)
    if errors:
        raise NoSourcesError(errors)
    return chosen


def fetch_all(
    module: Module, chosen: list[FetchOutcome], site: WeightsStore, track: ProgressTracker
) -> list[FetchOutcome]:
    """Fetch one model after the other. Raises NoSourcesError."""
    missing = [file for outcome in chosen for file in outcome.state.missing]
    changed = [outcome.state.manifest.repository for outcome in chosen if outcome.state.changed]
    track.model = "".join(changed[:1])
    track.total, track.files = sum(file.size for file in missing), len(missing)
    try:
        return [fetch_weights(one, site, module.log, track) if one.state.changed else one for one in chosen]
    except NoSourceError as exc:
        raise NoSourcesError([exc]) from exc


def removal_diff(old: OldDirectory) -> dict[str, Any]:
    """Return both sides of Ansible's diff for a directory that is removed."""
    return {"before_header": old.path, "after_header": old.path, "before": f"{old.kind}\n", "after": ""}


def is_active(module: Module, unit: str) -> bool:
    """Whether systemd runs the unit or is about to."""
    systemctl = module.get_bin_path("systemctl")
    if systemctl is None:
        return False
    _rc, out, _err = module.run_command([systemctl, "is-active", unit])
    return out.strip() in ("active", "activating", "reloading", "deactivating")


def systemctl(module: Module, verb: str, unit: str) -> str:
    """Run a verb of systemctl on a unit; return its error output, an empty string for success."""
    # The role vllm, or an admin, waits for the start.
    more = ["--no-block"] if verb == "start" else []
    rc, _out, err = module.run_command(["systemctl", *more, verb, unit])
    return (err.strip() or f"exit status {rc}") if rc else ""
