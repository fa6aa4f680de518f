# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe cannot do alone: load code, open the server, send data away, set what nobody has reviewed.

The instance itself has to allow it.
The permission is the same setting among the instance's own ``args`` and ``env``; None there removes it.
"""

import json
from typing import Any, Collection, Mapping, Sequence

from ...module_utils.common.spelling import misspelt, nearest
from ..common.yaml import is_template
from ..options.arguments import name_problem
from ..options.restricted import Restricted, Restrictions
from ..options.table import Foreign
from .choices import Chosen
from .compose import Composed, Layer, compose
from .inputs import Manifest, PermissionNeededError, PlanError, SiteSettings
from .instances import SECRET_ENV
from .named_files import TEMPLATE

FLAG = "trust-remote-code"
_NAMED = 3
_LONGEST = 200


def check_permission(
    entry: Chosen,
    composed: Composed,
    layers: Sequence[Layer],
    restrictions: Restrictions,
    files: Collection[str] = (),
) -> None:
    """Raise PermissionNeededError where a recipe sets what only its instance may allow, and the instance does not.

    ``layers`` are those that ``composed`` was made from, ``files`` those of the pinned weights: a template may be one.
    """
    own = compose([layer for layer in layers if not layer.by_recipe], entry.table, entry.where)
    features = entry.requested.get("features") or ()
    args = [
        each
        for each in restrictions.of_args(composed.args)
        if _at(own.args, each) != each.value
        and each.feature not in features
        and not (each.name == TEMPLATE and each.value in files)
    ]
    env = [
        each
        for each in restrictions.of_env(composed.env)
        if own.env.get(each.name) != each.value and each.feature not in features
    ]
    # What the collection sets for every instance keeps clients from endpoints, and the instance from the internet.
    removed = {name: None for name in own.env if name not in composed.env}
    if not args and not env and not removed:
        return
    named = [
        *(f"{each.name} to {_format_value(each.value)}, which {each.because}" for each in env),
        *(f"--{each.name} to {_format_value(each.value)}, which {each.because}" for each in args),
        *(f"{name} to null, which takes away what the collection or the site sets" for name in removed),
    ]
    settings = {
        "args": {each.name: each.value for each in args},
        "env": {**{each.name: each.value for each in env}, **removed},
    }
    allowing = [
        f"{entry.where}.{key}: {{{', '.join(f'{name}: {_format_value(value)}' for name, value in found.items())}}}"
        for key, found in settings.items()
        if found
    ]
    raise PermissionNeededError(
        f"{entry.where}: the recipe sets {'; and '.join(named)}; a recipe alone cannot allow that: read what it is "
        f"for, then allow it with {' and '.join(allowing)}, or remove it with the value null",
        settings,
    )


def check_secrets(
    entry: Chosen, secrets: Sequence[str], site: SiteSettings, foreign: Foreign, restrictions: Restrictions
) -> None:
    """Raise PlanError for a misspelt or impossible name, and for a secret that programs of root would obey.

    systemd gives those programs the secrets too.
    """
    for name in secrets:
        if name_problem(name):
            raise PlanError(f"vllm_secrets.{entry.name}: {name_problem(name)}")
        own = name.startswith("VLLM_") and name not in SECRET_ENV
        if own and (misspelt(name, SECRET_ENV) or (site.strict and entry.table.check_env([name], foreign))):
            hint = nearest(name, SECRET_ENV)
            raise PlanError(
                f"vllm_secrets.{entry.name}.{name}: vLLM {entry.table.version} does not read this variable; {hint}"
            )
        kind = (entry.table.env.get(name) or foreign.env.get(name) or {}).get("kind", "text")
        if kind != "text":
            raise PlanError(
                f"vllm_secrets.{entry.name}.{name}: is no secret, and nothing checks its "
                f"value here; set {entry.where}.env.{name}"
            )
    for found in restrictions.of_env(dict.fromkeys(secrets, "secret")):
        if found.root:
            raise PlanError(
                f"vllm_secrets.{entry.name}.{found.name}: cannot be a secret, because programs that root runs beside "
                f"vLLM would obey it; set {entry.where}.env.{found.name}"
            )


def _at(args: Mapping[str, Any], wanted: Restricted) -> Any:
    """Return the value of other arguments at the place of a restricted one, None where they have none."""
    value: Any = args
    for key in wanted.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _format_value(value: Any) -> str:
    """Return a value as YAML and JSON write it, without control characters of a foreign file."""
    text = json.dumps(value, default=str)
    return _flow(value) if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _flow(value: Any) -> str:
    """Return a value that is not deep in YAML's flow style; a text that would be a template of Ansible is marked."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    text = json.dumps(value, default=str)
    return f"!unsafe {text}" if isinstance(value, str) and is_template(value) else text


def code_of(manifest: Manifest | None) -> list[str]:
    """Return the files of a manifest that vLLM may run."""
    return sorted(name for name in (manifest or {}).get("files") or () if name.endswith(".py"))


def check_remote_code(entry: Chosen, composed: Composed, manifests: Mapping[str, Manifest | None]) -> None:
    """Raise PermissionNeededError where a recipe would run code of pinned weights that the instance does not allow.

    Weights without code are not affected: hosts have no hub to get other code from.
    """
    if not composed.args.get(FLAG) or (entry.requested.get("args") or {}).get(FLAG):
        return
    for model, manifest in manifests.items():
        names = code_of(manifest)
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            raise PermissionNeededError(
                f"{entry.where}: the recipe sets --{FLAG}, and the weights of {model} bring code that vLLM would run: "
                f"{', '.join(names[:_NAMED])}{more}; read these files, then allow them with {entry.where}.args: "
                f"{{{FLAG}: true}}, or remove the flag with {{{FLAG}: null}}",
                {"args": {FLAG: True}},
            )
