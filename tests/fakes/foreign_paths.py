# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what reaches into a directory of another user by a path, in the sources of programs, rooms and modules.

A path is followed from the constants of such directories through variables, attributes, loops, and functions that
return it, pass it on or give it to the system, in other files too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.fakes.sources import called, named

# Directories that another user owns or fills, and the names of files in them.
CONSTANTS = {
    "APPLIED", "CACHE_DIR", "CLOSED", "CONTAINER", "HOLD", "OPERATOR", "READY", "RUN_DIR", "SPARE", "STAMP_NAME",
    "STOPPING", "UNHEALTHY", "WATCHED", "WITHDRAWN", "cache_root", "run_dir",
}  # fmt: skip
# Options of modules that name such directories.
OPTIONS = {"cache_dir", "run_dir"}
PLACES = ("/run/vllm/", "/var/cache/vllm/")
DOOR, THE_DOOR = "ForeignDirectory", "module_utils/common/foreign_files_host.py"
FOREIGN = "foreign"
# What a variable holds that stands for a function of the system.
FUNCTION = "a function of the system"
TAGS = {FOREIGN, FUNCTION}

# Calls that give a path to the system, whatever they are called on.
SYSTEM = {
    "os", "os.path", "shutil", "glob", "tempfile", "sqlite3", "io", "codecs", "tarfile", "zipfile", "gzip", "bz2",
    "lzma", "subprocess", "runpy", "fileinput", "mmap", "ctypes", "linecache", "posix",
    "shelve", "dbm",
}  # fmt: skip
PURE = {
    "basename", "commonpath", "dirname", "fsdecode", "fsencode", "fspath", "isabs", "join", "normpath", "relpath",
    "split", "splitext", "getenv", "BytesIO", "StringIO",
}  # fmt: skip
# Names of the system that are no functions.
NO_FUNCTIONS = {"environ", "error", "linesep", "name", "path", "sep"}
# Functions that run a program by the words of its command, and methods that use a file by its path: of an Ansible
# module, a socket, a context of TLS.
RUNNERS = {
    "run_command", "_run", "_run_command", "_call", "_command", "_output", "atomic_move", "backup_local", "bind",
    "connect", "connect_ex", "digest_from_file", "load_cert_chain", "load_verify_locations", "preserved_copy",
    "set_fs_attributes_if_different", "set_group_if_different", "set_mode_if_different", "set_owner_if_different",
}  # fmt: skip
# Programs that follow links in the paths that they are given, and those that run another program.
PROGRAMS = {
    "awk", "bash", "cat", "chcon", "chgrp", "chmod", "chown", "cmp", "cp", "cpio", "curl", "dd", "diff", "du", "find",
    "getfacl", "grep", "gunzip", "gzip", "head", "install", "jq", "ln", "ls", "mkdir", "mknod", "mktemp", "mount", "mv",
    "openssl", "realpath", "restorecon", "rm", "rmdir", "rsync", "sed", "setfacl", "sh", "sha256sum", "shred", "stat",
    "tail", "tar", "tee", "test", "touch", "truncate", "unlink", "unzip", "wget", "xz", "zstd",
}  # fmt: skip
PREFIXES = {"chroot", "env", "flock", "ionice", "nice", "nohup", "sudo", "timeout", "unshare", "xargs"}
# Methods that add to the list which they are called on.
ADDERS = {"add", "append", "extend", "insert", "update"}
# Methods of a path or of a module, with the path as what they are called on.
OF_PATH = {
    "chmod", "exists", "expanduser", "glob", "hardlink_to", "is_dir", "is_file", "is_fifo", "is_socket", "is_symlink",
    "iterdir", "lchmod", "link_to", "lstat", "mkdir", "open", "owner", "group", "read_bytes", "read_text", "readlink",
    "rename", "replace", "resolve", "rglob", "rmdir", "samefile", "stat", "symlink_to", "touch", "unlink", "walk",
    "write_bytes", "write_text",
}  # fmt: skip
# Calls whose result is the path of an argument, or of what they are called on.
MAKERS = {
    "os.path.join", "os.path.normpath", "os.path.abspath", "os.path.realpath", "os.path.dirname", "os.path.expanduser",
    "os.fspath", "os.fsencode", "os.fsdecode", "os.readlink", "Path", "PurePath", "PosixPath", "pathlib.Path",
    "pathlib.PurePath", "str", "list", "tuple", "sorted", "reversed", "glob.glob", "glob.iglob", "os.scandir",
    "os.walk", "dict.fromkeys", "enumerate", "zip",
}  # fmt: skip
MAKER_METHODS = {
    "absolute", "format", "glob", "iterdir", "joinpath", "rglob", "resolve", "replace", "rstrip", "lstrip", "strip",
    "with_name", "with_suffix", "removesuffix", "encode", "as_posix", "items", "values", "get", "pop", "copy",
    "expanduser",
}  # fmt: skip
STUDIED = (
    ast.Call, ast.Return, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor,
    ast.comprehension, ast.withitem, ast.List, ast.Tuple,
)  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(eq=False)
class Body:
    """A function, or the statements of a file outside of functions, with what is known of it."""

    file: str
    name: str
    node: ast.AST
    parameters: list[str] = field(default_factory=list)
    # The function around it, whose variables it sees.
    around: Body | None = None
    # Those of which it is the one around, and so on.
    inner: list[Body] = field(default_factory=list)
    nodes: list[ast.AST] = field(default_factory=list)
    # What a variable's path is made from: FOREIGN, and names of parameters.
    local: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    returns: set[str] = field(default_factory=set)
    # Parameters that it gives to the system.
    gives: set[str] = field(default_factory=set)
    found: dict[int, str] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        """Whether these are the statements of a class."""
        return isinstance(self.node, ast.ClassDef)


