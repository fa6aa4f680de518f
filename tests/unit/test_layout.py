# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file's name promises: only host.py and *_host.py touch the machine, and every file has its test.

import-linter (pyproject.toml) holds which room may import which.
"""

from __future__ import annotations

import ast
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
        lines = [*touches(text), *opens(text), *(name for name in names if name.endswith(("_host", "common.places")))]
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


def test_a_planted_publication_by_hand_is_found():
    assert by_hand("import os\nos.replace('a', 'b')\n")
    assert not by_hand("'a'.replace('a', 'b')\nreplace(plan, host='a')\n")


# Who opens files without common/foreign_files_host.py: why nobody but root (or the user that runs it) could have put
# something else there. A room, or a file of one.
OPENS = {
    "module_utils/accelerator/": "files of the kernel",
    "module_utils/acceptance/python_host.py": "root's own configuration",
    "module_utils/acceptance/storage_host.py": "a benchmark of disks reads what the playbook names",
    "module_utils/bench/target_host.py": "root's own configuration",
    "module_utils/cann/": "root's own packages",
    "module_utils/chip_identity/": "files of the kernel",
    "module_utils/common/": "the functions themselves",
    "module_utils/container_runtime/": "root's own configuration",
    "module_utils/containers/": "layouts that root or the controller's user has written",
    "module_utils/cuda/": "files of the kernel, and root's own configuration",
    "module_utils/encodings/": "root's own directories",
    "module_utils/endpoint/": "files of root, or of who runs the module",
    "module_utils/evaluation/run_host.py": "written before the directory is given away; a new file of root's",
    "module_utils/gateway/": "root's own directories, and files of the kernel",
    "module_utils/health/": "root's own directories; the marks of instances are read by the door",
    "module_utils/host_group/host.py": "root's own directory",
    "module_utils/host_group/sockets_host.py": "files of the kernel",
    "module_utils/host_group/watchdog_host.py": "root's own directories; the marks of instances are read by the door",
    "module_utils/host_tuning/": "files of the kernel, and root's own configuration",
    "module_utils/instance/config_host.py": "root's own configuration, by the function that names its errors",
    "module_utils/instance/preload_host.py": "root's own configuration; its own in the directory of its unit",
    "module_utils/instance/scale_door_host.py": "root's own configuration, and a directory that is root's",
    "module_utils/instance/sock_diag_host.py": "files of the kernel",
    "module_utils/instance/socket_unit_host.py": "files of the kernel",
    "module_utils/instance/wait_ready_host.py": "root's own configuration",
    "module_utils/middleware/availability_host.py": "vLLM's own user, in its own directory",
    "module_utils/middleware/operator_host.py": "vLLM's own user, in its own directory",
    "module_utils/mirror/": "a carried disk, of which mirror/bill_host.py refuses links",
    "module_utils/pinning/": "the controller's user reads and writes its own files",
    "module_utils/removal/": "root's own configuration, and files of the kernel",
    "module_utils/preflight/": "files of the kernel",
    "module_utils/residents/member_host.py": "root's own configuration",
    "module_utils/residents/service_host.py": "root's own directories; the marks of instances are read by the door",
    "module_utils/rocm/": "files of the kernel, and root's own configuration",
    "module_utils/slots/": "root's own directories",
    "module_utils/transfer/": "a directory that this user makes, without following links",
    "module_utils/usage/records_host.py": "vLLM's own user, in its own directory",
    "module_utils/usage/service_host.py": "root's own configuration",
    "module_utils/vendor_stack/": "files of the kernel, and root's own configuration",
    "module_utils/vllm/": "root's own configuration, and files of the kernel",
    "module_utils/weights/direct_read_host.py": "opens without following or waiting itself, for reads past the cache",
    "module_utils/weights/fetch_host.py": "a file that was read just before, without following links",
    "module_utils/weights/files_host.py": "the sha256 of files, after links were refused; a FIFO is not waited for",
    "module_utils/weights/models_host.py": "files that the user of the module names",
    "module_utils/weights/progress_host.py": "a file of the run",
    "module_utils/weights/retention_host.py": "files of the kernel; sets a time without following links",
    "module_utils/weights/scrub_host.py": "the report of root",
    "module_utils/weights/scrub_run_host.py": "the report of root",
    "module_utils/wheels/": "environments that root makes",
    "modules/": "root's own directories, or files that the user of the module names",
    "module_utils/evaluation/gpt_oss_program_host.py": "the user of the tool, in its own directory",
    "roles/gateway/files/": "root's own configuration",
    "module_utils/provisioning/": "a ramdisk without other users; the mark on a disk is opened without following links",
    "roles/vllm/files/vllm-router.py": "root's own configuration",
}
WAYS_TO_OPEN = {
    "open", "os.open", "os.utime", "os.mknod", "os.mkfifo", "text_of", "bytes_of", "sha256_of", "publish", "create",
    "touch", "read_text", "read_bytes", "write_text", "write_bytes", "copy", "copy2", "copyfile", "copytree", "move",
}  # fmt: skip
# Directories of other users, whose files are always opened by the door.
FOREIGN = {
    "APPLIED", "CLOSED", "CONTAINER", "HOLD", "OPERATOR", "READY", "RUN_DIR", "SPARE", "STAMP_NAME", "STOPPING",
    "UNHEALTHY", "WATCHED", "WITHDRAWN", "run_dir",
}  # fmt: skip


def opens(source: str) -> set[str]:
    """Return the ways in which a module opens files by itself."""
    found = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Call):
            way = called(node)
            owner, _dot, method = way.rpartition(".")
            way = method if owner != "os" and owner != "self" and "marks" not in owner and "place" not in owner else way
            found |= {way} & WAYS_TO_OPEN
    return found


def test_files_are_opened_by_the_door_or_belong_to_nobody_else():
    paths = [*host_files(), *sorted((TOP / "plugins/modules").glob("*.py")), *programs()]
    found = [path.relative_to(TOP).as_posix().removeprefix("plugins/") for path in paths if opens(text_of(path))]
    unlisted = [name for name in found if not any(name.startswith(place) for place in OPENS)]
    assert unlisted == [], (
        "use common/foreign_files_host.py, or say in OPENS why nobody else could have placed the file"
    )
    unused = [place for place in OPENS if not any(name.startswith(place) for name in found)]
    assert unused == [], "these open nothing any longer: take them out of the table"


# Who reaches such files by their paths all the same, and why that is safe.
REACHES = {
    "module_utils/evaluation/run_host.py": "a lock in /run/vllm itself, which is root's",
    "module_utils/instance/scale_door_host.py": "lists /run/vllm itself, which is root's",
    "module_utils/middleware/availability_host.py": "vLLM's own user",
    "module_utils/removal/inspect_host.py": "only whether there is a stamp",
    "module_utils/weights/retention_host.py": "the time of a stamp, without following links",
    "module_utils/weights/scrub_run_host.py": "only whether there is a stamp, and its time without following links",
}
OF_PATH = WAYS_TO_OPEN | {
    "chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "iterdir", "lstat", "mkdir", "rename", "replace",
    "rglob", "rmdir", "stat", "symlink_to", "unlink",
}  # fmt: skip
PURE_PATHS = {"basename", "commonpath", "dirname", "fsencode", "fspath", "join", "normpath", "relpath", "split"}


def reaches_files(way: str) -> bool:
    """Return whether a call of this name gives a path to the system."""
    owner, _dot, method = way.rpartition(".")
    if owner in ("os", "os.path", "shutil", "glob", "tempfile", "sqlite3", "io", "codecs", "tarfile", "zipfile"):
        return method not in PURE_PATHS
    return way in WAYS_TO_OPEN | {"locked"} or (owner.startswith(("Path(", "pathlib.Path(")) and method in OF_PATH)


def names_outside_the_door(node: ast.AST) -> set[str]:
    """Return the names in an expression without those that the door gets; RUN_DIR also where its text is written."""
    if isinstance(node, ast.Call) and called(node).startswith("ForeignDirectory"):
        return set()
    own = {str(getattr(node, key)) for key in ("id", "attr") if hasattr(node, key)}
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and f"{node.value}/".startswith("/run/vllm/"):
        own.add("RUN_DIR")
    return own.union(*map(names_outside_the_door, ast.iter_child_nodes(node)))


def reached(source: str) -> list[str]:
    """Return the calls that reach what lies in a directory of another user by its path, each as `line: name`.

    A path counts also where its function has put it into a variable.
    """
    top = ast.parse(source)
    functions = [node for node in ast.walk(top) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = set()
    for scope in (*functions, *(node for node in top.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef)))):
        foreign = set(FOREIGN)
        for node in (each for each in ast.walk(scope) if isinstance(each, ast.Assign)):
            is_path = not isinstance(node.value, ast.Call) or called(node.value) in ("os.path.join", "Path")
            if is_path and names_outside_the_door(node.value) & foreign:
                foreign |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and reaches_files(called(node)) and names_outside_the_door(node) & foreign:
                found.add(f"{node.lineno}: {called(node)}")
    return sorted(found)


def test_what_lies_in_a_directory_of_another_user_is_reached_by_the_door_alone():
    paths = [*host_files(), *sorted((TOP / "plugins/modules").glob("*.py")), *programs()]
    found = {path.relative_to(TOP).as_posix().removeprefix("plugins/"): reached(text_of(path)) for path in paths}
    found = {name: lines for name, lines in found.items() if lines}
    assert {name: lines for name, lines in found.items() if name not in REACHES} == {}, (
        "use ForeignDirectory of common/foreign_files_host.py"
    )
    assert set(REACHES) - set(found) == set(), "these do it no longer: take them out of the table"


@pytest.mark.parametrize(
    "line",
    [
        "open(f'{RUN_DIR}/{name}/ready')",
        "sha256_of(os.path.join(self.run_dir, name))",
        "Path(RUN_DIR, x).touch()",
        "Path(RUN_DIR, x).read_text()",
        "Path(RUN_DIR, x).write_bytes(b'')",
        "os.stat(f'{RUN_DIR}/{name}/ready')",
        "os.replace(beside, f'{RUN_DIR}/{name}/ready')",
        "os.unlink(f'/run/vllm/{name}/ready')",
        "os.path.exists(os.path.join(directory, READY))",
        "shutil.copyfile(source, f'{RUN_DIR}/{name}/ready')",
        "path = f'{RUN_DIR}/{name}'\n    shutil.rmtree(path)",
    ],
)
def test_a_planted_call_in_a_directory_of_another_user_is_found(line):
    assert reached(f"def program(name):\n    {line}\n")


@pytest.mark.parametrize(
    "line", ["ForeignDirectory(f'{RUN_DIR}/{name}').touch(READY)", "os.path.join(RUN_DIR, name)", "open('/run/vllm-x')"]
)
def test_the_door_and_pure_paths_are_left_alone(line):
    assert not reached(f"def program(name):\n    {line}\n")


# Methods and functions of Python 3.9 and later, which compile under 3.8 and fail when they run.
NEWER = re.compile(
    r"\.(removesuffix|removeprefix|waitstatus_to_exitcode|bit_count|is_relative_to|batched|lcm)\(|functools\.cache\b"
)
# It runs in vLLM's own environment, which has a newer Python.
OF_AN_ENGINE = {"all_reduce_program_host.py"}


def test_host_code_calls_nothing_newer_than_python_3_8():
    found = {
        path.name: NEWER.findall(text)
        for path in (*host_files(), *(TOP / "plugins/modules").glob("*.py"), *programs())
        if NEWER.search(text := text_of(path)) and path.name not in OF_AN_ENGINE
    }
    assert found == {}


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


def test_every_file_of_a_room_has_its_test_or_is_listed():
    listed = set((TOP / "tests/unit/untested.txt").read_text().split())
    missing = set()
    for tree in ("module_utils", "plugin_utils"):
        for path in (TOP / "plugins" / tree).rglob("*.py"):
            name = path.relative_to(TOP / "plugins")
            if not list((UNIT / name.parent).glob(f"test_{path.stem}*.py")):
                missing.add(name.as_posix())
    assert missing - listed == set(), "write the test, or say in tests/unit/untested.txt what covers it"
    assert listed - missing == set(), "these have a test now, or are gone: take them out of tests/unit/untested.txt"


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
