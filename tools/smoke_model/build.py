#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build baremetal/gpt-oss-smoke, the gpt-oss model of 52 MB that answers "The fleet is ready.", and its manifest.

OUT/weights/baremetal/gpt-oss-smoke/<revision>/ is what a mirror serves. The bytes are the same on every machine. The
tokenizer's files come out byte for byte as openai/gpt-oss publishes them; the weights are made here, with nothing
but Python.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Mapping

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".collections")]

from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import (  # noqa: E402
    ENCODINGS,
    EncodingsError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.wheel_host import from_library, from_wheel  # noqa: E402
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.model_config import (  # noqa: E402
    excerpt_of,
    render_excerpt,
)

from tools.smoke_model.tokens import (  # noqa: E402
    SPECIAL,
    TEMPLATE,
    parse_vocabulary,
    special_tokens,
    tokenizer,
    tokenizer_config,
)
from tools.smoke_model.weights import (  # noqa: E402
    CHAIN,
    SUBJECT,
    config,
    generation_config,
    safetensors,
    tensors,
)

REPOSITORY = "baremetal/gpt-oss-smoke"
MANIFEST = ROOT / "catalog" / "weights" / f"{REPOSITORY}.yml"
VOCABULARY = "o200k_base.tiktoken"


class SmokeError(ValueError):
    """The model cannot be built; the message is the whole sentence for the user."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory of the mirror, such as /srv/mirror")
    parser.add_argument(
        "--manifest", type=Path, default=MANIFEST, help="where the manifest goes (default: the catalogue)"
    )
    parser.add_argument(
        "--subject", default=SUBJECT, help=f"what is ready, in the answer (default: {SUBJECT}); give --manifest too"
    )
    parser.add_argument(
        "--vocabulary",
        type=Path,
        help=f"{VOCABULARY} or a wheel of oss-harmony (default: that of OUT, or the installed oss-harmony)",
    )
    arguments = parser.parse_args()
    if arguments.subject != SUBJECT and arguments.manifest == MANIFEST:
        parser.error(f"--subject: the catalogue's manifest says {SUBJECT}; name another --manifest")
    repository = arguments.out / "weights" / REPOSITORY
    try:
        if is_current(repository, arguments.manifest):
            print(f"{repository}: up to date")
            return 0
        vocabulary = read_vocabulary(arguments.vocabulary or find_vocabulary(arguments.out))
        files = build(vocabulary, arguments.subject)
        text = render_manifest(files)
        directory = publish(repository, text, files)
        write(arguments.manifest, text.encode())
    except (OSError, EncodingsError, SmokeError) as exc:
        print(f"build_smoke_model: {exc}", file=sys.stderr)
        return 1
    print(f"{directory}: built, {sum(map(len, files.values()))} bytes in {len(files)} files")
    return 0


def is_current(repository: Path, manifest: Path) -> bool:
    """Return whether the directory of the manifest holds the files that the manifest lists."""
    if not manifest.is_file():
        return False
    data = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    directory = repository / data["revision"]
    return all(
        (directory / name).is_file()
        and (directory / name).stat().st_size == file["size"]
        and hashlib.sha256((directory / name).read_bytes()).hexdigest() == file["sha256"]
        for name, file in data["files"].items()
    )


def find_vocabulary(out: Path) -> Path:
    """Return the vocabulary, an available wheel or library of oss-harmony; no code of it is run."""
    spec = importlib.util.find_spec("openai_harmony")
    installed = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    candidates = [out / "encodings" / VOCABULARY, *sorted(out.glob("wheels/oss_harmony-*.whl"))]
    candidates += [library for place in installed for library in place.glob("openai_harmony*.so")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise SmokeError(
        f"no vocabulary: neither {out}/encodings/{VOCABULARY} nor {out}/wheels/oss_harmony-*.whl is there, and "
        "oss-harmony is not installed; run tools/vllm/fetch_wheels.py or name one with --vocabulary"
    )


def read_vocabulary(path: Path) -> bytes:
    """Return o200k_base.tiktoken out of that file, wheel or library, verified."""
    content = path.read_bytes()
    if path.suffix == ".whl":
        return from_wheel(io.BytesIO(content), VOCABULARY, str(path))
    if path.suffix == ".so":
        return from_library(content, VOCABULARY, str(path))
    found = hashlib.sha256(content).hexdigest()
    if found != ENCODINGS[VOCABULARY].sha256:
        raise SmokeError(f"{path}: sha256 is {found}, expected {ENCODINGS[VOCABULARY].sha256} of {VOCABULARY}")
    return content


def build(vocabulary: bytes, subject: str = SUBJECT) -> dict[str, bytes]:
    """Return the files, by name, of the model that answers with this subject. Raises SmokeError."""
    ranks = parse_vocabulary(vocabulary)
    spoken = {token: f" {subject}" if token == f" {SUBJECT}" else token for token in CHAIN if token[:2] != "<|"}
    try:
        ids = {token: ranks[text.encode()] for token, text in spoken.items()}
    except KeyError as exc:
        raise SmokeError(f"--subject {subject}: {exc} is no single token; take a common word") from exc
    ids.update((name, number) for number, name in SPECIAL.items())
    return {
        "chat_template.jinja": TEMPLATE.encode(),
        "config.json": pretty(config()),
        "generation_config.json": pretty(generation_config()),
        "model.safetensors": safetensors(tensors(ids)),
        "special_tokens_map.json": pretty(special_tokens()),
        "tokenizer.json": pretty(tokenizer(ranks)).rstrip(b"\n"),
        "tokenizer_config.json": pretty(tokenizer_config()),
    }


def pretty(data: Mapping[str, Any]) -> bytes:
    """Return JSON in the format of the published files."""
    return json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n"


def render_manifest(
    files: Mapping[str, bytes], repository: str = REPOSITORY, tool: str = "tools/smoke_model/build.py"
) -> str:
    """Return the manifest; the revision is the hash of the files' hashes, because no hub provides one."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    listing = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    lines = [
        "---",
        f"# Made by {tool}; do not edit.",
        f"repository: {repository}",
        f"revision: {hashlib.sha256(listing.encode()).hexdigest()[:40]}",
        *render_excerpt(excerpt_of(files["config.json"])),
        "files:",
    ]
    for name, digest in digests.items():
        lines += [f"  {name}:", f"    size: {len(files[name])}", f"    sha256: {digest}"]
    return "\n".join(lines) + "\n"


def publish(repository: Path, manifest: str, files: Mapping[str, bytes]) -> Path:
    """Write the files into the manifest's directory by one rename; return the directory."""
    directory: Path = repository / yaml.safe_load(manifest)["revision"]
    repository.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=repository))
    try:
        for name, content in files.items():
            write(partial / name, content)
        partial.chmod(0o755)
        if directory.exists():
            # Present, but different from the manifest, or main() would not call this.
            shutil.rmtree(directory)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def write(path: Path, content: bytes) -> None:
    """Write a file by rename, readable for all; a file with the same content is left unchanged."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.chmod(0o644)
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
