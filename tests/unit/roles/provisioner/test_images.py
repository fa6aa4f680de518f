# SPDX-License-Identifier: GPL-3.0-or-later
"""The images that a provisioner makes, and what it offers to provision.yml."""

from __future__ import annotations

import base64
import json
import subprocess

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.filter.roles import made_images
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template

from tests.fakes.inventory_plugin import TOP

ROLE = TOP / "roles/provisioner"
HTTP = "http://10.0.0.5:8090"
DEBIAN, UBUNTU = ({"build_id": f"2026-{name}", "sha256": name * 32} for name in ("ab", "cd"))
# Calls a function of build.sh, where mmdebstrap prints its last arguments: suite, root and sources.
CALL = """
set -eu
eval "$(sed -n '/^bootstrap()/,/^}/p;/^signed()/,/^}/p' "$1")"
shift
mmdebstrap() { printf '%s\\n' "${@: -$LAST}"; }
"$@"
"""


def offered(made, site):
    """Return the images of site.json where build.sh has made some, and the site has others."""
    (task,) = (task for task in yaml.safe_load((ROLE / "tasks/build.yml").read_text()) if "offers" in task["name"])
    content = base64.b64encode(json.dumps({"images": made}).encode()).decode()
    values = {
        **{name: value for name, value in task["vars"].items() if name != "__provisioner_site"},
        "__provisioner_http_url": HTTP,
        "__provisioner_images_made": {"content": content} if made else {"skipped": True},
        "provisioner_images": site,
    }
    templar = Templar(DataLoader(), marked(values))
    # Without collections, as here, Ansible finds only its own.
    templar.environment.filters["baremetal.inference.made_images"] = made_images
    return templar.template(as_template(task["vars"]["__provisioner_site"]["images"].strip()))


def marked(value):
    """Return a value whose texts are templates, as in a file of tasks."""
    if isinstance(value, dict):
        return {key: marked(each) for key, each in value.items()}
    return as_template(value) if isinstance(value, str) and "{{" in value else value


@pytest.mark.parametrize("made", [{}, {"debian13": DEBIAN}, {"debian13": DEBIAN, "ubuntu2404": UBUNTU}])
def test_what_was_made_is_offered_with_its_address(made):
    found = offered(made, {"site": {"url": "http://x/site.raw"}})
    assert found.pop("site") == {"url": "http://x/site.raw"}
    assert found == {name: {**each, "url": f"{HTTP}/{name}.raw"} for name, each in made.items()}


def test_an_image_of_the_site_takes_the_place_of_one_that_was_made():
    assert offered({"debian13": DEBIAN}, {"debian13": {"url": "http://x"}}) == {"debian13": {"url": "http://x"}}


def call(*words, last=1, **variables):
    command = ["bash", "-c", CALL, "bash", str(ROLE / "files/build.sh"), *words]
    environment = {"PATH": "/usr/bin:/bin", "LAST": str(last), "keyrings": "usr/share/keyrings", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).splitlines()


def test_ubuntu_comes_from_its_own_mirror_with_its_own_keyring_and_updates():
    found = call("bootstrap", "/r", "noble", "p", last=5, work="/w", UBUNTU_MIRROR="http://m/ubuntu")
    signed = "signed-by=/w/agent/usr/share/keyrings/ubuntu-archive-keyring.gpg"
    suites = ("noble", "noble-updates", "noble-security")
    sources = [f"deb [{signed}] http://m/ubuntu {suite} main restricted universe" for suite in suites]
    assert found == ["noble", "/r", *sources]


def test_debian_comes_from_the_mirror_of_debian():
    found = call("bootstrap", "/r", "trixie", "p", last=3, work="/w", MIRROR="http://m/debian", COMPONENTS="main")
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert found == ["trixie", "/r", f"deb [signed-by={keyring}] http://m/debian trixie main"]


@pytest.mark.parametrize(
    ("files", "shim", "mok"),
    [
        (["shimx64.efi.signed", "shimx64.efi", "mmx64.efi.signed"], "shimx64.efi.signed", "mmx64.efi.signed"),
        # Of Ubuntu 24.04; shimx64.efi.signed is a link to /etc/alternatives there.
        (["shimx64.efi", "shimx64.efi.signed.latest", "mmx64.efi"], "shimx64.efi.signed.latest", "mmx64.efi"),
    ],
)  # fmt: skip
def test_the_signed_boot_loader_is_found_by_the_names_of_both_systems(tmp_path, files, shim, mok):
    directory = tmp_path / "usr/lib/shim"
    directory.mkdir(parents=True)
    for name in files:
        (directory / name).touch()
    if shim not in files[:2]:
        (directory / "shimx64.efi.signed").symlink_to("/etc/alternatives/shimx64.efi.signed")
    assert [call("signed", str(tmp_path), name) for name in ("shimx64", "mmx64")] == [
        [str(directory / shim)],
        [str(directory / mok)],
    ]


def take(copied, mirror="http://packages.island.example/debian"):
    """Run build.sh over a directory that holds what another site has made; return its end. It finds no mmdebstrap."""
    here = copied.parent / "programs"
    here.mkdir(exist_ok=True)
    library = TOP / "plugins/module_utils/provisioning"
    names = ("disk_marks_host.py", "named_disks.py", "wipe_host.py", "agent_network_host.py")
    for file in (*(ROLE / "files").iterdir(), *(library / name for name in names)):
        (here / file.name).write_bytes(file.read_bytes())
    environment = {
        "PATH": "/usr/bin:/bin", "HERE": str(here), "MIRROR": mirror, "COMPONENTS": "main", "PACKAGES": "",
        "UBUNTU_MIRROR": "", "INDEX": "http://127.0.0.1:9/", "PYTHON": "/bin/false",
    }  # fmt: skip
    script = f"mmdebstrap() {{ return 1; }}; export -f mmdebstrap; bash {here}/build.sh {copied}/../work {copied}"
    show = f'eval "$(grep ^description= {here}/build.sh)"; printf %s "$description"'
    description = subprocess.run(["bash", "-c", show], env=environment, capture_output=True, text=True, check=True)
    return description.stdout, subprocess.run(["bash", "-c", script], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize(("spoil", "is_taken"), [("", True), ("damaged", False), ("other mirror", False)])
def test_images_of_another_site_are_taken_if_they_are_whole_and_of_the_same_description(tmp_path, spoil, is_taken):
    copied = tmp_path / "out"
    copied.mkdir()
    description, _done = take(copied)
    for name in ("agent.kernel", "agent.initramfs", "esp.img", "debian13.raw"):
        (copied / name).write_text(name)
    sums = subprocess.run(["sha256sum", "agent.kernel", "debian13.raw"], cwd=copied, capture_output=True, check=True)
    (copied / "SHA256SUMS").write_bytes(sums.stdout)
    (copied / "images.json").write_text(json.dumps({"description": description, "images": {"debian13": DEBIAN}}))
    if spoil == "damaged":
        (copied / "debian13.raw").write_text("x")
    _description, done = take(copied, *(["http://other"] if spoil == "other mirror" else []))
    assert ((done.returncode, done.stdout) == (0, b"")) is is_taken, done.stderr
