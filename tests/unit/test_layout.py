# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file's name promises: only host.py and *_host.py touch the machine, and every file has its test.

import-linter (pyproject.toml) holds which room may import which.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from tests.fakes.sources import called, nodes_of, text_of

TOP = Path(__file__).resolve().parents[2]
HOST_CODE = TOP / "plugins/module_utils"
UNIT = TOP / "tests/unit/plugins"
COLLECTION = "ansible_collections.baremetal.inference.plugins"

# Files that touch the machine under another name: clients of the network, and a room that is about bytes throughout.
TOUCHES_THE_MACHINE = {"transfer", "endpoint/client.py", "endpoint/run_gates.py", "pinning/web.py"}
MACHINE = {
    "ctypes", "fcntl", "glob", "http.client", "mmap", "shutil", "socket", "ssl", "subprocess", "tempfile",
    "urllib.request",
}  # fmt: skip
PATH_LOOKS = {"exists", "isfile", "isdir", "islink", "lexists", "realpath", "getsize", "getmtime", "samefile"}
# Pure parts of os: nothing is looked at.
PURE_OS = {"path", "sep", "fspath", "fsencode", "fsdecode", "PathLike", "strerror", "stat_result"}


def touches(source: str) -> list[str]:
    """Return what a module does that looks at the machine or changes it, as `line: what`."""
    found = []
    for node in nodes_of(source):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        found += [f"{node.lineno}: imports {name}" for name in names if name in MACHINE]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            found.append(f"{node.lineno}: open()")
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr not in PURE_OS:
                if not node.attr.isupper():
                    found.append(f"{node.lineno}: os.{node.attr}")
            elif node.attr in PATH_LOOKS and ast.unparse(node.value) == "os.path":
                found.append(f"{node.lineno}: os.path.{node.attr}")
    return found


def foreign_imports(source: str, more: tuple[str, ...] = ()) -> list[str]:
    """Return what host code imports beside the standard library, ansible.module_utils, itself and ``more``."""
    names: list[tuple[int, str]] = []
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append((node.lineno, "." * node.level + (node.module or "")))
    own = ("ansible.module_utils", ".", *more)
    return [
        f"{line}: {name}"
        for line, name in names
        if name.split(".")[0] not in sys.stdlib_module_names and (not name.startswith(own) or "plugin_utils" in name)
    ]


def host_files() -> list[Path]:
    return sorted(path for path in HOST_CODE.rglob("*.py"))


def programs() -> list[Path]:
    """Return the programs that roles copy to hosts."""
    return sorted(TOP.glob("roles/*/files/*.py"))


def may_touch(path: Path) -> bool:
    name = path.relative_to(HOST_CODE).as_posix()
    return (
        path.name == "host.py" or path.stem.endswith("_host") or bool({name, name.split("/")[0]} & TOUCHES_THE_MACHINE)
    )


def test_only_files_of_the_host_touch_the_machine():
    pure = [path for path in host_files() if not may_touch(path)]
    found = {path.relative_to(TOP).as_posix(): lines for path in pure if (lines := touches(text_of(path)))}
    assert found == {}, "rename the file to *_host.py, or move these lines into one"


# Pure files that read the clock or wait; plugins/README.md names them. A default that a caller replaces does not count.
READS_THE_CLOCK = {"gateway/verdict.py", "instance/warm_up.py", "endpoint/ready.py"}


def test_only_three_pure_files_read_the_clock():
    clock = re.compile(r"time\.(?:time|monotonic|sleep)\(|default_factory=time\.|datetime\.now\(|date\.today\(")
    pure = [path for path in host_files() if not may_touch(path)]
    reading = {path.relative_to(HOST_CODE).as_posix() for path in pure if clock.search(text_of(path))}
    assert reading == READS_THE_CLOCK
    map_of_code = (TOP / "plugins/README.md").read_text()
    assert all(f"`{name}`" in map_of_code for name in READS_THE_CLOCK)


def test_planning_reads_no_file():
    """What it needs of the catalogue comes in a Library, and the import contract alone would let it open files."""
    found = {}
    for path in (TOP / "plugins/plugin_utils/planning").glob("*.py"):
        text = text_of(path)
        names = [node.module or "" for node in nodes_of(text) if isinstance(node, ast.ImportFrom)]
        lines = [*touches(text), *(name for name in names if name.endswith(("_host", "common.places")))]
        found.update({path.name: lines} if lines else {})
    assert found == {}


