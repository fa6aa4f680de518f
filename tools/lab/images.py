# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the lab's hosts, built with mmdebstrap from this controller's own package sources."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.lab.plan import Lab, LabError, Recipe, apt_entries, apt_options, certificates_of, debian_sources
from tools.lab.podman import HELD, TOP, locked, podman, run, say, write

IMAGE_SCRIPT = TOP / "tools" / "lab" / "image.sh"
# A mirror of Debian may refuse a request, or change while it is read. Both pass.
BUILD_ATTEMPTS = 3
BUILD_PAUSE_SECONDS = 20


def read_recipe(release: str) -> Recipe:
    """Return the recipe of a release's image on this controller."""
    entries = [entry for path in apt_files() for entry in apt_entries(path.read_text())]
    entries = [{**entry, "uris": expand_mirrors(entry["uris"])} for entry in entries]
    own = os_release().get("VERSION_CODENAME", "") if os_release().get("ID") == "debian" else ""
    sources = debian_sources(entries, own, release) if own else []
    options = apt_options(run(["apt-config", "dump"]))
    return Recipe(release, tuple(sources), tuple(options), tuple(site_certificates()), IMAGE_SCRIPT.read_text())


def apt_files() -> list[Path]:
    directory = Path("/etc/apt")
    found = [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]
    return [path for path in found if path.is_file() and path.suffix in (".list", ".sources")]


def expand_mirrors(uris: str) -> str:
    """Return URIs with lists of mirrors (Debian's cloud images use them) replaced by the first mirror of each list."""
    expanded = []
    for uri in uris.split():
        path = Path("/", uri.removeprefix("mirror+file:").lstrip("/"))
        listed = path.read_text().split() if uri.startswith("mirror+file:") and path.is_file() else [uri]
        expanded += listed[:1]
    return " ".join(expanded)


def os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _equals, value in (line.partition("=") for line in lines)}


def site_certificates() -> list[str]:
    """Return the certificates that this controller trusts and a new Debian does not."""
    chosen = os.environ.get("LAB_CA_FILE", "")
    if chosen == "none":
        return []
    if chosen:
        found = certificates_of(Path(chosen).read_text())
        if not found:
            raise LabError(f"LAB_CA_FILE={chosen}: there is no PEM certificate in it.")
        return found
    own = sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
    bundle = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    trusted = [text for path in (*own, bundle) if path.is_file() for text in certificates_of(path.read_text())]
    common = Path("/usr/share/ca-certificates").rglob("*.crt")
    public = {text for path in common for text in certificates_of(path.read_text())}
    return sorted(set(trusted) - public)


def ensure_image(lab: Lab, release: str) -> str:
    """Return the image of a release, built and imported if it is missing."""
    recipe = read_recipe(release)
    tag = f"{lab.images}:{release}-{recipe.key}"
    if has_image(tag):
        return tag
    with locked(lab.cache / "lock", "images"):
        tarball = lab.cache / f"{release}-{recipe.key}.tar"
        if not tarball.exists():
            build_image(lab, recipe, tarball)
        if not has_image(tag):
            say(f"image {release}: importing it into podman")
            podman("import", "--quiet", str(tarball), tag)
        forget_old_images(lab, release, keep=tarball)
    return tag


def has_image(tag: str) -> bool:
    return subprocess.run(["podman", "image", "exists", tag], check=False).returncode == 0


def build_image(lab: Lab, recipe: Recipe, tarball: Path) -> None:
    """Build a root file system, with further attempts where that fails."""
    for attempt in range(1, BUILD_ATTEMPTS + 1):
        try:
            attempt_build(lab, recipe, tarball)
            return
        except LabError as exc:
            if attempt == BUILD_ATTEMPTS:
                raise
            say(
                f"image {recipe.release}: attempt {attempt} of {BUILD_ATTEMPTS} failed; the next one is in "
                f"{BUILD_PAUSE_SECONDS} s.\n{exc}"
            )
            time.sleep(BUILD_PAUSE_SECONDS)


def attempt_build(lab: Lab, recipe: Recipe, tarball: Path) -> None:
    """Build a root file system with mmdebstrap, which ends when this process is killed."""
    scratch = lab.cache / "scratch"
    # One file system only: mounts that a killed build left must not be followed.
    run(["rm", "-rf", "--one-file-system", str(scratch)])
    certificates = scratch / "certificates"
    scratch.mkdir()
    if recipe.certificates:
        certificates.mkdir()
    for number, text in enumerate(recipe.certificates):
        write(certificates / f"lab-{number}.crt", f"{text}\n")
    partial = scratch / tarball.name
    # Its mounts (/proc, /dev) are in a separate namespace, which disappears with it, even when it is killed.
    command = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "mmdebstrap", *recipe.options]
    command += [f"--customize-hook={IMAGE_SCRIPT}", recipe.release, str(partial), *recipe.sources]
    environment = {**os.environ, "TMPDIR": str(scratch), "LAB_CERTIFICATES": str(certificates)}
    show_progress(f"image {recipe.release}", command, environment)
    partial.replace(tarball)
    run(["rm", "-rf", "--one-file-system", str(scratch)])


def show_progress(title: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run mmdebstrap and print its steps as they happen; on failure its whole output is the error."""
    process = subprocess.Popen(command, env=environment, pass_fds=tuple(HELD), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(line)
        step = re.match(r"I: (running apt-get update|\w+ing .*packages.*|extracting .*|creating tarball)", line)
        if step:
            say(f"{title}: {step[1].removesuffix('...')}")
    if process.wait():
        raise LabError(f"{title}: mmdebstrap failed:\n{''.join(lines[-30:])}")


def forget_old_images(lab: Lab, release: str, keep: Path) -> None:
    """Remove the images of earlier recipes of a release; an image that a host still uses stays until the next build."""
    for tarball in lab.cache.glob(f"{release}-*.tar"):
        if tarball != keep:
            tarball.unlink()
    for tag in image_tags(lab):
        if tag.startswith(f"{lab.images}:{release}-") and not tag.endswith(f":{keep.stem}"):
            subprocess.run(["podman", "image", "rm", tag], check=False, capture_output=True)


def image_tags(lab: Lab) -> list[str]:
    return podman("images", "--filter", f"reference={lab.images}", "--format", "{{.Repository}}:{{.Tag}}").split()
