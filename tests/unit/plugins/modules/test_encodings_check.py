# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
import pwd
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import ENCODINGS
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.library import Use
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.library_host import all_accepted

from tests.fakes.wheelhouse import run_module

ROOT = Path(__file__).resolve().parents[4]
NEEDED = "o200k_base.tiktoken"
ME = pwd.getpwuid(os.geteuid()).pw_name

# A Harmony library with the manners of the real ones: it reads the file, and refuses another hash.
LIBRARY = f"""
import hashlib, os
HarmonyEncodingName = type("HarmonyEncodingName", (), {{"HARMONY_GPT_OSS": "HarmonyGptOss"}})
def load_harmony_encoding(name):
    with open(os.environ["ASKED"], "a") as log:
        log.write(name + "\\n")
    with open(os.environ["TIKTOKEN_ENCODINGS_BASE"] + "/{NEEDED}", "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != "{{expected}}":
        raise ValueError("invalid tiktoken vocab file: hash mismatch: computed=" + found)
"""


@pytest.fixture
def encodings(tmp_path):
    directory = tmp_path / "encodings"
    directory.mkdir()
    (directory / NEEDED).write_bytes(b"IQ== 0\n")
    return directory


@pytest.fixture
def asked(tmp_path):
    log = tmp_path / "asked"

    def count():
        return len(log.read_text().splitlines()) if log.exists() else 0

    return count


