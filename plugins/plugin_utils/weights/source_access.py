# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller gives a host to read a source: tokens, and signed addresses instead of keys."""

import os
import re
import stat
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from ...module_utils.weights.manifest import Manifest, WeightsError
from ...module_utils.weights.sources import TOKEN_VARIABLES, Source
from .s3 import DEFAULT_REGION, Keys, keys_of_environment, keys_of_file, object_address, sign


def access_of(
    sources: Sequence[Source], manifests: Sequence[Manifest], environment: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the module's option ``access``. Raises WeightsError for a missing or invalid token or key."""
    found: dict[str, dict[str, Any]] = {}
    for number, source in enumerate(sources):
        if source.kind == "s3":
            found[str(number)] = {"addresses": _addresses(source, manifests, environment)}
        elif source.kind != "controller":
            token = _token(source, environment)
            if token:
                found[str(number)] = {"token": token}
    return found


def _token(source: Source, environment: Mapping[str, str]) -> str:
    options = source.options
    if "token_file" in options and "token_env" in options:
        raise WeightsError(f"weights_sources: {source.text}: found token_file and token_env; keep one of them")
    if "token_file" in options:
        where = f"weights_sources: {source.text}: token_file"
        return _visible(_secret(options["token_file"], where), f"{where} {options['token_file']}")
    name = options.get("token_env", "")
    if name and not environment.get(name):
        raise WeightsError(f"weights_sources: {source.text}: token_env: {name} is not set on the controller")
    name = name or TOKEN_VARIABLES.get(source.kind, "")
    return _visible(environment.get(name, ""), f"weights_sources: {source.text}: the variable {name}")


def _visible(text: str, where: str) -> str:
    """Return a token without surrounding space. Raises WeightsError, without the text, if it cannot be a token."""
    token = text.strip()
    if not re.fullmatch(r"[!-~]*", token):
        raise WeightsError(f"{where}: found spaces, several lines or letters beyond ASCII, expected one token")
    return token


def _secret(name: str, where: str) -> str:
    """Return the content of a private file on the controller."""
    path = Path(os.path.expanduser(name))
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise WeightsError(f"{where}: {path} on the controller cannot be read: {reason}") from exc
    if mode & stat.S_IROTH:
        raise WeightsError(
            f"{where}: {path} on the controller can be read by everybody (mode {stat.S_IMODE(mode):04o}); chmod 600 it"
        )
    if not text.strip():
        raise WeightsError(f"{where}: {path} on the controller is empty")
    return text


def _addresses(source: Source, manifests: Sequence[Manifest], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the address of every file by its path, signed where there are keys."""
    options = source.options
    keys, region = _keys(source, environment), options.get("region", DEFAULT_REGION)
    found = {}
    for manifest in manifests:
        for file in manifest.files:
            path = f"{manifest.path}/{file.name}"
            plain = object_address(source.base, path, options.get("endpoint", ""), region)
            found[path] = sign(plain, keys, region, time.time()) if keys else plain
    return found


def _keys(source: Source, environment: Mapping[str, str]) -> Keys | None:
    name = source.options.get("credentials_file", "")
    if not name:
        if "profile" in source.options:
            raise WeightsError(f"weights_sources: {source.text}: found profile without credentials_file; name the file")
        return keys_of_environment(environment)
    where = f"weights_sources: {source.text}: credentials_file"
    return keys_of_file(_secret(name, where), source.options.get("profile", "default"), f"{where} {name}")
