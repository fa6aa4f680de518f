# SPDX-License-Identifier: GPL-3.0-or-later
"""Every block of commands in the documentation is run here as a user types it, or says above it why not.

A comment above a block says that it is not run here: `<!-- not run: REASON -->`, or `<!-- run by: FILE -->` for a test
elsewhere. All other blocks of a page are run one after the other in one shell, in an empty home, without a network; the
page's blocks of YAML whose first line names a file become these files. A command has to end with 0 and to print the
lines that the page shows below it; `...` stands for any text or lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
PAGES = sorted(
    page
    for pattern in ("README.md", "CONTRIBUTING.md", "plugins/README.md", "docs/**/*.md", "roles/*/README.md")
    for page in TOP.glob(pattern)
)
URL = "https://github.com/baremetal-inference/baremetal.inference"
BLOCK = re.compile(
    r"^(?: *<!-- (?P<how>not run|run by): (?P<why>[^\n]+?) -->\n+)?"
    r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ((?:inventor|group_vars|host_vars|/)\S*\.yml)\b")
TIMEOUT = 900  # a command of these takes seconds; a busy machine is no reason to fail


@dataclass
class Block:
    kind: str
    text: str
    how: str
    why: str

    @property
    def is_commands(self) -> bool:
        """Whether a reader is to type something of it; a console without a prompt only shows what is printed."""
        return self.kind in ("sh", "bash") or (self.kind == "console" and bool(commands(self.text)))


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, without the indentation of those within lists."""
    return [
        Block(
            found["kind"],
            re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found["how"] or "",
            found["why"] or "",
        )
        for found in BLOCK.finditer(text)
    ]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console, with the lines that it has to print."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:
            found[-1][1].append(line)
    return found


def problems(text: str) -> list[str]:
    """Return why blocks of commands could neither be run nor left out."""
    found = []
    for block in blocks(text):
        first = block.text.partition("\n")[0]
        if block.how == "run by":
            found += [f"{first}: {name} does not exist" for name in block.why.split(", ") if not (TOP / name).exists()]
        elif block.is_commands and block.kind != "console" and not block.how:
            found.append(f"{first}: only a console with `$ ` is run; mark the block with the reason")
        lines = [line for line, _shown in commands(block.text)]
        found += [f"{line}: two commands in one line" for line in lines if re.search(r" {2,}\$ ", line)]
    return found + [f"{line}: an indented command is not run; put it into a console" for line in indented(text)]


def indented(text: str) -> list[str]:
    """Return the first lines of indented blocks that a reader would type; those with brackets show the syntax."""
    text = BLOCK.sub("", text)
    found = re.findall(r"(?:\A|\n\n) {4}((?:\w+=\S+ )?(?:ansible|curl|make|tools/|bin/)[^\n]*)", text)
    return [line for line in found if "[" not in re.sub(r"\{.*?\}", "", line)]


def script(text: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """Return a page as a script of bash, and the commands in it with what each has to print."""
    parts, expected = [], []
    for block in blocks(text):
        file = FILE.match(block.text)
        if block.kind == "yaml" and file:
            parts.append(f"mkdir -p {Path(file[1]).parent}\ncat > {file[1]} <<'END-OF-FILE'\n{block.text}END-OF-FILE\n")
        elif block.is_commands and not block.how:
            for command, printed in commands(block.text):
                number = len(expected)
                expected.append((command, printed))
                parts.append(f"printf '\\n=== {number}\\n'\n{{\n{command}\n}} || exit\n")
    return "".join(parts), expected


def pattern(line: str) -> str:
    """Return what fits a line that a page shows; `...` fits any lines, or any part of a line."""
    return r"(?:.*\n)*?" if line == "..." else re.escape(line.rstrip()).replace(re.escape("..."), ".*") + r" *\n"


class Machine:
    """A user's machine: an empty home, a checkout, git's way to it, Ansible on the path, and no network."""

    def __init__(self, top: Path, committed: Path) -> None:
        self.home, self.tmp, self.checkout = top / "home", top / "tmp", top / "checkout"
        for path in (self.home, self.tmp):
            path.mkdir(parents=True)
        subprocess.run(["cp", "-a", committed, self.checkout], check=True)
        (self.home / ".gitconfig").write_text(
            f'[url "{self.checkout}"]\n  insteadOf = {URL}\n[safe]\n  directory = *\n'
        )
        (self.checkout / ".venv").symlink_to(Path(sys.prefix))

    def run(self, text: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a script as this user."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=cwd,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.tmp),
            "ANSIBLE_NOCOLOR": "1",
            # Whatever asks a network gets an error at once; pip finds what it is to install in the tests' environment.
            **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONPATH": sysconfig.get_path("purelib"),
        }


def run_page(machine: Machine, text: str) -> None:
    """Run the blocks of a page; where it clones the repository, it begins in the home, else in the checkout."""
    # Its /tmp is its own directory.
    source, expected = script(text.replace("/tmp/", f"{machine.tmp}/"))
    done = machine.run(source, machine.home if f"git clone {URL}" in source else machine.checkout)
    parts = re.split(r"\n=== \d+\n", done.stdout)[1:]
    told = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, f"{expected[len(parts) - 1][0] if parts else 'the files'}\n{told}"
    for (command, shown), printed in zip(expected, parts):
        wanted = "".join(map(pattern, shown))
        assert not shown or re.fullmatch(wanted, printed.rstrip("\n") + "\n"), f"{command}\nprinted:\n{printed}"


# Its commands are those of README.md up to the inventory, which tests/unit/inventories/test_tutorials.py renders. The
# virtual environment takes longer than all else.
LONG = TOP / "docs/start/gpu-server.md"
RUN = [page for page in PAGES if script(page.read_text(encoding="utf-8"))[1]]


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """The files of the working tree, changed ones too, committed into its own repository."""
    names = subprocess.run(
        ["git", "-C", TOP, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, check=True
    )
    found = [os.fsdecode(name) for name in names.stdout.split(b"\0") if name]
    there = [os.fsencode(name) for name in found if os.path.lexists(TOP / name)]
    checkout = tmp_path_factory.mktemp("committed")
    subprocess.run(["rsync", "-a", "--from0", "--files-from=-", f"{TOP}/", checkout],
                   input=b"\0".join(there), check=True)  # fmt: skip
    for words in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "All of it"]):
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
        subprocess.run(["git", "-C", checkout, *who, *words], check=True)
    return checkout