@pytest.fixture
def python(tmp_path, encodings):
    """A Python that finds the library above, which takes what lies in the directory now."""
    (tmp_path / "lib").mkdir()
    expected = hashlib.sha256((encodings / NEEDED).read_bytes()).hexdigest()
    (tmp_path / "lib" / "openai_harmony.py").write_text(LIBRARY.replace("{expected}", expected))
    program = tmp_path / "python"
    program.write_text(
        f'#!/bin/sh\nshift\nASKED={tmp_path}/asked PYTHONPATH={tmp_path}/lib exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def check(tmp_path, encodings, python):
    """Run the module as the role does."""

    def run(use=None, **arguments):
        entry = {"directory": str(encodings), "release": "0.32.0", "python": str(python), "instances": ["chat"]}
        return run_module(
            "encodings_check",
            **{
                "uses": [{**entry, **(use or {})}],
                "user": ME,
                "state_file": str(tmp_path / "state" / "check.json"),
                **arguments,
            },
        )

    return run


def test_library_is_asked_once_and_again_only_when_something_is_another(check, encodings, asked, python):
    first = check()
    assert (first["changed"], first["due"], list(first["accepted"])) == (False, [str(python)], [str(python)])
    assert asked() == 1
    assert check()["due"] == []
    assert asked() == 1
    # The same bytes, written anew, with the time that they had: only the inode's own change tells.
    before = (encodings / NEEDED).stat()
    (encodings / NEEDED).write_bytes((encodings / NEEDED).read_bytes())
    os.utime(encodings / NEEDED, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert check()["due"] == [str(python)]
    text = python.read_text()
    python.unlink()
    python.write_text(text)
    python.chmod(0o755)
    assert check()["due"] == [str(python)]
    assert asked() == 3
    assert check()["due"] == []


def test_accepted_encodings_are_known_to_be_until_something_is_another(check, encodings, python, tmp_path):
    state = str(tmp_path / "state" / "check.json")
    uses = [Use(str(encodings), "0.32.0", str(python), "", "", ("chat",))]
    assert not all_accepted(uses, "", ME, state)
    check()
    assert all_accepted(uses, "", ME, state) and all_accepted([], "", ME, state)
    assert not all_accepted(uses, "", "somebody", state)
    assert not all_accepted([*uses, Use(str(encodings), "0.33.0", "/nowhere", "", "", ())], "", ME, state)
    (encodings / NEEDED).write_bytes((encodings / NEEDED).read_bytes())
    assert not all_accepted(uses, "", ME, state)


def test_refusal_is_an_error_in_every_run_until_it_is_mended(check, encodings, asked):
    good = (encodings / NEEDED).read_bytes()
    check()
    (encodings / NEEDED).write_bytes(good[:3])
    for _time in range(2):
        result = check()
        assert result["failed"]
        assert f"{encodings / NEEDED}: the Harmony library of release 0.32.0" in result["msg"]
        assert "found 3 bytes, expected 3613922" in result["msg"]
    (encodings / NEEDED).write_bytes(good)
    assert not check().get("failed")
    assert asked() == 4


def test_missing_file_is_an_error_and_nobody_is_asked(check, encodings, asked):
    (encodings / NEEDED).unlink()
    result = check()
    assert "the file is missing, expected 3613922 bytes" in result["msg"]
    assert asked() == 0


def test_check_mode_asks_nobody_and_writes_nothing(check, asked, python, tmp_path):
    result = check(_ansible_check_mode=True)
    assert (result["changed"], result["due"], result["accepted"]) == (False, [str(python)], {})
    assert asked() == 0
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2, "good": {}}', '{"version": 1, "good": 3}'])
def test_damaged_memory_is_as_good_as_none(check, asked, tmp_path, content):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "check.json").write_text(content)
    check()
    assert asked() == 1
    assert json.loads((tmp_path / "state" / "check.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    ("program", "reason"),
    [("#!/bin/sh\nexit 3\n", "exit status 3"), ("#!/bin/sh\necho Illegal instruction >&2\n", "Illegal instruction")],
)
def test_library_that_does_not_answer_is_a_warning_each_time(check, python, program, reason):
    python.write_text(program)
    for _time in range(2):
        result = check()
        assert not result.get("failed")
        assert result["accepted"] == {}
        assert reason in json.dumps(result["warnings"])


def test_image_is_asked_without_a_network_and_known_by_its_id(check, tmp_path, encodings):
    engine = tmp_path / "podman"
    engine.write_text(
        f"""#!/bin/sh
if [ "$1" = image ]; then cat {tmp_path}/id; exit; fi
printf '%s\\n' "$*" >> {tmp_path}/runs
echo '{{"library": "openai-harmony 0.0.8", "loaded": "HarmonyGptOss"}}'
"""
    )
    engine.chmod(0o755)
    (tmp_path / "id").write_text("sha256:1\n")
    use = {"python": "", "image": "vllm/vllm-openai:v0.25.1"}
    result = check(use, engine=str(engine))
    assert result["accepted"] == {"vllm/vllm-openai:v0.25.1": "openai-harmony 0.0.8"}
    run = (tmp_path / "runs").read_text()
    assert "--network none" in run
    assert f"--user {os.geteuid()}:{os.getegid()} " in run
    assert f"--env TIKTOKEN_ENCODINGS_BASE={encodings} " in run
    assert "docker.io/vllm/vllm-openai:v0.25.1 -c" in run
    assert check(use, engine=str(engine))["due"] == []
    (tmp_path / "id").write_text("sha256:2\n")
    assert check(use, engine=str(engine))["due"] == ["vllm/vllm-openai:v0.25.1"]


@pytest.mark.parametrize(
    ("use", "engine"), [({"python": ""}, ""), ({"image": "a/b"}, "/x"), ({"python": "", "image": "a"}, "")]
)
def test_use_has_either_a_python_or_an_image_with_an_engine(check, use, engine):
    assert "expected either python, or image and an engine" in check(use, engine=engine)["msg"]


def test_user_that_is_not_there(check):
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    assert "found no user 'nobody-here' on this host" in check(user="nobody-here")["msg"]


@pytest.fixture
def real(tmp_path):
    """The lab's own vLLM and the published files, where this machine has them."""
    pythons = sorted(ROOT.glob(".cache/vllm/0.32.0-*/bin/python"))
    files = ROOT / ".lab/mirror/encodings" / NEEDED
    if not pythons or not files.exists():
        pytest.skip("needs .cache/vllm/0.32.0-* and .lab/mirror/encodings (tools/lab/content.sh brings them)")
    return str(pythons[-1]), files.read_bytes()


def test_real_library_takes_the_published_file_and_no_other(check, encodings, real):
    python, content = real
    assert hashlib.sha256(content).hexdigest() == ENCODINGS[NEEDED].sha256
    (encodings / NEEDED).write_bytes(content)
    assert check({"python": python})["accepted"][python].startswith("oss-harmony ")
    for wrong, reason in (
        (content[:-1], "found 3613921 bytes, expected 3613922"),
        (b"X" + content[1:], f"expected {ENCODINGS[NEEDED].sha256}"),
    ):
        (encodings / NEEDED).write_bytes(wrong)
        message = check({"python": python})["msg"]
        assert reason in message
        assert "oss-harmony 0." in message
        assert message.endswith("nothing was restarted, and chat would not start")
