# SPDX-License-Identifier: GPL-3.0-or-later
"""What root reads, writes or touches where another user could have placed something goes through one door,
module_utils/common/foreign_files_host.py."""

from __future__ import annotations

import ast
import gc
from functools import lru_cache

import pytest
import yaml

from tests.fakes.foreign_paths import Search, given_to, is_program, read
from tests.fakes.sources import named, text_of
from tests.unit.test_layout import TOP, host_files, programs

WAYS_TO_OPEN = {
    "open", "os.open", "os.utime", "os.mknod", "os.mkfifo", "os.truncate", "text_of", "bytes_of", "sha256_of",
    "publish", "create", "touch", "read_text", "read_bytes", "write_text", "write_bytes", "copy", "copy2", "copyfile",
    "copytree", "move", "sqlite3.connect",
}  # fmt: skip

ENGINE = "vLLM's own user, in its own directory"
# Who reaches a directory of another user by a path all the same, and why that is safe.
REACHES = {
    "module_utils/endpoint/instance_adapters_host.py::Instance.apply": "asks whether a directory in root's is there",
    "module_utils/evaluation/run_host.py::lock_instance": "a lock in /run/vllm itself, which is root's",
    "module_utils/instance/listener_host.py::processes_of": "the owner of a directory in root's",
    "module_utils/instance/scale_door_host.py::wake_all": "lists /run/vllm itself, which is root's",
    "module_utils/middleware/availability_host.py::Availability.__call__": ENGINE,
    "module_utils/middleware/availability_host.py::Availability._describe": ENGINE,
    "module_utils/middleware/availability_host.py::Availability._unhealthy": ENGINE,
    "module_utils/middleware/hold_host.py::Hold.active": ENGINE,
    "module_utils/middleware/operator_host.py::Guard.knows": ENGINE,
    "module_utils/middleware/usage_host.py::Usage._tell": ENGINE,
    "module_utils/mirror/bundle_host.py::read_notes": "a carried disk, of which only regular files are opened",
    "module_utils/removal/inspect_host.py::Inspection._revisions": "only whether there is a stamp",
    "module_utils/removal/inspect_host.py::Inspection.base_paths": "only whether there is something",
    "module_utils/removal/inspect_host.py::Inspection.read": "sizes, of which no link is followed",
    "module_utils/removal/inspect_host.py::Inspection.settings": "only whether there is something",
    "module_utils/removal/inspect_host.py::Inspection.services": "sizes, of which no link is followed",
    "module_utils/residents/member_host.py::Member.call": "asks whether a directory in root's is there",
    "module_utils/slots/caches_host.py::Cache._fetch": "a new directory in root's; a process of its owner unpacks",
    "module_utils/slots/caches_host.py::Cache._write": "in a process of the owner",
    "module_utils/slots/caches_host.py::Cache.is_empty": "only whether there is something",
    "module_utils/slots/restore_host.py::_weights_trouble": "only whether there are files, and their sizes",
    "module_utils/usage/records_host.py::Records._keep_newest": ENGINE,
    "module_utils/usage/records_host.py::Records._open": ENGINE,
    "module_utils/usage/records_host.py::Records.names": ENGINE,
    "module_utils/usage/records_host.py::Records.read": ENGINE,
    "module_utils/weights/retention_host.py::_list_directories": "the time of a stamp, without following links",
    "module_utils/weights/retention_host.py::mark_served": "the time of a stamp, without following links",
    "module_utils/weights/scrub_run_host.py::_awaits_download": "only whether there is a stamp",
    "module_utils/weights/scrub_run_host.py::withdraw": "the time of a stamp, without following links",
    "modules/vllm_preflight.py::main": "the free room of a file system",
}


@lru_cache(maxsize=None)
def texts():
    """Return the sources that run on hosts, by their names below plugins/ or the checkout."""
    paths = [*host_files(), *sorted((TOP / "plugins/modules").glob("*.py")), *programs()]
    return {path.relative_to(TOP).as_posix().removeprefix("plugins/"): text_of(path) for path in paths}