@dataclass
class Source:
    """A file: its functions by name, what it imports, and its attributes and variables that hold such paths."""

    file: str
    bodies: list[Body]
    imported: dict[str, tuple[str, str]]
    # Modules by the other names that they are imported under.
    modules: dict[str, str] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    attributes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def read(file: str, text: str) -> Source:
    """Return a source with its functions."""
    top = ast.parse(text)
    source = Source(file, [Body(file, "", top)], {})
    _collect(source, source.bodies[0], top)
    return source


def _collect(source: Source, body: Body, node: ast.AST) -> None:
    """Add what is inside of a node: to the body, and as bodies of their own the functions and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            name = f"{body.name}.{child.name}".lstrip(".")
            inner = Body(source.file, name, child, _parameters(child), body if isinstance(node, FUNCTIONS) else None)
            source.bodies.append(inner)
            outer = inner.around
            while outer:
                outer.inner.append(inner)
                outer = outer.around
            _collect(source, inner, child)
            continue
        if isinstance(child, STUDIED):
            body.nodes.append(child)
        elif isinstance(child, ast.ImportFrom):
            path = _file_of(child, source.file)
            source.imported.update({alias.asname or alias.name: (path, alias.name) for alias in child.names})
        elif isinstance(child, ast.Import):
            source.modules.update({alias.asname: alias.name for alias in child.names if alias.asname})
        _collect(source, body, child)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """Return the parameters of a function, or the fields of a dataclass."""
    if isinstance(node, ast.ClassDef):
        return [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _file_of(node: ast.ImportFrom, file: str) -> str:
    """Return the file that an import names, relative to plugins/."""
    module = (node.module or "").rpartition("inference.plugins.")[2]
    above = file.split("/")[: -node.level] if node.level else []
    return "/".join([*above, *module.split(".")]) + ".py"


class Search:
    """The search in a set of sources, by file name relative to plugins/."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.sources = {file: read(file, text) for file, text in texts.items()}
        self.functions = {
            (file, body.name): body for file, source in self.sources.items() for body in source.bodies if body.name
        }
        self.methods: dict[str, list[Body]] = defaultdict(list)
        for (_file, name), body in self.functions.items():
            if "." in name and isinstance(body.node, FUNCTIONS):
                self.methods[name.rpartition(".")[2]].append(body)
        # Which bodies call a function of a name, and which need another look because more has become known.
        self.callers: dict[str, set[Body]] = defaultdict(set)
        self.open: dict[Body, Source] = {}
        for source in self.sources.values():
            for body in source.bodies:
                self.open[body] = source
                for node in (each for each in body.nodes if isinstance(each, ast.Call)):
                    name = called(node).rpartition(".")[2]
                    self.callers[source.imported.get(name, ("", name))[1]].add(body)
        while self.open:
            body, source = self.open.popitem()
            if body.file != THE_DOOR:
                self._study(source, body)

    def findings(self) -> dict[str, list[str]]:
        """Return the calls that reach such a place, by file::function."""
        found: dict[str, list[str]] = {}
        for source in self.sources.values():
            for body in source.bodies:
                lines = [f"{line}: {text}" for line, text in sorted(body.found.items())]
                if lines:
                    found[f"{source.file}::{body.name}"] = lines
        return found

    def _study(self, source: Source, body: Body) -> None:
        for node in body.nodes:
            if isinstance(node, ast.Call):
                self._call(source, body, node)
            elif isinstance(node, (ast.List, ast.Tuple)):
                if is_program(node.elts):
                    self._reach(body, node, "a program", self._of(source, body, node))
            elif isinstance(node, ast.Return) and node.value:
                self._add(body.returns, self._of(source, body, node.value), self._callers(body))
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(source, body, target, node.value)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)) and node.value:
                self._bind(source, body, node.target, self._of(source, body, node.value))
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                self._bind(source, body, node.target, self._of(source, body, node.iter))
            elif isinstance(node, ast.withitem) and node.optional_vars:
                self._bind(source, body, node.optional_vars, self._of(source, body, node.context_expr))

    def _callers(self, body: Body) -> set[Body]:
        return self.callers.get(body.name.rpartition(".")[2], set())

    def _add(self, known: set[str], more: set[str], concerned: Iterable[Body]) -> None:
        """Add what has become known, and study those again that it concerns."""
        if not more <= known:
            known |= more
            self.open.update((body, self.sources[body.file]) for body in concerned)

    def _assign(self, source: Source, body: Body, target: ast.AST, value: ast.AST) -> None:
        pair = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
        for one, other in zip(target.elts, value.elts) if pair else [(target, value)]:
            self._bind(source, body, one, self._of(source, body, other))

    def _bind(self, source: Source, body: Body, target: ast.AST, made: set[str]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(source, body, each, made)
        elif isinstance(target, ast.Name):
            self._add(body.local[target.id], made, [body, *body.inner])
            if made & TAGS and not isinstance(body.node, FUNCTIONS):
                names = source.attributes if body.is_class else source.names
                self._add(names[target.id], made & TAGS, source.bodies)
        elif isinstance(target, ast.Attribute) and made & TAGS:
            self._add(source.attributes[target.attr], made & TAGS, source.bodies)

    def _of(self, source: Source, body: Body, node: ast.AST) -> set[str]:
        """Return what an expression's path is made from."""
        if isinstance(node, ast.Name):
            own = {node.id} if node.id in body.parameters else set()
            known = set() if own else source.names.get(node.id, set())
            outer = self._of(source, body.around, node) & TAGS if body.around and not own else set()
            tags = ({FOREIGN} if node.id in CONSTANTS else set()) | self._function(source, node)
            return own | outer | known | body.local.get(node.id, set()) | tags
        if isinstance(node, ast.Attribute):
            if node.attr in CONSTANTS:
                return {FOREIGN}
            known = source.attributes.get(node.attr) or self._function(source, node)
            return known or (self._of(source, body, node.value) if node.attr in ("parent", "path") else set())
        if isinstance(node, ast.Constant):
            return {FOREIGN} if isinstance(node.value, str) and f"{node.value}/".startswith(PLACES) else set()
        if isinstance(node, ast.Call):
            return self._of_call(source, body, node)
        if isinstance(node, ast.IfExp):
            return self._of(source, body, node.body) | self._of(source, body, node.orelse)
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return {FOREIGN} if key in OPTIONS else self._of(source, body, node.value)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self._of(source, body, node.elt)
        if isinstance(node, ast.DictComp):
            return self._of(source, body, node.value)
        if isinstance(node, ast.Dict):
            return set().union(*(self._of(source, body, each) for each in node.values))
        if isinstance(
            node,
            (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.BoolOp, ast.Tuple, ast.List, ast.Set, ast.Starred),
        ):
            return set().union(*(self._of(source, body, each) for each in ast.iter_child_nodes(node)))
        return set()

    def _of_call(self, source: Source, body: Body, node: ast.Call) -> set[str]:
        way = called(node)
        owner, _dot, method = way.rpartition(".")
        if way.rpartition(".")[2] == DOOR:
            return set()
        given = [*node.args, *(each.value for each in node.keywords)]
        if way in ("partial", "functools.partial"):
            return self._of(source, body, node.args[0]) & {FUNCTION}
        if way == "getattr":
            return self._function(source, node)
        if way in MAKERS:
            return set().union(*(self._of(source, body, each) for each in given))
        if isinstance(node.func, ast.Attribute) and method in MAKER_METHODS and owner not in SYSTEM:
            return self._of(source, body, node.func.value)
        made: set[str] = set()
        for callee in self._callees(source, node):
            for name in callee.returns:
                made |= {FOREIGN} if name == FOREIGN else self._argument(source, body, node, callee, name)
        return made

    def _callees(self, source: Source, node: ast.Call) -> list[Body]:
        """Return the function that a call calls: one of this file or an imported one; a method by self."""
        if isinstance(node.func, ast.Name):
            key = source.imported.get(node.func.id, (source.file, node.func.id))
            found = self.functions.get(key)
            return [found] if found and not found.is_class else []
        if isinstance(node.func, ast.Attribute):
            found = self.methods.get(node.func.attr, [])
            if isinstance(node.func.value, ast.Name) and node.func.value.id in ("self", "cls"):
                return [each for each in found if each.file == source.file]
            # Another object, whose class is not known: the only one with such a method.
            return found if len(found) == 1 and node.func.attr not in OF_PATH else []
        return []

    def _constructor(self, source: Source, node: ast.Call) -> Body | None:
        """Return what makes an object of a class: its __init__, or the fields of a dataclass."""
        if not isinstance(node.func, ast.Name):
            return None
        file, name = source.imported.get(node.func.id, (source.file, node.func.id))
        found = self.functions.get((file, name))
        return self.functions.get((file, f"{name}.__init__"), found) if found and found.is_class else None

    def _argument(self, source: Source, body: Body, node: ast.Call, callee: Body, name: str) -> set[str]:
        """Return what the argument of a parameter is made from."""
        made: set[str] = set()
        for position, each in enumerate(node.args):
            if isinstance(each, ast.Starred) or callee.parameters[position : position + 1] == [name]:
                made |= self._of(source, body, each)
        for keyword in node.keywords:
            if keyword.arg == name:
                made |= self._of(source, body, keyword.value)
        return made

    def _call(self, source: Source, body: Body, node: ast.Call) -> None:
        """Note what a call gives to the system."""
        way = called(node)
        method = way.rpartition(".")[2]
        given = [self._of(source, body, each) for each in given_to(node)]
        reached: set[str] = set()
        functions = [self._of(source, body, node.func), *given]
        if any(FUNCTION in each for each in functions) or method in RUNNERS or is_program(node.args):
            reached = set().union(*given)
        # Texts have a method replace too, with two arguments.
        if (method, len(node.args)) != ("replace", 2):
            for each in (node.func, *given_to(node)):
                reached |= self._of_method(source, body, each)
        if isinstance(node.func, ast.Attribute) and method in ADDERS and not isinstance(node.func.value, ast.Call):
            self._bind(source, body, node.func.value, set().union(*given))
        for callee in self._callees(source, node):
            for name in callee.gives:
                reached |= self._argument(source, body, node, callee, name)
        made = self._constructor(source, node)
        for name in made.parameters if made else ():
            if FOREIGN in self._argument(source, body, node, made, name):
                theirs = self.sources[made.file]
                known = theirs.attributes if made.is_class else made.local
                self._add(known[name], {FOREIGN}, theirs.bodies)
        self._reach(body, node, way, reached)

    def _of_method(self, source: Source, body: Body, node: ast.expr) -> set[str]:
        """Return the path whose method an expression names, `path.stat` or `getattr(path, "stat")`."""
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 1:
            return self._of(source, body, node.args[0]) if named(node).rpartition(".")[2] in (*OF_PATH, "*") else set()
        is_method = isinstance(node, ast.Attribute) and node.attr in OF_PATH
        return self._of(source, body, node.value) if is_method else set()

    def _reach(self, body: Body, node: ast.expr, way: str, reached: set[str]) -> None:
        """Note that the system gets what is made from these."""
        if FOREIGN in reached:
            body.found.setdefault(node.lineno, way)
        self._add(body.gives, reached - TAGS, self._callers(body))

    def _function(self, source: Source, node: ast.expr) -> set[str]:
        """Return FUNCTION for a function of the system: `open`, `os.stat`, `stat` where it is imported."""
        owner, _dot, name = named(node).rpartition(".")
        if not owner and name in source.imported:
            file, name = source.imported[name]
            owner = file.removesuffix(".py").replace("/", ".")
        is_function = name == "*" or not (name in PURE | NO_FUNCTIONS or name.isupper())
        is_system = owner in SYSTEM or source.modules.get(owner) in SYSTEM
        is_method = owner in ("Path", "pathlib.Path") and name in OF_PATH
        return (
            {FUNCTION}
            if (name == "open" and owner in ("", "builtins")) or (is_system and is_function) or is_method
            else set()
        )


def is_program(words: list[ast.expr]) -> bool:
    """Return whether the words of a command run a program that follows links."""
    head, *others = [_program(each) for each in words] or [""]
    return head in PROGRAMS or (head in PREFIXES and not PROGRAMS.isdisjoint(others))


def _program(word: ast.expr) -> str:
    """Return the program that a word names, by itself or as what is searched for: `which("cat")`."""
    while isinstance(word, ast.Call) and word.args:
        word = word.args[0]
    return str(getattr(word, "value", "")).rpartition("/")[2]


def given_to(node: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call that may be paths."""
    return [*node.args, *(each.value for each in node.keywords if each.arg not in ("env", "dir_fd"))]
