# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a model's manifest: the files that vLLM needs, the revision, the text."""

from __future__ import annotations

import hashlib
import json
import re
from fnmatch import fnmatchcase
from typing import Any, Iterable, Mapping, Sequence

from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign
from ..common.kinds import show_value
from ..weights.hubs import Listed, is_commit
from ..weights.manifest import Manifest, WeightsError, parse_manifest
from .model_config import render_excerpt

# Nothing else is left out by default. A * in a pattern also matches slashes, as in the hub's client.
OTHER_FOLDERS = ("original/*", "metal/*", "onnx/*", "openvino/*", "coreml/*", "runs/*", "logs/*")
OTHER_FORMATS = (
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.ggml", "*.onnx", "*.onnx_data", "*.msgpack", "*.h5", "*.ot"),
    *("*.tflite", "*.mlmodel", "*.npz", "*.nemo", "*.engine", "*.pkl", "*.pb", "*.pdparams"),
)
FOR_PEOPLE = (
    *("README*", "LICENSE*", "LICENCE*", "NOTICE*", "USAGE_POLICY*", "*.md", "*.pdf", "*.ipynb"),
    *("*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.mp4", "*.wav", "*.mp3"),
)
DEFAULT_EXCLUDE = (*OTHER_FOLDERS, *OTHER_FORMATS, *FOR_PEOPLE)

_MODEL = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./+-]*", re.ASCII)
# Read as a number, or as something else than text, when not in quotes.
_NUMBER = re.compile(r"\d+(e\d+)?")
_PLAIN = re.compile(r"[A-Za-z][\w./+-]*", re.ASCII)
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


def check_model(model: str, option: str = "model") -> None:
    """Raise WeightsError for a name that no hub accepts."""
    if not _MODEL.fullmatch(model):
        raise WeightsError(
            f"{option}: found {show_value(model)}, expected <organisation>/<name> of letters, digits, '-', '_' and "
            "'.', as the model's page shows it"
        )


