# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the limits of a release's values: vLLM checks them when it builds its configuration, not in its command line.

Ranges are those of ``Field(ge=1)`` and of types such as PositiveInt in the config classes, and lower limits also those
that a function checks: ``if self.x < 1: raise``, not inside of another ``if``, or ``assert x >= 1``. Lists of values
are those of the types that fields name in their annotations and validators check (KNOWN), and of enumerations. The
sources are parsed, never run.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOUNDS = ("ge", "gt", "le", "lt")
# The lower limits of what is refused by such a comparison, and of what passes it.
REFUSED: dict[type, str] = {ast.Lt: "ge", ast.LtE: "gt"}
PASSES: dict[type, str] = {ast.GtE: "ge", ast.Gt: "gt"}
# What lets vLLM choose, where its own range begins there and its check refuses it only afterwards.
CHOOSE = -1
# The ranges of pydantic's types.
TYPES: dict[str, dict[str, float]] = {
    "PositiveInt": {"gt": 0},
    "PositiveFloat": {"gt": 0},
    "NonNegativeInt": {"ge": 0},
    "NonNegativeFloat": {"ge": 0},
}
# Types whose values vLLM knows by name, with the files that may hold them (newest first). vLLM refuses any other value
# unless a plugin has registered it.
KNOWN = {
    "AttentionBackendEnum": ("v1/attention/backends/registry.py", "attention/backends/registry.py"),
    "CacheDType": ("config/cache.py",),
    "LoadFormats": ("model_executor/model_loader/__init__.py",),
    "QuantizationMethods": ("model_executor/layers/quantization/__init__.py",),
}
# Those that it looks up as they are; the others it writes in small letters or in capitals first.
EXACT = {"CacheDType"}
# Where config classes and the flags of the command line are.
SOURCES = ("config/**/*.py", "config.py", "engine/arg_utils.py", "entrypoints/**/cli_args.py")
_NAME = re.compile(r"[A-Za-z_]+")
_DEPRECATED = re.compile(r"--([a-z0-9-]+)\)? is deprecated")


class Alias(str):
    """The name of a list of values that the table holds once."""


@dataclass
class ConfigClass:
    """A class of the sources: the names of its bases, and the annotation and limits of each field.

    Where it ``splits``, a text with commas stands for each list. It ``folds`` the case of some fields, takes dashes
    for underscores in some (``dashed``), and ``auto`` for some, which is no name of theirs.
    """

    bases: list[str]
    annotations: dict[str, str] = field(default_factory=dict)
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    splits: bool = False
    folds: set[str] = field(default_factory=set)
    dashed: set[str] = field(default_factory=set)
    auto: set[str] = field(default_factory=set)


