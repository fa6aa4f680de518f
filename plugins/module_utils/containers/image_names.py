# SPDX-License-Identifier: GPL-3.0-or-later
"""Full names of container images, and what an engine's error about one means."""

import re

# The names of images, as the reference of the distribution project (reference/regexp.go) defines them.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[A-Fa-f0-9:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_ALGORITHM = r"[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*"
_DIGEST = rf"(?:sha256:[a-f0-9]{{64}}|(?!sha256:){_ALGORITHM}:[A-Fa-f0-9]{{32,}})"
# What other programs write for nothing is hardly meant.
_NOTHING = r"(?!(?i:nan|none|null|true|false)\Z)"
IMAGE = rf"{_NOTHING}(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?"
REGISTRY = rf"{_NOTHING}(?:{_HOST}|{_PART})(?:/{_PART})*/?"


def reference(image: str) -> str:
    """Return an image's full name, as podman requires it: with its registry, without a tag beside a digest."""
    name, at, digest = image.partition("@")
    first, slash, _rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    if not at:
        return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    top, slash, last = name.rpartition("/")
    return f"{top}{slash}{last.partition(':')[0]}@{digest}"


def registry_of(image: str) -> str:
    """Return the registry of an image."""
    return reference(image).partition("/")[0]


# Patterns in an engine's error about an image, each with its meaning and the remedy.
_TROUBLE = (
    (
        r"HTTP response to HTTPS client",
        "the registry speaks plain HTTP; allow that in the engine's configuration ({insecure})",
    ),
    (r"x509|certificate", "the registry's certificate is not trusted; put the site's CA bundle at {ca}"),
    (
        r"unauthorized|denied|no basic auth|authentication required|\b401\b|\b403\b",
        "the registry requires a login; name a file with the login in vllm_registry_auth_file",
    ),
    (
        r"manifest unknown|not found|name unknown|does not exist|no such manifest|\b404\b",
        "the registry has no such image; check vllm_registry, vllm_image and the release, or push the image there",
    ),
    (
        r"connection refused|no such host|timeout|unreachable|deadline exceeded|server misbehaving|no route|lookup ",
        "the registry cannot be reached from this host; check that it is up and that vllm_registry is right",
    ),
    (r"no space left", "the disk of the engine's images is full"),
    (
        r"toomanyrequests|rate limit",
        "the download limit of the registry is reached; use a registry of the site (vllm_registry)",
    ),
)
_INSECURE = {
    "docker": "insecure-registries in /etc/docker/daemon.json",
    "podman": "insecure = true for it in a file of /etc/containers/registries.conf.d",
}
_CERTIFICATES = {"docker": "/etc/docker/certs.d", "podman": "/etc/containers/certs.d"}


def trouble_with(engine: str, image: str, said: str) -> str:
    """Return an error about an image with advice, from the engine's own error text."""
    registry = registry_of(image)
    advice = next((text for pattern, text in _TROUBLE if re.search(pattern, said, re.IGNORECASE)), "")
    advice = advice.format(insecure=_INSECURE[engine], ca=f"{_CERTIFICATES[engine]}/{registry}/ca.crt")
    words = " ".join(said.split())[-400:]
    advice = f"{advice}. " if advice else ""
    return f"image {image} is not available from registry {registry}: {advice}{engine} reported: {words}"


def unanswered(said: str) -> bool:
    """Return whether the text is the error of a client that cannot reach its engine."""
    return bool(re.search(r"cannot connect to the docker daemon|is the docker daemon running", said, re.IGNORECASE))
