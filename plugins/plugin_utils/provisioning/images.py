# SPDX-License-Identifier: GPL-3.0-or-later
"""The images that a provisioner offers, as it describes them in its own file."""

import re
from dataclasses import dataclass
from typing import Any, Mapping
from urllib.parse import urlsplit

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from .entry import Entry, ProvisionError

MOST_BYTES = 256 * 1024
FORMATS = ("raw", "qcow2")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{3,80}")


@dataclass(frozen=True)
class Image:
    """A whole-disk image. ``build_id`` is in the image too, in /etc/baremetal-inference/image."""

    name: str
    url: str
    sha256: str
    build_id: str
    format: str = "raw"


@dataclass(frozen=True)
class Provisioner:
    """Where Ironic answers, the certificate that signs its own (PEM), and its images by name.

    ``bmc_ca`` is what Ironic checks certificates of BMCs with: a file on the provisioner, or whether it checks them.
    ``wipes`` is whether its ramdisk can wipe named disks; one of an earlier release cannot.
    """

    url: str
    certificate: str
    images: Mapping[str, Image]
    bmc_ca: str | bool = True
    wipes: bool = False

    def image_of(self, entry: Entry) -> Image:
        """Return the image of a host. Raises ProvisionError."""
        if entry.image not in self.images:
            raise ProvisionError(
                f"host {entry.host!r}: provision.image: the provisioner has no image {entry.image!r}; "
                f"{nearest(entry.image, self.images)}"
            )
        return self.images[entry.image]


def no_image(entry: Entry) -> Image:
    """Return the name of a host's image alone, for a removal: the provisioner may have it no more."""
    return Image(entry.image, "", "", "")


def read_provisioner(text: str) -> Provisioner:
    """Return what the file of a provisioner describes. Raises ProvisionError."""
    where = "the provisioner's site.json"
    document = _document(where, text)
    certificate = document.get("certificate")
    if not isinstance(certificate, str):
        raise ProvisionError(f"{where}: certificate: found {show_value(certificate)[:80]}, expected PEM")
    bmc_ca = document.get("bmc_ca", True)
    if not isinstance(bmc_ca, (str, bool)):
        raise ProvisionError(f"{where}: bmc_ca: found {show_value(bmc_ca)[:80]}, expected a file, true or false")
    images = {
        str(name): _image(f"{where}: images.{name}", str(name), each) for name, each in document["images"].items()
    }
    url = _url(f"{where}: url", document.get("url"), ("https", "http"))
    return Provisioner(url, certificate, images, bmc_ca, wipes=document.get("wipes") is True)


def made_images(text: str) -> Mapping[str, Any]:
    """Return the images in images.json by name, none for an empty text. Raises ProvisionError."""
    images: Mapping[str, Any] = _document("the provisioner's images.json", text)["images"] if text else {}
    return images


def _document(where: str, text: str) -> Mapping[str, Any]:
    """Return a document with images, of which each is still to be checked. Raises ProvisionError."""
    try:
        document = load_json(text) if len(text) <= MOST_BYTES else None
    except ValueError:
        document = None
    if not isinstance(document, Mapping) or not isinstance(document.get("images"), Mapping):
        raise ProvisionError(f"{where}: is not the file that the role provisioner writes; run provisioner.yml again")
    return document


def _image(where: str, name: str, value: Any) -> Image:
    if not isinstance(value, Mapping):
        raise ProvisionError(f"{where}: found {show_value(value)[:80]}, expected a mapping")
    sha256, build, form = value.get("sha256"), value.get("build_id"), value.get("format", "raw")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ProvisionError(f"{where}.sha256: found {show_value(sha256)[:80]}, expected 64 hexadecimal digits")
    if not isinstance(build, str) or not _BUILD.fullmatch(build):
        raise ProvisionError(f"{where}.build_id: found {show_value(build)[:80]}, expected the build id of the image")
    if form not in FORMATS:
        raise ProvisionError(f"{where}.format: found {show_value(form)[:80]}, expected {' or '.join(FORMATS)}")
    return Image(name, _url(f"{where}.url", value.get("url"), ("http", "https")), sha256, build, str(form))


def _url(where: str, value: Any, schemes: tuple[str, ...]) -> str:
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in schemes and bool(parts.hostname) and "@" not in parts.netloc and text.isprintable()
    except ValueError:
        valid = False
    if not valid or " " in text:
        raise ProvisionError(f"{where}: found {show_value(value)[:120]}, expected a URL without a user")
    return text.rstrip("/")