class Limits:
    """The limits of the release whose package ``vllm`` lies in ``root``."""

    def __init__(self, root: Path) -> None:
        package = root / "vllm"
        trees = [ast.parse(path.read_text(encoding="utf-8")) for glob in SOURCES for path in sorted(package.glob(glob))]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self.classes = {node.name: _read_class(node) for node in nodes if isinstance(node, ast.ClassDef)}
        self.enumerations = {node.name: _members(node) for node in nodes if isinstance(node, ast.ClassDef)}
        self.literals = dict(_literals(nodes))
        self.folded = {name for node in nodes if isinstance(node, ast.FunctionDef) for name in _folded(node)}
        self.flags, self.owners = _flags_of(nodes)
        known = {name: sorted(set(_values(name, package, files))) for name, files in KNOWN.items()}
        self.types = {name: values for name, values in known.items() if values}
        self.step = _block_step(package)
        self.deprecated = dict(_deprecated(nodes))
        self.checked = dict(_checked(nodes))

    def apply(self, found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the flags of a table with the limits of their values, and of the keys of their JSON."""
        whole = {}
        for flag, entry in found.items():
            name = flag.replace("-", "_")
            owners = (owner for owner in self.owners if self._field(owner, name)[0])
            whole[flag] = self._limited(dict(entry), *self.flags.get(flag, (next(owners, ""), name)))
            if flag in self.deprecated:
                whole[flag]["deprecated"] = self.deprecated[flag]
        if self.step and whole.get("block-size", {}).get("kind") == "integer":
            whole["block-size"]["step"] = self.step
        return whole

    def _limited(self, entry: dict[str, Any], owner: str, name: str) -> dict[str, Any]:
        annotation, limits = self._field(owner, name)
        words = _NAME.findall(annotation)
        if entry["kind"] in ("integer", "number"):
            entry.update(limits)
            _narrow(entry, self.checked.get((owner, name)) or self.checked.get(("", name)) or {})
        known = next((word for word in words if word in self.types), None)
        if known and entry["kind"] in ("text", "any"):
            entry.update(kind="text", known=Alias(known), closed=True, **({"exact": True} if known in EXACT else {}))
            if owner in self.classes and name in self.classes[owner].auto:
                entry["words"] = ["auto"]
        literal = self.literals.get(annotation.removesuffix(" | None"))
        if literal and entry["kind"] == "text" and "known" not in entry:
            entry.update(kind="choice", values=literal)
        values = next((self.enumerations[word] for word in words if self.enumerations.get(word)), [])
        if values and entry["kind"] in ("text", "any") and "known" not in entry:
            # Of a number, keys take the name as well, which a validator looks up.
            numbers = [] if entry["kind"] == "any" else [*filter(str.isdigit, values)]
            entry.update(kind="choice", values=numbers or values)
            if not numbers and self.folded.intersection(words):
                entry["any_case"] = True
        if entry["kind"] == "list" and owner in self.classes and self.classes[owner].splits:
            entry["text"] = True
        inner = next((word for word in words if word in self.classes), None)
        if inner and "keys" in entry:
            entry["keys"] = {key: self._key(value, inner, key) for key, value in entry["keys"].items()}
        return entry

    def _key(self, entry: Any, owner: str, name: str) -> Any:
        """Return the entry of a key of JSON: its kind alone, or a mapping with more."""
        whole = {"kind": entry} if isinstance(entry, str) else entry
        limited = self._limited(dict(whole), owner, name)
        if limited["kind"] == "choice" and name in self.classes[owner].folds:
            limited.update({"any_case": True}, **({"dashes": True} if name in self.classes[owner].dashed else {}))
        return entry if limited == whole else limited

    def _field(self, owner: str, name: str) -> tuple[str, dict[str, float]]:
        """Return annotation and limits of a field, of the class itself or of one that it inherits from."""
        cls = self.classes.get(owner)
        if cls is None:
            return "", {}
        if name in cls.annotations:
            return cls.annotations[name], cls.limits.get(name, {})
        return next((found for base in cls.bases if (found := self._field(base, name))[0]), ("", {}))


def _read_class(node: ast.ClassDef) -> ConfigClass:
    cls = ConfigClass([ast.unparse(base).rpartition(".")[2] for base in node.bases])
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            before, body = " ".join(map(ast.unparse, item.decorator_list)), ast.unparse(item)
            names = re.findall(r"'(\w+|\*)'", before) if "mode='before'" in before else []
            cls.splits |= "*" in names and ".split(" in body
            cls.folds.update(names if ".lower()" in body or ".upper()" in body else [])
            cls.dashed.update(names if ".replace('-', '_')" in body else [])
            cls.auto.update(names if "== 'auto'" in body else [])
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            cls.annotations[item.target.id] = annotation = ast.unparse(item.annotation)
            limits = {name: value for word in _NAME.findall(annotation) for name, value in TYPES.get(word, {}).items()}
            calls = [inner for part in (item.value, item.annotation) if part for inner in ast.walk(part)]
            limits |= {name: value for call in calls for name, value in _bounds(call)}
            cls.limits[item.target.id] = limits
    return cls


def _members(node: ast.ClassDef) -> list[str]:
    """Return the values of an enumeration, of numbers with their names before them; none where values are no words."""
    if not any(ast.unparse(base).rpartition(".")[2] in ("Enum", "IntEnum") for base in node.bases):
        return []
    pairs = [(item.targets[0], item.value) for item in node.body if isinstance(item, ast.Assign)]
    names = [target.id for target, _value in pairs if isinstance(target, ast.Name)]
    values = [value.value if isinstance(value, ast.Constant) else None for _target, value in pairs]
    words = sorted(value for value in values if isinstance(value, str) and value.isidentifier())
    numbers = [str(value) for value in values if isinstance(value, int)]
    return words if len(words) == len(values) else [*names, *numbers] if numbers else []


def _literals(nodes: list[ast.AST]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each type that is a Literal of texts, with them."""
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Subscript):
            continue
        if ast.unparse(node.value.value).rpartition(".")[2] == "Literal":
            words = [part.value for part in ast.walk(node.value.slice) if isinstance(part, ast.Constant)]
            if all(isinstance(word, str) for word in words):
                yield ast.unparse(node.targets[0]), sorted(map(str, words))


