# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.locks import check_lock, choose_lock


def entry(python):
    tag = python.replace(".", "")
    return {
        "requirements": f"/locks/{tag}.txt",
        "requirements_sha256": tag * 16,
        "requirements_text": f"# target: cp{tag}-x86_64\n",
    }


MANY = {"requirements": {python: entry(python) for python in ("3.13", "3.9", "3.12")}, "env": {"A": "b"}}
ONE = {**entry("3.11"), "env": {"A": "b"}}
ANY = {**entry("3.11"), "requirements_text": "vllm==1\n"}
DEBIAN13 = ("/usr/bin/python3.13", "/usr/local/bin/python3.12")
UBUNTU = ("/usr/bin/python3.12", "/usr/bin/python3.9", "/usr/bin/python3.14")


@pytest.mark.parametrize(
    ("stack", "requested", "pythons", "python", "interpreter"),
    [
        (MANY, "", DEBIAN13, "3.13", "/usr/bin/python3.13"),
        (MANY, "", UBUNTU, "3.12", "/usr/bin/python3.12"),
        # Its own python3 has no lock: the newest that has one.
        (MANY, "", ("/usr/bin/python3.11", "/usr/bin/python3.9", "/usr/local/bin/python3.12"), "3.12",
         "/usr/local/bin/python3.12"),
        (MANY, "3.12", DEBIAN13, "3.12", "/usr/local/bin/python3.12"),
        (MANY, "3.9", UBUNTU, "3.9", "/usr/bin/python3.9"),
        # A path is taken at its word.
        (MANY, "/opt/p/bin/python3.9", DEBIAN13, "3.9", "/opt/p/bin/python3.9"),
        (MANY, "/opt/p/bin/python3.9", None, "3.9", "/opt/p/bin/python3.9"),
        # Nobody has asked the host: the newest, and all locks are candidates.
        (MANY, "", None, "3.13", "/usr/bin/python3.13"),
        (MANY, "3.12", None, "3.12", "/usr/bin/python3.12"),
        (ONE, "", None, "3.11", "/usr/bin/python3"),
        (ONE, "", ("/usr/bin/python3.11",), "3.11", "/usr/bin/python3.11"),
        (ONE, "", ("/usr/bin/python3.13", "/usr/bin/python3.11"), "3.11", "/usr/bin/python3.11"),
        (ANY, "", DEBIAN13, "3.11", "/usr/bin/python3"),
        (ANY, "3.12", DEBIAN13, "3.11", "/usr/local/bin/python3.12"),
        (ANY, "/x/python3.14", None, "3.11", "/x/python3.14"),
    ],
)  # fmt: skip
def test_the_lock_goes_with_the_python(stack, requested, pythons, python, interpreter):
    chosen = choose_lock(stack, requested, pythons, "1.0")
    assert chosen["requirements"] == entry(python)["requirements"]
    assert chosen["requirements_sha256"] == entry(python)["requirements_sha256"]
    assert chosen["interpreter"] == interpreter
    assert chosen.get("env") == stack.get("env")


def test_a_host_that_was_not_asked_may_need_every_lock():
    every = [f"/locks/{tag}.txt" for tag in ("39", "312", "313")]
    assert choose_lock(MANY, "", None, "1.0")["locks"] == every
    assert choose_lock(MANY, "3.12", None, "1.0")["locks"] == every[1:2]
    assert choose_lock(MANY, "", DEBIAN13, "1.0")["locks"] == every[2:]


@pytest.mark.parametrize(
    ("stack", "requested", "pythons", "message"),
    [
        (MANY, "3.11", DEBIAN13,
         "found '3.11', but release '1.0' has locks of wheels for Python 3.9, 3.12, 3.13; choose one of these, or make a "  # noqa: E501
         "lock with playbooks/lock_release.yml"),
        (MANY, "/opt/python3.8", None,
         "found '/opt/python3.8', but release '1.0' has locks of wheels for Python 3.9, 3.12, 3.13; choose one of these, "  # noqa: E501
         "or make a lock with playbooks/lock_release.yml"),
        (MANY, "3.9", DEBIAN13,
         "the host has Python 3.12, 3.13, but the locks of wheels of release '1.0' are for Python 3.9; install the "
         "package python3.9 on it, or set vllm_python to the path of such a Python, or use the runtime 'container'"),
        (MANY, "", ("/usr/bin/python3.11",),
         "the host has Python 3.11, but the locks of wheels of release '1.0' are for Python 3.9, 3.12, 3.13; install the "  # noqa: E501
         "package python3.13 on it, or set vllm_python to the path of such a Python, or use the runtime 'container'"),
        (ONE, "", (),
         "the host has no Python 3 in /usr/bin or /usr/local/bin, but the locks of wheels of release '1.0' are for Python "  # noqa: E501
         "3.11; install the package python3.11 on it, or set vllm_python to the path of such a Python, or use the "
         "runtime 'container'"),
        *((MANY, odd, DEBIAN13,
           f"found {odd!r}, expected a version such as '3.12' in quotes, or a path on the host such as "
           "/opt/python/bin/python3.12") for odd in ("3", "python3.12", "/usr/bin/python3", "3.12.1", "3.12\n")),
    ],
)  # fmt: skip
def test_a_python_without_a_lock_is_an_error(stack, requested, pythons, message):
    with pytest.raises(PlanError) as caught:
        choose_lock(stack, requested, pythons, "1.0")
    assert str(caught.value) == f"vllm_python: {message}"


def lock(text, python="3.12"):
    return {"requirements": "rocm.txt", "requirements_text": text, "python": python}


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("# target: cp312-x86_64\nvllm==1.0\n", "3.12"),
        ("# target: cp312-x86_64\n", ">=3.10,<3.14"),
        ("# target: cp310-x86_64\n", ">=3.10,<3.14"),
        ("# target: cp39-x86_64\n", "3.9"),
        ("# target: cp311-x86_64\n", ""),
        ("vllm==1.0\n", "3.12"),
        ("", "3.12"),
        ("triton==3.4.0\n    --hash=sha256:x\ntritonclient==2.0\n", "3.12"),
    ],
)
def test_a_lock_that_works(text, python):
    check_lock(lock(text, python), "1.0")


@pytest.mark.parametrize(
    ("text", "python", "message"),
    [
        (
            "# target: cp311-x86_64\n",
            "3.12",
            "the lock is for Python 3.11, the wheels of release '1.0' for this stack are for Python 3.12 "
            "only; another Python would silently get another vendor's wheel",
        ),
        (
            "# target: cp314-x86_64\n",
            ">=3.10,<3.14",
            "the lock is for Python 3.14, the wheels of release '1.0' for this stack are for Python >=3.10,<3.14 only; "
            "another Python would silently get another vendor's wheel",
        ),
        (
            "pytorch-triton-rocm==3.4.0\ntriton==3.4.0\n",
            "3.12",
            "pytorch-triton-rocm and triton conflict in one environment (tl.language is not defined); keep the "
            "one that belongs to this torch",
        ),
    ],
)
def test_a_lock_that_cannot_work(text, python, message):
    with pytest.raises(PlanError) as caught:
        check_lock(lock(text, python), "1.0")
    assert str(caught.value) == f"rocm.txt: {message}"
