# SPDX-License-Identifier: GPL-3.0-or-later
"""The repositories that an instance needs besides its model's: a draft model, adapters, a tokenizer, a configuration.

Hosts have no hub to ask, so each is pinned like the model, and vLLM gets its path on the host.
"""

import json
import re
from typing import Any, Callable, Iterator, Mapping

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.kinds import show_value

# A text that the repository replaces; the other flags below have separate forms.
_DRAFT_NAME = "spec-model"
_PLAIN = (_DRAFT_NAME, "tokenizer", "hf-config-path")
_DRAFT, _ADAPTERS = "speculative-config", "lora-modules"
# Those whose weights the chips hold.
LOADED = (_DRAFT, _DRAFT_NAME, _ADAPTERS)

# Of a draft: the text is searched for the next tokens, or nothing names one.
_NO_REPOSITORY = (None, "ngram", "[ngram]")
# Architectures that never draft for themselves: no release's SpeculativeConfig.hf_config_override has them.
_NO_DRAFTS = frozenset(
    f"{name}ForCausalLM"
    for name in (
        *("Cohere2", "Ernie4_5", "Gemma2", "Gemma3", "GptOss", "Granite", "Llama", "Llama4", "Mistral", "Mixtral"),
        *("Nemotron", "Olmo3", "Phi3", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe", "SeedOss"),
    )
)

# Returns the path of a pinned repository, None for one without a manifest.
PathOf = Callable[[str], "str | None"]


def side_models(args: Mapping[str, Any]) -> list[str]:
    """Return the repositories that arguments name, each once, the draft model first."""
    found: list[str] = []

    def note(name: str) -> str | None:
        found.append(name)
        return None

    with_paths(args, note)
    return list(dict.fromkeys(found))


def with_paths(args: Mapping[str, Any], path_of: PathOf) -> dict[str, Any]:
    """Return the arguments with the path of each pinned repository in place of its name."""
    found = dict(args)
    spec = args.get(_DRAFT)
    if isinstance(spec, Mapping):
        found[_DRAFT] = _with_entry(spec, "model", path_of)
    adapters = args.get(_ADAPTERS)
    if isinstance(adapters, (list, tuple)):
        found[_ADAPTERS] = [_adapter(entry, path_of) for entry in adapters]
    elif adapters is not None:
        found[_ADAPTERS] = _adapter(adapters, path_of)
    for name in _PLAIN:
        if name in args:
            found[name] = _path(args[name], path_of)
    return found


def paths_in(args: Mapping[str, Any]) -> list[str]:
    """Return the paths that stand where arguments may name a repository."""
    return list(dict.fromkeys(value for _flag, value in _places(args) if str(value).startswith("/")))


def odd_places(args: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the flags that are to name a repository and name none, no URL and no absolute path, with the values."""
    return [
        (flag, value)
        for flag, value in _places(args)
        if value not in _NO_REPOSITORY
        and not (isinstance(value, str) and (value[:1] == "/" or "://" in value or _is_repository(value)))
    ]


def _places(args: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the flags and keys that may name a repository, with what they name."""
    spec, adapters = args.get(_DRAFT), args.get(_ADAPTERS)
    if isinstance(spec, Mapping):
        model = spec.get("model")
        parts = str(model).split(".")
        # A class to import, or a method that has no model.
        if model != spec.get("method") and not (len(parts) > 1 and all(map(str.isidentifier, parts))):
            yield f"{_DRAFT}.model", model
    for entry in adapters if isinstance(adapters, (list, tuple)) else [adapters]:
        found: list[Any] = []
        _each_adapter(entry, found.append)
        yield from ((_ADAPTERS, value) for value in found)
    yield from ((name, args.get(name)) for name in _PLAIN)


def draft_problems(args: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence where the model is to draft for itself and its architecture has no layers for it."""
    spec = args.get(_DRAFT)
    given = spec if isinstance(spec, Mapping) else {}
    methods = {f"{_DRAFT}.method": given.get("method"), "spec-method": args.get("spec-method")}
    names = sorted(_NO_DRAFTS & {*map(str, config.get("architectures") or ())})
    # Another model may draft, and the classes of transformers have such layers by a key of config.json.
    if not names or given.get("model") or args.get(_DRAFT_NAME) or args.get("hf-overrides"):
        return
    for name, method in methods.items():
        if re.search(r"(?:\A|_)mtp\Z", str(method)) and args.get("model-impl") != "transformers":
            yield (
                f"{name} is {method}, and {names[0]} has no layers that draft; name ngram, or a model that drafts "
                "with its method"
            )


def adapter_names(args: Mapping[str, Any]) -> list[str]:
    """Return the names by which requests choose an adapter."""
    adapters = args.get(_ADAPTERS)
    found = [_name(entry) for entry in (adapters if isinstance(adapters, (list, tuple)) else [adapters])]
    return [name for name in found if name]


def adapter_problems(args: Mapping[str, Any]) -> list[str]:
    """Return the entries of --lora-modules that vLLM refuses: each needs a name and a path."""
    adapters = args.get(_ADAPTERS)
    if adapters is None:
        return []
    return [
        f"--{_ADAPTERS}: expected NAME=PATH, or a mapping with name and path, found {show_value(entry)}"
        for entry in (adapters if isinstance(adapters, (list, tuple)) else [adapters])
        if not _is_adapter(entry)
    ]


def _is_adapter(entry: Any) -> bool:
    paths: list[Any] = []
    _each_adapter(entry, paths.append)
    return bool(_name(entry) and paths and all(paths))


def _name(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return str(entry.get("name") or "")
    text = str(entry or "")
    if text.startswith("{"):
        try:
            return _name(load_json(text))
        except ValueError:
            return ""
    name, equals, _path = text.partition("=")
    return name if equals else ""


def _adapter(entry: Any, path_of: PathOf) -> Any:
    return _each_adapter(entry, lambda value: _path(value, path_of))


def _each_adapter(entry: Any, change: Callable[[Any], Any]) -> Any:
    """Return an entry of --lora-modules with its path changed: a mapping, its JSON, or NAME=PATH."""
    if isinstance(entry, Mapping):
        return {**entry, "path": change(entry["path"])} if "path" in entry else entry
    text = str(entry or "")
    if text.startswith("{"):
        try:
            return json.dumps(_each_adapter(load_json(text), change))
        except ValueError:
            return entry
    name, equals, path = text.partition("=")
    return f"{name}={change(path)}" if equals else entry


def _with_entry(spec: Mapping[str, Any], key: str, path_of: PathOf) -> dict[str, Any]:
    return {**spec, key: _path(spec[key], path_of)} if key in spec else dict(spec)


def _path(value: Any, path_of: PathOf) -> Any:
    if not isinstance(value, str) or not _is_repository(value):
        return value
    return path_of(value) or value


def _is_repository(text: str) -> bool:
    return text.count("/") == 1 and text[0] not in "/.~" and text[-1] != "/"