def _folded(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function which makes capitals of a word looks something up in."""
    inner = list(ast.walk(function))
    capitals = any(isinstance(node, ast.Attribute) and node.attr == "upper" for node in inner)
    found = {node.value.id for node in inner if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)}
    return found if capitals else set()


def _bounds(node: ast.AST) -> Iterator[tuple[str, float]]:
    """Yield the limits of a call of Field()."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Field":
        for word in node.keywords:
            if word.arg in BOUNDS:
                yield str(word.arg), ast.literal_eval(word.value)


def _flags_of(nodes: list[ast.AST]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return the config class and the field of each flag, and all such classes.

    The sources say ``cache_kwargs = get_kwargs(CacheConfig)`` and ``add_argument("--x", **cache_kwargs["x"])``.
    """
    classes = {
        node.targets[0].id: ast.unparse(node.value.args[0])
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "get_kwargs"
    }
    flags = {}
    for node in nodes:
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(".add_argument"):
            continue
        names = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
        for part in (inner for word in node.keywords if word.arg is None for inner in ast.walk(word.value)):
            if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
                owner = classes.get(ast.unparse(part.value))
                flags.update({name[2:]: (owner, str(part.slice.value)) for name in names if owner and name[:2] == "--"})
    return flags, sorted(set(classes.values()))


def _narrow(entry: dict[str, Any], checked: Mapping[str, float]) -> None:
    """Narrow the lower limit of a number by what a function checks; what lets vLLM choose stays as a word."""
    if not checked or "gt" in entry or entry.get("ge", -math.inf) >= min(checked.values()):
        return
    if entry.pop("ge", None) == CHOOSE:
        entry["words"] = [str(CHOOSE), *entry.get("words", ())]
    entry.update(checked)


def _checked(nodes: list[ast.AST]) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    """Yield the lower limits that functions check, by class and field; of arguments and local names, by "" and name."""
    owners = {id(item): node.name for node in nodes if isinstance(node, ast.ClassDef) for item in node.body}
    for node in nodes:
        if isinstance(node, ast.Assert):
            yield from _comparison(node.test, PASSES, "")
        for item in node.body if isinstance(node, ast.FunctionDef) else ():
            if isinstance(item, ast.If) and isinstance(item.body[0], ast.Raise):
                either = isinstance(item.test, ast.BoolOp) and isinstance(item.test.op, ast.Or)
                for test in item.test.values if either and isinstance(item.test, ast.BoolOp) else [item.test]:
                    yield from _comparison(test, REFUSED, owners.get(id(node), ""))


def _comparison(
    test: ast.AST, bounds: Mapping[type, str], owner: str
) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    """Yield the limit of a comparison of a field, an argument or a name with a number."""
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or type(test.ops[0]) not in bounds:
        return
    left, right = test.left, test.comparators[0]
    if isinstance(right, ast.Constant) and isinstance(right.value, (int, float)):
        found = re.fullmatch(r"(self\.|args\.|getattr\(args, ')?(\w+)(', .*\))?", ast.unparse(left))
        if found and (found[1] is not None or not owner):
            yield (owner if found[1] == "self." else "", found[2]), {bounds[type(test.ops[0])]: right.value}


def _deprecated(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each deprecated flag with what vLLM says about it."""
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        found = _DEPRECATED.search(text)
        if found:
            yield found.group(1), " ".join(text.split())
        if isinstance(node, ast.Call) and any(ast.unparse(word) == "deprecated=True" for word in node.keywords):
            names = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
            yield from ((name[2:], f"argument '{name[2:]}' is deprecated") for name in names if name[:2] == "--")


def _block_step(package: Path) -> int:
    """Return the number that divides every block size of the attention backends but 1, 0 where they name none."""
    sizes = set()
    for path in sorted(package.glob("v1/attention/backends/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "get_supported_kernel_block_sizes":
                returned = [part for part in ast.walk(node) if isinstance(part, ast.Return)]
                parts = (inner for part in returned for inner in ast.walk(part))
                numbers = (inner.value for inner in parts if isinstance(inner, ast.Constant))
                # A capability of a device stands among them too (is_device_capability_family(90)).
                sizes |= {value for value in numbers if isinstance(value, int) and value & (value - 1) == 0}
    return math.gcd(*(size for size in sizes if size > 1))


def _values(name: str, package: Path, files: tuple[str, ...]) -> Iterator[str]:
    """Yield the texts of a Literal, or the members of an enumeration, that a type names; none without it."""
    path = next((package / name for name in files if (package / name).is_file()), None)
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            targets = [item.targets[0] for item in node.body if isinstance(item, ast.Assign)]
            yield from (target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper())
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            yield from (str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant))