@lru_cache(maxsize=None)
def product():
    """Return the search in these sources. To search its trees for garbage would take as long as to make them."""
    gc.disable()
    try:
        return Search(texts())
    finally:
        gc.freeze()
        gc.enable()


def opens_of(source):
    """Return the functions of a file that open files by themselves, with their calls.

    A function that is passed on or given another name, `partial(open, ...)`, counts as called, and so does a program
    that follows links.
    """
    found = {}
    for body in source.bodies:
        for node in body.nodes:
            values = [node.func, *given_to(node)] if isinstance(node, ast.Call) else [getattr(node, "value", None)]
            ways = [named(each) for each in values if isinstance(each, (ast.Name, ast.Attribute, ast.Call))]
            for way in [each for each in ways if is_way(each)]:
                found.setdefault(body.name, []).append(way)
            words = getattr(node, "elts", [])
            if is_program(words) and not all(isinstance(each, ast.Constant) for each in words):
                found.setdefault(body.name, []).append(ast.unparse(words[0]))
    return found


def is_way(name):
    """Return whether a function opens a file."""
    owner, _dot, method = name.rpartition(".")
    is_own = owner in ("os", "self", "sqlite3") or "marks" in owner or "place" in owner
    return (name if is_own else method) in WAYS_TO_OPEN


def test_files_are_opened_by_the_door_or_belong_to_nobody_else():
    reasons = yaml.safe_load((TOP / "tests/unit/opens.yml").read_text())
    listed = {f"{file}::{name}" for files in reasons.values() for file, names in files.items() for name in names}
    found = {f"{file}::{name}" for file, source in product().sources.items() for name in opens_of(source)}
    assert found - listed == set(), (
        "use common/foreign_files_host.py, or say in tests/unit/opens.yml why nobody else could have placed the file"
    )
    assert listed - found == set(), "these open nothing any longer: take them out of tests/unit/opens.yml"


def test_what_lies_in_a_directory_of_another_user_is_reached_by_the_door_alone():
    found = product().findings()
    assert {name: lines for name, lines in found.items() if name not in REACHES} == {}, (
        "use ForeignDirectory of common/foreign_files_host.py"
    )
    assert set(REACHES) - set(found) == set(), "these do it no longer: take them out of the table"


def reached(text, **others):
    """Return the findings in a file of a room, beside other files."""
    files = {f"module_utils/room/{name}.py": source for name, source in others.items()}
    return Search({"module_utils/room/program_host.py": text, **files}).findings()