def test_host_code_imports_the_standard_library_only():
    texts = {path.relative_to(TOP).as_posix(): text_of(path) for path in host_files()}
    found = {
        name: told for name, text in texts.items() if (told := foreign_imports(text, IN_ENVIRONMENTS.get(name, ())))
    }
    assert found == {}, "a managed host has nothing else"


# What programs import beside the standard library and the collection: they run in an environment that has it.
IN_ENVIRONMENTS = {
    "plugins/module_utils/acceptance/burn_in_program_host.py": ("torch", "torch_npu"),
    "plugins/module_utils/vllm/all_reduce_program_host.py": ("torch", "torch_npu"),
    "roles/provisioner/files/baremetal_guard.py": ("ironic_python_agent",),
    "plugins/module_utils/evaluation/gpt_oss_program_host.py": ("gpt_oss", "openai", "pandas"),
    "roles/vllm/files/vllm-router.py": ("vllm_router",),
}


def test_programs_of_roles_are_doors():
    long = {path.name: lines for path in TOP.glob("roles/*/files/*.py") if (lines := len(path.open().readlines())) > 60}
    assert long == {}, "move what it does into its room in plugins/module_utils"


def test_programs_import_the_standard_library_and_the_collection_only():
    found = {}
    for path in programs():
        name = path.relative_to(TOP).as_posix()
        told = foreign_imports(text_of(path), (f"{COLLECTION}.module_utils", *IN_ENVIRONMENTS.get(name, ())))
        found.update({name: told} if told else {})
    assert found == {}, "a managed host has nothing else"


def test_plugins_import_each_other_by_relative_names():
    name = "ansible_collections." + "baremetal.inference.plugins"
    found = [str(path.relative_to(TOP)) for path in sorted(TOP.glob("plugins/**/*.py")) if name in text_of(path)]
    assert found == [], "one form everywhere: from ..room.file import Name"


# Who renames or locks without files_host.publish and files_host.locked, and why.
PUBLISHES_BY_HAND = {
    "plugins/module_utils/common/files_host.py": "the one place",
    "plugins/module_utils/common/foreign_files_host.py": "a directory of another user",
    "plugins/module_utils/health/saved_state_host.py": "moves a damaged file aside",
    "plugins/module_utils/removal/remove_host.py": "hides a directory before it is removed",
    "plugins/module_utils/slots/caches_host.py": "a part of a cache is a directory",
    "plugins/module_utils/slots/host.py": "a slot is a directory",
    "plugins/module_utils/slots/restore_host.py": "stages all files of a state before the first rename",
    "plugins/module_utils/transfer/partial_file.py": "a file of many GB that grows where it lies",
    "plugins/module_utils/weights/files_host.py": "a revision is a directory",
    "plugins/module_utils/weights/retention_host.py": "hides a directory before it is removed",
    "plugins/module_utils/wheels/environment_host.py": "an environment is a directory",
    "plugins/module_utils/wheels/wheelhouse_host.py": "pip wrote the wheels; the next run checks their hashes",
    "plugins/module_utils/containers/copy_host.py": "a layout is a directory",
    "plugins/plugin_utils/mirror/caches.py": "an archive of many GB that was fetched beside its name",
    "plugins/module_utils/usage/records_host.py": "a lock for each file, which says that a process writes it",
    "plugins/module_utils/usage/store_host.py": "it moves a damaged database aside",
    "plugins/module_utils/wheels/build_host.py": "an environment is a directory",
}
BY_HAND = {"os.rename", "os.replace", "os.renames", "shutil.move", "fcntl.flock", "fcntl.lockf", "tempfile.mktemp"}


def by_hand(source: str) -> set[str]:
    """Return the calls with which a module renames or locks by itself."""
    if not any(call in source for call in BY_HAND):
        return set()
    return {called(node) for node in nodes_of(source) if isinstance(node, ast.Call)} & BY_HAND


def test_files_are_published_and_locked_in_one_place():
    places = [*(TOP / "plugins").rglob("*.py"), *programs()]
    found = {path.relative_to(TOP).as_posix() for path in places if by_hand(text_of(path))}
    assert found - set(PUBLISHES_BY_HAND) == set(), "use publish or locked of module_utils/common/files_host.py"
    assert set(PUBLISHES_BY_HAND) - found == set(), "these do it no longer: take them out of the list"


