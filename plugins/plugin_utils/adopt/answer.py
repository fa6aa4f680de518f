# SPDX-License-Identifier: GPL-3.0-or-later
"""From the text of a command to the answer of adopt.yml."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...module_utils.common.spelling import nearest
from ..catalog.accelerators import load_catalogue
from ..catalog.files import load_release
from ..catalog.option_tables import load_foreign, load_replaced, load_table, other_tables
from ..fleet.trial import Bench
from ..options.secret_names import is_secret
from ..planning.inputs import UnknownNameError
from ..planning.runtime import DEFAULT_RELEASES
from .comparison import HOSTS, Compared, compare
from .entry import Adopted, Release, adopt
from .forms import read_start
from .page import adopted_text, variables_of
from .redaction import redact
from .replacements import leaves
from .shell import MOST_BYTES, CommandError
from .start import Start

# Each that is unknown is compared with all flags and variables of vLLM.
MOST_WORDS = 600
# The stack of a command without an image, by the beginning of a variable.
_OF_VARIABLE = {
    "ASCEND_": "cann",
    "HCCL_": "cann",
    "VLLM_ASCEND_": "cann",
    "HIP_": "rocm",
    "VLLM_ROCM_": "rocm",
    "VLLM_CPU_": "cpu",
}


@dataclass(frozen=True)
class AdoptRequest:
    """The options of adopt.yml."""

    command: str = ""
    file: str = ""
    name: str = "chat"
    model: str = ""
    release: str = ""
    accelerator: str = ""
    service: str = ""
    recipe_path: list[str] = field(default_factory=list)
    release_path: list[str] = field(default_factory=list)
    weights_manifest_path: list[str] = field(default_factory=list)
    accelerator_catalog_path: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the text of the command, or of its file. Raises CommandError."""
        if bool(self.command) == bool(self.file):
            raise CommandError(
                "found "
                + ("both of command and adopt_file" if self.file else "neither command nor adopt_file")
                + ", expected one: -e adopt_file=FILE, or -e command=\"'docker run ...'\""
            )
        if self.file:
            return _read(Path(self.file).expanduser())
        if len(self.command.split()) == 1:
            raise CommandError(
                f"command: found the word {self.command!r} alone, because -e ends a value at a blank; write -e "
                "\"command='docker run ...'\", or put the command into a file: -e adopt_file=FILE"
            )
        return self.command


def _read(path: Path) -> str:
    try:
        # A pipe or a device would not end.
        if path.exists() and not path.is_file():
            raise CommandError(f"adopt_file: {path} is not a file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise CommandError(f"adopt_file: {path} has more than {MOST_BYTES:,} bytes, expected a command")
        return data.decode("utf-8")
    except OSError as exc:
        raise CommandError(f"adopt_file: {path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise CommandError(f"adopt_file: {path} is not text: byte {exc.start} is not UTF-8") from exc


def answer(request: AdoptRequest, text: str) -> dict[str, Any]:
    """Return the text to print, the variables, the names of the secrets, and what is left out. Raises CommandError."""
    _start, adopted, compared = adopted_plan(request, text)
    variables = variables_of(request.name, adopted, compared, request.release)
    return {
        "text": adopted_text(variables, adopted, compared),
        "instances": variables["vllm_instances"],
        "secrets": adopted.secrets,
        "left_out": [{"word": word, "reason": reason} for word, reason in adopted.left_out],
        "recipe": compared.recipe,
        "problem": compared.problem,
    }


def adopted_plan(request: AdoptRequest, text: str) -> tuple[Start, Adopted, Compared]:
    """Return what starts vLLM in a text, the entry for it, and its plan. Raises CommandError."""
    start = read_start(text, request.service)
    words = sum(map(len, (start.words, start.env, start.container, start.lost)))
    if words > MOST_WORDS:
        raise CommandError(f"found {words:,} words, options and variables, expected at most {MOST_WORDS}")
    stack = _stack(start, request)
    release = request.release or DEFAULT_RELEASES[stack]
    try:
        version = str(load_release(release, request.release_path)["vllm"])
    except UnknownNameError as exc:
        raise CommandError(f"adopt_release: {exc}") from exc
    others, replaced = other_tables(version), load_replaced()
    adopted = adopt(start, Release(load_table(version), others, load_foreign(stack), replaced), request.model)
    _take_out_secrets(adopted, text)
    if reason := _difference(start, version):
        adopted.left_out.insert(0, (start.package or start.image, reason))
    paths = {key: getattr(request, key) for key in ("recipe_path", "release_path", "weights_manifest_path")}
    bench = Bench(load_catalogue(request.accelerator_catalog_path), release, paths)
    return start, adopted, compare(adopted, bench, request.accelerator or _host(start, stack), version, request.name)


def _difference(start: Start, version: str) -> str:
    """Return what an entry for this version of vLLM has not of the image or package of a start, "" where it is that."""
    if start.derived:
        inside = f"vLLM {start.version}" if start.version else "nothing says which release of vLLM"
        return (
            f"no image of vLLM's own; it may have other defaults, and {inside} is in it; the entry is for vLLM's image "
            f"of {version}; set vllm_image to keep it"
        )
    if start.version and start.version != version:
        return f"vLLM {start.version}; the entry is for {version} (vllm_release; drift.yml compares the two)"
    return ""


def _take_out_secrets(adopted: Adopted, text: str) -> None:
    """Leave out arguments with a secret in them, which the printed entry would not have, and make variables secrets."""
    args, env = (adopted.instance.get(part) or {} for part in ("args", "env"))
    printed = redact({"args": args, "env": env}, text)
    for name in [name for name, value in args.items() if printed["args"][name] != value or _holds_secret(name, value)]:
        del args[name]
        adopted.left_out.append((f"--{name}", "holds a secret, which is not printed; add it to args yourself"))
    for name in [name for name, value in env.items() if printed["env"][name] != value]:
        del env[name]
        adopted.secrets.append(name)


def _holds_secret(name: str, value: Any) -> bool:
    return any(len(path) > 1 and is_secret(path[-1], leaf) for path, leaf in leaves((name,), value))


def _stack(start: Start, request: AdoptRequest) -> str:
    """Return the stack of a start: of the requested host, the image or a variable; else that of NVIDIA."""
    if request.accelerator:
        models = load_catalogue(request.accelerator_catalog_path).models
        name = request.accelerator.partition(":")[0]
        if name == HOSTS["cpu"]:
            return name
        if name not in models:
            raise CommandError(f"adopt_accelerator: unknown accelerator {name!r}; {nearest(name, models)}")
        return str(models[name].stack)
    of_variables = (stack for begin, stack in _OF_VARIABLE.items() if any(name.startswith(begin) for name in start.env))
    return start.stack or next(of_variables, "cuda")


def _host(start: Start, stack: str) -> str:
    return "ascend_a3" if stack == "cann" and "-a3" in start.image else HOSTS[stack]