WAYS = [
    "open(f'{RUN_DIR}/{name}/ready')",
    "io.open(f'{CACHE_DIR}/{name}/usage')",
    "with open(os.path.join(CACHE_DIR, name, 'x'), 'w') as file: pass",
    "Path(RUN_DIR, x).touch()",
    "Path(RUN_DIR, x).read_text()",
    "(Path(RUN_DIR) / name / 'ready').write_text('')",
    "Path(CACHE_DIR).joinpath(name, 'x').open()",
    "Path(f'/var/cache/vllm/{name}').unlink()",
    "os.open(f'{RUN_DIR}/{name}/ready', os.O_RDONLY)",
    "os.stat(f'{RUN_DIR}/{name}/ready')",
    "os.listdir(RUN_DIR + '/' + name)",
    "os.chown('/run/vllm/%s/ready' % name, 0, 0)",
    "os.replace(beside, f'{RUN_DIR}/{name}/ready')",
    "os.unlink(f'/run/vllm/{name}/ready')",
    "os.unlink('/run/vllm/{}/ready'.format(name))",
    "os.path.exists(os.path.join(directory, READY))",
    "shutil.copyfile(source, f'{RUN_DIR}/{name}/ready')",
    "shutil.rmtree(f'{CACHE_DIR}/{name}')",
    "glob.glob(f'{CACHE_DIR}/{name}/*')",
    "subprocess.run(['cat', f'{RUN_DIR}/{name}/ready'], check=True)",
    "subprocess.run(f'cp x {CACHE_DIR}/{name}', shell=True)",
    "sqlite3.connect(f'{CACHE_DIR}/{name}/usage.db')",
    "os.makedirs(os.path.join(module.params['cache_dir'], name))",
    "path = f'{RUN_DIR}/{name}'\n    shutil.rmtree(path)",
    "place = Path(RUN_DIR) / name\n    place.read_text()",
    "for path in (Path(CACHE_DIR) / name).iterdir():\n        path.unlink()",
    "for path in [f'{RUN_DIR}/{each}' for each in names]:\n        open(path)",
    "one, other = '/etc', f'{CACHE_DIR}/{name}'\n    os.utime(other)",
    "helper(f'{RUN_DIR}/{name}')\n\ndef helper(path):\n    open(path)",
    "functools.partial(open, f'{RUN_DIR}/{name}/ready')()",
    "partial(os.unlink, f'{RUN_DIR}/{name}/ready')()",
    "read = functools.partial(open, encoding='utf-8')\n    read(f'{RUN_DIR}/{name}/ready')",
    "getattr(os, 'open')(f'{RUN_DIR}/{name}/ready', 0)",
    "getattr(os, way)(f'{RUN_DIR}/{name}/ready')",
    "getattr(Path(RUN_DIR, name), 'read_text')()",
    "list(map(Path.unlink, Path(CACHE_DIR, name).iterdir()))",
    "Timer(1, Path(RUN_DIR, name, 'ready').unlink).start()",
    "way = getattr(os, 'stat')\n    way(f'{RUN_DIR}/{name}/ready')",
    "way = open\n    way(f'{RUN_DIR}/{name}/ready')",
    "self.way = os.listdir\n    self.way(f'{RUN_DIR}/{name}')",
    "list(map(os.unlink, [f'{RUN_DIR}/{each}' for each in names]))",
    "Thread(target=os.unlink, args=(f'{RUN_DIR}/{name}/ready',)).start()",
    "sorted([f'{RUN_DIR}/{each}' for each in names], key=os.path.getmtime)",
    "module.run_command(['vllm', f'{RUN_DIR}/{name}/ready'])",
    "module.run_command(f'cat {RUN_DIR}/{name}/ready')",
    "module.run_command('cat %s' % os.path.join(RUN_DIR, name))",
    "module.run_command([module.get_bin_path('cat'), f'{RUN_DIR}/{name}/ready'])",
    "self._run(['/bin/chown', '-R', user, f'{CACHE_DIR}/{name}'])",
    "run(['tar', '-xf', archive, '-C', f'{CACHE_DIR}/{name}'])",
    "words = ('mv', '--', source, f'{CACHE_DIR}/{name}')\n    anything(words)",
    "words = ['cat']\n    words.append(f'{RUN_DIR}/{name}/ready')\n    self._run(words)",
    "run(['nice', '-n', '19', 'install', '-m', '600', source, f'{CACHE_DIR}/{name}/x'])",
    "self.at('touch', f'{RUN_DIR}/{name}/ready')",
    "module.atomic_move(source, f'{CACHE_DIR}/{name}/x')",
    "self.module.set_mode_if_different(f'{RUN_DIR}/{name}/ready', 0o644, False)",
    "socket.socket(socket.AF_UNIX).connect(f'{RUN_DIR}/{name}/socket')",
    "asyncio.create_subprocess_exec('cat', f'{RUN_DIR}/{name}/ready')",
    "open(place_of(name))\n\ndef place_of(name):\n    return f'{RUN_DIR}/{name}/ready'",
]