def test_directories_are_removed_in_one_place():
    """It sees where something is mounted, also in a directory of root's own."""
    places = [*(TOP / "plugins/module_utils").rglob("*.py"), *(TOP / "plugins/modules").glob("*.py"), *programs()]
    found = [path.relative_to(TOP).as_posix() for path in places if "rmtree(" in text_of(path)]
    assert found == [], "use remove_tree of module_utils/common/foreign_trees_host.py"


# Who makes directories without files_host.make_directories, and why.
MAKES_BY_HAND = {
    "plugins/module_utils/common/files_host.py": "the one place",
    "plugins/module_utils/provisioning/agent_network_host.py": "one file in a system without users, in memory",
}


def test_directories_are_made_in_one_place():
    """It lets no default ACL decide who may write into them."""
    places = [*(TOP / "plugins/module_utils").rglob("*.py"), *(TOP / "plugins/modules").glob("*.py"), *programs()]
    made = re.compile(r"\bos\.(mkdir|makedirs)\(|\.mkdir\(")
    found = {path.relative_to(TOP).as_posix() for path in places if made.search(text_of(path))}
    assert found == set(MAKES_BY_HAND), "use make_directories of module_utils/common/files_host.py"


def test_a_planted_publication_by_hand_is_found():
    assert by_hand("import os\nos.replace('a', 'b')\n")
    assert not by_hand("'a'.replace('a', 'b')\nreplace(plan, host='a')\n")


# Methods and functions of Python 3.9 and later, which compile under 3.8 and fail when they run.
NEWER = re.compile(
    r"\.(removesuffix|removeprefix|waitstatus_to_exitcode|bit_count|is_relative_to|batched|lcm)\(|functools\.cache\b"
)
# Arguments of subprocess that came with 3.9.
NEWER_WORDS = {"user", "group", "extra_groups", "umask", "process_group", "pipesize"}
# It runs in vLLM's own environment, which has a newer Python.
OF_AN_ENGINE = {"all_reduce_program_host.py"}


def test_host_code_calls_nothing_newer_than_python_3_8():
    found = {
        path.name: NEWER.findall(text)
        for path in (*host_files(), *(TOP / "plugins/modules").glob("*.py"), *programs())
        if NEWER.search(text := text_of(path)) and path.name not in OF_AN_ENGINE
    }
    assert found == {}


def test_host_code_gives_subprocess_no_argument_newer_than_python_3_8():
    found = []
    for path in (*host_files(), *(TOP / "plugins/modules").glob("*.py"), *programs()):
        text = text_of(path)
        for node in nodes_of(text) if "subprocess." in text else ():
            if isinstance(node, ast.Call) and called(node).startswith("subprocess."):
                found += [f"{path.name}:{node.lineno}" for word in node.keywords if word.arg in {None, *NEWER_WORDS}]
    assert found == [], "become of common/processes_host.py; name the arguments, that this test sees them"


def test_host_code_is_written_for_python_3_8():
    modules = (TOP / "plugins/modules").glob("*.py")
    for path in (*host_files(), *modules, *programs()):
        ast.parse(text_of(path), str(path), feature_version=(3, 8))


@pytest.mark.parametrize(
    "line",
    [
        "import subprocess", "from urllib.request import urlopen", "from urllib import request", "open('/etc/passwd')",
        "os.listdir('/')", "os.path.exists('/')", "import http.client", "import fcntl",
    ],
)  # fmt: skip
def test_a_planted_look_at_the_machine_is_found(line):
    assert touches(f"import os\n{line}\n")


@pytest.mark.parametrize("line", ["os.path.join('a', 'b')", "os.O_RDONLY", "re.sub('a', 'b', 'c')", "reply.open()"])
def test_pure_code_is_left_alone(line):
    assert not touches(f"import os\nimport re\n{line}\n")


@pytest.mark.parametrize(
    "line", ["import yaml", "from ...plugin_utils.common import yaml", "from ansible.errors import AnsibleError"]
)
def test_a_planted_foreign_import_is_found(line):
    assert foreign_imports(line)


def test_every_file_of_a_room_has_its_test():
    missing = set()
    for tree in ("module_utils", "plugin_utils"):
        for path in (TOP / "plugins" / tree).rglob("*.py"):
            name = path.relative_to(TOP / "plugins")
            if not list((UNIT / name.parent).glob(f"test_{path.stem}*.py")):
                missing.add(name.as_posix())
    assert missing == set(), "write the test"