@pytest.fixture
def machine(tmp_path, committed):
    return Machine(tmp_path, committed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long if page == LONG else ()) for page in RUN],
    ids=lambda page: page.relative_to(TOP).as_posix(),
)
def test_the_commands_of_a_page_do_what_it_shows(page, machine):
    run_page(machine, page.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_collection_installs_from_its_checkout_and_is_found_from_anywhere(machine):
    """Twice, as after `git pull`; the link in the checkout, which its ansible.cfg names, is never in the way."""
    (line,) = re.findall(r"^\$ (ansible-galaxy collection install .+)$", (TOP / "README.md").read_text(), re.MULTILINE)
    for _time in range(2):
        done = machine.run(line, machine.checkout)
        assert done.returncode == 0 and "was installed successfully" in done.stdout, done.stdout + done.stderr
    home = machine.home / ".ansible/collections/ansible_collections/baremetal/inference"
    assert json.loads((home / "MANIFEST.json").read_text())["collection_info"]["name"] == "inference"
    assert not [name for name in ("tests", "molecule", ".venv", ".collections", "Makefile") if (home / name).exists()]
    for cwd, inventory in ((machine.home, home / "inventories/example"), (machine.checkout, "inventories/example")):
        # Only the checkout has an ansible.cfg.
        own = "" if cwd == machine.checkout else "ANSIBLE_INJECT_FACT_VARS=false "
        done = machine.run(f"{own}ansible-playbook -i {inventory} baremetal.inference.explain -l gpu-a-01", cwd)
        assert done.returncode == 0 and "gpu-a-01" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_every_block_of_commands_is_run_or_says_why_not(page):
    assert problems(page.read_text(encoding="utf-8")) == []


def test_pages_are_run():
    assert TOP / "README.md" in RUN and TOP / "docs/start/gpu-server.md" in RUN and len(RUN) > 4


def test_a_block_that_could_not_be_run_is_found():
    page = (
        "```sh\nls\n```\n\n<!-- run by: tests/gone.py -->\n```console\n$ ls\n```\n\n"
        "<!-- not run: why -->\n```sh\nls\n```\n\n<!-- not run: why -->\n```console\n$ ls   $ pwd\n```\n"
    )
    assert problems(page) == [
        "ls: only a console with `$ ` is run; mark the block with the reason",
        "$ ls: tests/gone.py does not exist",
        "ls   $ pwd: two commands in one line",
    ]


def test_an_indented_command_is_found_and_a_synopsis_is_not():
    page = "Run:\n\n    ansible-playbook site.yml\n\nOr:\n\n    ansible-playbook site.yml [--check]\n\n    key: value\n"
    assert problems(page) == ["ansible-playbook site.yml: an indented command is not run; put it into a console"]


PAGE = """1. In a list:

   ```yaml
   # inventory/hosts.yml
   a: 1
   ```

   ```console
   $ cat inventory/hosts.yml \\
       && pwd   # a comment
   # inventory/hosts.yml
   a: 1
   .../checkout
   $ {second}
   ```

<!-- not run: it would fail -->
```console
$ false
```
"""


@pytest.mark.slow
@pytest.mark.parametrize("second", ["true && false", "echo other\nshown"])
def test_a_command_that_fails_or_prints_something_else_is_found(machine, second):
    run_page(machine, PAGE.replace("{second}", "echo good && cd ~"))
    with pytest.raises(AssertionError, match=re.escape(second.partition("\n")[0])):
        run_page(machine, PAGE.replace("{second}", second.replace("\n", "\n   ")))