@pytest.mark.parametrize("line", WAYS)
def test_a_planted_call_in_a_directory_of_another_user_is_found(line):
    assert reached(f"import os\n\ndef program(name):\n    {line}\n")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (
            "from .other import show\n\ndef program(name):\n    show(f'{RUN_DIR}/{name}')\n",
            "def show(path):\n    open(path)\n",
        ),
        (
            "from .other import at\n\ndef program(name):\n    open(at(name))\n",
            "def at(name):\n    return f'{RUN_DIR}/{name}'\n",
        ),
        ("import os as system\n\ndef program(name):\n    system.stat(f'{RUN_DIR}/{name}')\n", ""),
        (
            "class A:\n    def __init__(self):\n        self._do = partial(run, text=True)\n\n"
            "    def program(self, name):\n        self._do(['cp', f'{RUN_DIR}/{name}/x', '/etc/x'])\n",
            "",
        ),
        ("from os import stat\n\ndef program(name):\n    stat(f'{RUN_DIR}/{name}')\n", ""),
        (
            "class Place:\n    def __init__(self, name):\n        self.top = f'{CACHE_DIR}/{name}'\n\n"
            "    def size(self):\n        return len(open(self.top).read())\n",
            "",
        ),
        (
            "from .other import Place\n\ndef program(name):\n    Place(f'{CACHE_DIR}/{name}').size()\n",
            "class Place:\n    def __init__(self, top):\n        self.top = top\n\n"
            "    def size(self):\n        return len(open(self.top).read())\n",
        ),
    ],
    ids=["helper", "maker", "other name", "runner", "bare name", "attribute", "object"],
)  # fmt: skip
def test_a_path_is_followed_through_functions_objects_and_files(text, other):
    assert reached(text, other=other)


@pytest.mark.parametrize(
    "line",
    [
        "ForeignDirectory(f'{RUN_DIR}/{name}').touch(READY)", "os.path.join(RUN_DIR, name)", "open('/run/vllm-x')",
        "place = ForeignDirectory(f'{CACHE_DIR}/{name}')\n    place.remove('x')", "f'{RUN_DIR}'.replace('/', '-')",
        "path, other = f'{RUN_DIR}/{name}', '/etc/x'\n    open(other)",
        "functools.partial(print, f'{RUN_DIR}/{name}')", "getattr(options, 'path')(f'{RUN_DIR}/{name}')",
        "self._run(['systemctl', 'cat', f'vllm@{name}.service'])", "fail(f'cat {RUN_DIR}/{name} fails')",
        "show(os.sep, os.O_RDONLY, os.environ, f'{RUN_DIR}/{name}')", "place = {'stat': f'{RUN_DIR}/{name}'}",
    ],
)  # fmt: skip
def test_the_door_and_pure_paths_are_left_alone(line):
    assert not reached(f"import os\n\ndef program(name):\n    {line}\n")


def test_a_planted_opening_is_listed_with_its_function():
    text = "class A:\n    def b(self):\n        return Path('x').read_text()\n"
    assert opens_of(read("modules/a.py", text)) == {"A.b": ["Path('x').read_text"]}


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("functools.partial(open, path)", "open"), ("getattr(os, 'open')(path)", "os.open"), ("way = open", "open"),
        ("map(os.utime, paths)", "os.utime"), ("do(target=path.read_text)", "path.read_text"),
        ("run(['chown', user, path])", "'chown'"), ("words = ('nice', '/bin/cat', path)", "'nice'"),
    ],
)  # fmt: skip
def test_a_planted_opening_by_another_name_is_listed(line, way):
    assert opens_of(read("modules/a.py", f"def f(path):\n    {line}\n")) == {"f": [way]}


@pytest.mark.parametrize("line", ["show('install', path)", "for name in ('install', 'test'): pass", "self._cat(path)"])
def test_words_that_are_no_command_are_left_alone(line):
    assert opens_of(read("modules/a.py", f"def f(path):\n    {line}\n")) == {}