def check_revision(revision: str, option: str = "revision") -> None:
    """Raise WeightsError for what is neither a commit nor a branch nor a tag."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise WeightsError(f"{option}: found {show_value(revision)}, expected a branch, a tag or a commit")


def choose_files(
    files: Iterable[Listed], include: Sequence[str], exclude: Sequence[str], load_format: str = "auto"
) -> list[Listed]:
    """Return the files that belong into the manifest, by name.

    With ``include``, the files that match one of its patterns; otherwise, if there are safetensors, the files that vLLM
    needs. Files that match one of ``exclude`` and dot files are left out. If a model has two formats, ``load_format``
    (auto, mistral, both) decides.
    """
    named = sorted((file for file in files if not _hidden(file.name)), key=lambda file: file.name)
    wanted = [file for file in named if not _matches(file.name, exclude)]
    if include:
        return [file for file in wanted if _matches(file.name, include)]
    wanted = [file for file in wanted if not _matches(file.name, DEFAULT_EXCLUDE)]
    formats = ("consolidated", "model") if load_format == "mistral" else ("model", "consolidated")
    read, other = (f"{name}*.safetensors" for name in formats)
    if load_format == "both" or not any(fnmatchcase(file.name, read) for file in wanted):
        return wanted
    # The same tensors again, in Mistral's format, and their index.
    return [file for file in wanted if not fnmatchcase(file.name, f"{other}*")]


def check_chosen(
    model: str, files: Sequence[Listed], chosen: Sequence[Listed], include: Sequence[str], load_format: str = "auto"
) -> None:
    """Raise WeightsError if the chosen files are not a complete model. With ``include``, the user decides."""
    if include and not chosen:
        raise WeightsError(f"{model}: none of its {len(files)} files matches include and not exclude")
    has_mistral = any(fnmatchcase(file.name, "consolidated*.safetensors") for file in chosen)
    if not include and load_format == "mistral" and not has_mistral:
        raise WeightsError(
            f"{model}: found no consolidated*.safetensors, which the load format mistral reads; pin a revision that "
            "has them, or set load_format to auto and change the recipe"
        )
    if include or any(file.name.endswith(".safetensors") for file in chosen):
        return
    found = sorted({match[0] for match in (re.search(r"\.\w+\Z", file.name) for file in files) if match})
    kinds = quote_foreign(", ".join(found) or "no files")
    raise WeightsError(
        f"{model}: found no *.safetensors after include and exclude (the model has {kinds}); pin a "
        "revision or a model that has them, or list the files to take in include"
    )


def index_names(chosen: Iterable[Listed]) -> list[str]:
    """Return the names of the files that say which shards the model has."""
    return [file.name for file in chosen if file.name.endswith(".safetensors.index.json")]


def check_shards(model: str, index: str, content: bytes, chosen: Iterable[Listed]) -> None:
    """Raise WeightsError if a shard that the index names is missing."""
    folder = index.rpartition("/")[0]
    try:
        shards = {str(name) for name in load_json(content)["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise WeightsError(f"{model}: {index} cannot be read as an index of shards; the file is damaged") from exc
    missing = sorted({f"{folder}/{name}" if folder else name for name in shards} - {file.name for file in chosen})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise WeightsError(
            f"{model}: {quote_foreign(missing[0])}{more} of the {len(shards)} shards that {index} names is missing; "
            "the source is incomplete, or exclude leaves the shard out"
        )


def derived_revision(files: Iterable[Listed]) -> str:
    """Return 40 hex digits computed from the files, for a model that has no commit."""
    listing = "".join(f"{file.sha256}  {file.name}\n" for file in sorted(files, key=lambda file: file.name))
    return hashlib.sha256(listing.encode()).hexdigest()[:40]


def blob_id(content: bytes) -> str:
    """Return what git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 (git's own name for it)


def precision_of(config: bytes) -> str:
    """Return the number format of the weights by a model's config.json, empty for a plain one."""
    try:
        whole = load_json(config)
        # Some models of several parts have it there.
        places = (whole, whole.get("text_config") or {})
        quantization: dict[str, Any] = next(filter(None, (place.get("quantization_config") for place in places)), {})
        name = str(quantization.get("quant_algo") or quantization.get("quant_method") or "")
    except (ValueError, AttributeError):
        return ""
    name = name.lower().replace("-", "_")
    return name if re.fullmatch(r"[a-z0-9_]+", name) else ""


def manifest_of(model: str, revision: str, files: Iterable[Listed], modelscope: tuple[str, str] | None) -> Manifest:
    """Return the manifest of files whose sizes and hashes are known. Raises WeightsError for a name it cannot hold."""
    return parse_manifest(
        {
            "repository": model,
            "revision": revision,
            "files": {file.name: {"size": file.size, "sha256": file.sha256} for file in files},
            **({"modelscope": dict(zip(("repository", "revision"), modelscope))} if modelscope else {}),
        }
    )


def render_manifest(manifest: Manifest, precision: str = "", config: Mapping[str, Any] | None = None) -> str:
    """Return the text of a manifest's file, with the excerpt of its config.json; the same model has the same text."""
    lines = ["---", f"repository: {manifest.repository}", f"revision: {_scalar(manifest.revision)}"]
    lines += [f"precision: {_scalar(precision)}"] if precision else []
    lines += render_excerpt(config) if config else []
    there = (manifest.modelscope_repository, manifest.modelscope_revision)
    if there != (manifest.repository, "master"):
        lines += ["modelscope:", f"  repository: {there[0]}"]
        lines += [f"  revision: {_scalar(there[1])}"] if there[1] != "master" else []
    lines.append("files:")
    for file in manifest.files:
        lines += [f"  {_scalar(file.name)}:", f"    size: {file.size}", f"    sha256: {_scalar(file.sha256)}"]
    return "\n".join(lines) + "\n"


def modelscope_of(text: str) -> tuple[str, str] | None:
    """Return repository and revision on ModelScope that a manifest's text, as render() writes it, has."""
    found = re.search(r"^modelscope:\n  repository: (\S+)\n(?:  revision: \"?([^\"\s]+)\"?\n)?", text, re.MULTILINE)
    return (found[1], found[2] or "master") if found else None


def revision_of(text: str) -> str:
    """Return the revision that a manifest's text has, empty for none."""
    found = re.search(r"^revision: \"?([0-9a-f]{40})\"?$", text, re.MULTILINE)
    return found[1] if found else ""


def _scalar(text: str) -> str:
    """Return a text as YAML reads it back, in quotes only where it must be."""
    is_hash = is_commit(text) or len(text) == 64
    plain = not _NUMBER.fullmatch(text) if is_hash else _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    # A text in JSON is one in YAML.
    return text if plain else json.dumps(text, ensure_ascii=False)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern + "*" if pattern.endswith("/") else pattern) for pattern in patterns)


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
