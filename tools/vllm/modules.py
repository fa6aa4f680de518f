# SPDX-License-Identifier: GPL-3.0-or-later
"""Rebuild the modules of a release from its sources; each name is resolved when it is first read.

Config classes are rebuilt from their annotations, the functions that build the command line run unchanged, and every
other name is a stand-in. vLLM is never imported.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import importlib
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from tools.vllm.stand_ins import PYDANTIC, Platform, StandInType, stand_in

# The modules whose functions run. Functions of any other module are stand-ins.
RUN = re.compile(r"vllm\.(engine\.arg_utils|entrypoints\..*\bcli_args|utils(\.argparse_utils|\.__init__)?)$")
# External modules that are real here: they have no effects, and the argument modules need them.
REAL = {"argparse", "collections", "collections.abc", "copy", "dataclasses", "enum", "functools", "itertools", "json"}
REAL |= {"ssl", "sys", "types", "typing"}


class Sources:
    """The sources of one release below ``root`` (a site-packages directory), parsed on demand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """Return the module, None where the release has no module of that name."""
        if name not in self.modules:
            base = self.root.joinpath(*name.split("."))
            paths = [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
            self.modules[name] = Module(self, name, paths[0]) if paths else None
        return self.modules[name]

    def get(self, module: str, name: str) -> Any:
        """Return the value of ``name`` in ``module``: a rebuilt class, a literal, or a stand-in."""
        found = self.module(module)
        if found is None:
            return stand_in(name)
        return found[name]


class _Lazy:
    """The result of vLLM's LazyLoader for one of its own modules: names are resolved on demand."""

    def __init__(self, sources: Sources, module: str) -> None:
        self._sources, self._module = sources, module

    def __getattr__(self, name: str) -> Any:
        return self._sources.get(self._module, name) if self._module.startswith("vllm.") else stand_in(name)


class Module(dict):  # type: ignore[type-arg]
    """The namespace of one module; each name is resolved when it is first read."""

    def __init__(self, sources: Sources, name: str, path: Path) -> None:
        super().__init__(__name__=name, __builtins__=builtins)
        self.sources = sources
        self.package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self.runs = bool(RUN.match(name))
        self.nodes: dict[str, ast.stmt] = {}
        self.imports: dict[str, tuple[str, str | None]] = {}
        self.stars: list[str] = []
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
        self._collect(tree.body)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                self.imports.setdefault(alias.asname or alias.name.split(".")[0], (alias.name, None))
                continue
            parent = node.module or ""
            if node.level:
                up = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
                parent = ".".join([*up, parent] if parent else up)
            if alias.name == "*":
                self.stars.append(parent)
                continue
            self.imports.setdefault(alias.asname or alias.name, (parent, alias.name))

    def _collect(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.nodes[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.nodes[target.id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.nodes[node.target.id] = node
            elif isinstance(node, ast.If):
                # The branch for type checkers counts where the other branch defines nothing.
                self._collect(node.body)
                self._collect(node.orelse)
            elif isinstance(node, ast.Try):
                self._collect(node.body)

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) and name not in self.nodes and name not in self.imports:
            raise KeyError(name)
        self[name] = stand_in(name)  # what a name that needs itself sees
        self[name] = self._work_out(name)
        return self[name]

    def _work_out(self, name: str) -> Any:
        if name == "current_platform":
            return Platform()
        if name == "LazyLoader":
            return lambda _name, _globals, module: _Lazy(self.sources, module)
        if name == "ReasoningParserManager":
            return types.SimpleNamespace(
                reasoning_parsers=registered(self.sources.root / "vllm" / "reasoning", "ReasoningParserManager")
            )
        node = self.nodes.get(name)
        if isinstance(node, ast.ClassDef):
            return self._class(node)
        if isinstance(node, ast.FunctionDef):
            return self._function(node) if self.runs else stand_in(name)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            return self._value(node.value, name)
        if name in self.imports:
            return self._imported(name)
        for star in self.stars:
            module = self.sources.module(star) if star.startswith("vllm.") else None
            if module is not None and name in module.nodes:
                return module[name]
        return stand_in(name)

    def _imported(self, name: str) -> Any:
        module, wanted = self.imports[name]
        if module == "regex" or module == "re":
            return re
        if module.startswith("vllm"):
            return self.sources.get(module, wanted) if wanted else stand_in(name)
        if module in REAL:
            real = importlib.import_module(module)
            return getattr(real, wanted, None) or stand_in(wanted) if wanted else real
        if module == "typing_extensions" and hasattr(typing, wanted or ""):
            return getattr(typing, wanted or "")
        return PYDANTIC.get(wanted or "") or stand_in(wanted or name)

    def _value(self, node: ast.expr, name: str) -> Any:
        try:
            return eval(_compiled(ast.Expression(node), "eval"), self)  # noqa: S307
        except Exception:  # the value needs the running vLLM: no argument's type is made of it
            return stand_in(name)

    def hint(self, node: ast.expr) -> tuple[Any, Any]:
        """Return an annotation's type as vLLM's argument code sees it, and the type with quoted names resolved."""
        seen = self._value(node, "hint")
        meant = self._value(_Unquote().visit(node), "hint")
        return (meant if isinstance(seen, (str, StandInType)) else seen), meant

    def _function(self, node: ast.FunctionDef) -> Any:
        self._run(ast.Module([_Runnable().visit(node)], []))
        return self[node.name]

    def _class(self, node: ast.ClassDef) -> Any:
        bases = [self._value(base, "base") for base in node.bases]
        bases = [base for base in (typing.get_origin(base) or base for base in bases) if isinstance(base, type)]
        if any(issubclass(base, enum.Enum) for base in bases):
            members = dict(self._members(node))
            return enum.Enum(node.name, members, module="vllm") if members else stand_in(node.name)
        if _is_dataclass(node) or any(dataclasses.is_dataclass(base) for base in bases):
            return self._dataclass(node, bases)
        if self.runs and any(base.__module__ == "argparse" for base in bases):
            return self._whole(node)
        if any(issubclass(base, dict) for base in bases):
            return type(node.name, (dict,), {"__module__": "vllm"})
        return stand_in(node.name)

    def _whole(self, node: ast.ClassDef) -> Any:
        """Run a class unchanged: the release's own parser and actions."""
        node = _Runnable().visit(node)
        self._touch(node)
        self._run(ast.Module([node], []))
        return self[node.name]

    def _touch(self, node: ast.ClassDef) -> None:
        """Resolve the names that a class body reads, because Python never calls __missing__ for those."""
        for item in node.body:
            if isinstance(item, ast.ClassDef):
                self._touch(item)
            parts = [*item.decorator_list, *item.args.defaults] if isinstance(item, ast.FunctionDef) else [item]
            parts = [*item.bases] if isinstance(item, ast.ClassDef) else parts
            for name in (inner.id for part in parts for inner in ast.walk(part) if isinstance(inner, ast.Name)):
                if name in self.nodes or name in self.imports:
                    self[name]

    def _members(self, node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
        for item in node.body:
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                yield item.targets[0].id, self._value(item.value, "member")

    def _dataclass(self, node: ast.ClassDef, bases: Sequence[type]) -> Any:
        """Rebuild a config class: its fields with their types (no defaults), and the methods that add arguments."""
        hints: dict[str, Any] = {}
        body: list[ast.stmt] = []
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                if "ClassVar" not in ast.dump(item.annotation):
                    hints[item.target.id] = (*self.hint(item.annotation), _is_init(item.value))
            elif isinstance(item, ast.FunctionDef) and self.runs and _is_class_method(item):
                body.append(_Runnable().visit(item))
        known = [base for base in bases if dataclasses.is_dataclass(base)]
        self["__bases"] = known
        starred = ast.Starred(ast.Name("__bases", ast.Load()), ast.Load())
        shell = ast.ClassDef(node.name, [starred], [], body or [ast.Pass()], [])
        if sys.version_info >= (3, 12):
            shell.type_params = []
        self._touch(shell)
        self._run(ast.Module([shell], []))
        built = self[node.name]
        built.__module__ = "vllm"
        built.__annotations__ = {name: seen for name, (seen, _meant, _init) in hints.items()}
        inherited = [getattr(base, "__meant__", {}) for base in known]
        built.__meant__ = {**_merged(inherited), **{name: meant for name, (_seen, meant, _init) in hints.items()}}
        for name, (_seen, _meant, init) in hints.items():
            # The class body is the release's, so its fields are set from outside of it.
            setattr(built, name, dataclasses.field(default=None, init=init))  # pylint: disable=invalid-field-call
        return dataclasses.dataclass(built)

    def _run(self, tree: ast.Module) -> None:
        exec(_compiled(tree, "exec"), self)  # noqa: S102


def registered(folder: Path, manager: str) -> list[str]:
    """Return the names that ``@MANAGER.register_module("x")`` registers in the files of a folder, as until 0.11."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    call = re.compile(rf"^@{manager}\.register_module\(\s*(?:name=)?(\[[^\]]*\]|[^)\n]*)\)", re.MULTILINE)
    words = [found for text in texts for found in call.findall(text)]
    return sorted(name for word in words for name in re.findall(r"[\"']([^\"']+)[\"']", word))


def _merged(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for mapping in reversed(mappings) for key, value in mapping.items()}


def _compiled(tree: Any, mode: str) -> Any:
    return compile(ast.fix_missing_locations(tree), "<vllm>", mode, dont_inherit=True)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any(re.search(r"\b(config|dataclass)\b", ast.unparse(item)) for item in node.decorator_list)


def _is_init(value: ast.expr | None) -> bool:
    """Return False for ``field(init=False)``: a field that only vLLM sets."""
    if not isinstance(value, ast.Call):
        return True
    return not any(word.arg == "init" and ast.unparse(word.value) == "False" for word in value.keywords)


def _is_class_method(node: ast.FunctionDef) -> bool:
    """Return whether a method can be called without an instance, as those that add arguments are."""
    names = [ast.unparse(item) for item in node.decorator_list]
    return bool(names) and set(names) <= {"staticmethod", "classmethod"}


class _Unquote(ast.NodeTransformer):
    """Turn ``"Name"`` in an annotation into Name; the texts of a Literal stay."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node if ast.unparse(node.value).endswith("Literal") else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


class _Runnable(ast.NodeTransformer):
    """Make a function runnable here: without annotations and imports (the namespace provides the names)."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        words = node.args
        for argument in [*words.posonlyargs, *words.args, *words.kwonlyargs, words.vararg, words.kwarg]:
            if argument:
                argument.annotation = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.Assign([node.target], node.value) if node.value else ast.Pass()

    def visit_Import(self, _node: ast.Import) -> ast.AST:
        return ast.Pass()

    def visit_ImportFrom(self, _node: ast.ImportFrom) -> ast.AST:
        return ast.Pass()