def test_every_test_of_a_room_names_a_file():
    for tree in ("module_utils", "plugin_utils"):
        for path in (UNIT / tree).rglob("test_*.py"):
            room = TOP / "plugins" / path.relative_to(UNIT).parent
            stem = path.stem.removeprefix("test_")
            assert [file for file in room.glob("*.py") if stem == file.stem or stem.startswith(f"{file.stem}_")], path


# What a file planted in the first folder imports from the second.
PLANTED = {
    "Doors stand above the rooms and do not know each other": ("plugin_utils/common", "action.serve_plan"),
    "Hosts never run the controller's code": ("module_utils/weights", "plugin_utils.weights.s3"),
    "Rooms of hosts: each imports only from those below": ("module_utils/common", "module_utils.slots.state"),
    "Rooms of the controller: each imports only from those below": ("plugin_utils/common", "plugin_utils.fleet.plans"),
    "Vendors do not know each other": ("module_utils/cuda", "module_utils.rocm.packages"),
    "Planning reads no file": ("plugin_utils/planning", "plugin_utils.catalog.files"),
}


def test_every_contract_between_rooms_has_a_planted_violation():
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == set(PLANTED)


@pytest.mark.slow
def test_import_linter_finds_a_planted_violation_of_each_contract(tmp_path):
    tree = tmp_path / "ansible_collections/baremetal/inference"
    shutil.copytree(TOP / "plugins", tree / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "pyproject.toml", tree)
    for number, (folder, imported) in enumerate(PLANTED.values()):
        planted = tree / "plugins" / folder / f"planted_{number}.py"
        planted.write_text(f"from {COLLECTION}.{imported} import __doc__\n")
    room = tree / "plugins/plugin_utils/planted_room"
    room.mkdir()
    (room / "file.py").touch()
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", tree / "pyproject.toml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert {contract for contract in PLANTED if f"{contract} BROKEN" in done.stdout} == set(PLANTED)
    assert "planted_room" in done.stdout, "a room that stands on no floor is found too"


# ansible-test wants the whole header in these. Elsewhere it is the line with SPDX; README names the authors.
WITH_WHOLE_HEADER = ("modules", "filter", "lookup", "inventory", "vars", "callback")


def test_a_header_is_one_line():
    """Remove the lines "Copyright (c) ..." and "GNU General Public License v3.0+ ..." from these files."""
    files = [path for top in ("plugins", "roles", "playbooks", "tests", "tools") for path in (TOP / top).rglob("*.py")]
    others = [
        path for path in files if path.parent.name not in WITH_WHOLE_HEADER or path.parent.parent.name != "plugins"
    ]
    lines = (b"# GNU General Public License v3.0+", b"# Copyright (c) 2026, the baremetal.inference authors")
    heads = {str(path.relative_to(TOP)): path.read_bytes()[:400] for path in others}
    assert [name for name, head in heads.items() if any(line in head for line in lines)] == []


def test_annotations_come_from_the_future_only_where_a_file_needs_them(tmp_path):
    """Remove `from __future__ import annotations` from these files: nothing in them needs it.

    Hosts have Python 3.8, whose annotations know no `list[str]` and no `str | None`; the controller has 3.11. Elsewhere
    a file needs it for a name that is defined below its annotation, or for a type of which ruff knows no release.
    """
    line = "from __future__ import annotations\n"
    texts = {path.relative_to(TOP): path.read_text(encoding="utf-8") for path in (TOP / "plugins").rglob("*.py")}
    for path, text in texts.items():
        if line in text:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text.replace(line, ""), encoding="utf-8")
    shutil.copy(TOP / "pyproject.toml", tmp_path)
    ruff = [
        Path(sys.executable).with_name("ruff"),
        "check",
        "--no-cache",
        "--select=F821,FA102",
        "--output-format=json",
    ]
    done = subprocess.run([*ruff, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False)
    needed = {str(path) for path, text in texts.items() if "subprocess.Popen[" in text}
    needed |= {str(Path(each["filename"]).relative_to(tmp_path)) for each in json.loads(done.stdout)}
    assert len(needed) > 100, done.stderr
    assert sorted({str(path) for path, text in texts.items() if line in text} - needed) == []
