# SPDX-License-Identifier: GPL-3.0-or-later
"""What the templates of the role vllm write for an instance in a container."""

from __future__ import annotations

import functools
import grp
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
COMMAND = ["/bin/bash", "-c", '. /root/.bashrc; exec vllm serve "$@"', "vllm"]
SETTINGS = {"engine": "docker", "user": "vllm", "uid": 998, "gid": 997, "stop_timeout": 80, "quadlet": True}
VARIABLES = {
    "ansible_managed": "Ansible managed",
    "inventory_hostname": "gpu1",
    "vllm_start_timeout": 900,
    "vllm_drain_timeout": 60,
    "vllm_stop_notice": 3,
    "vllm_warmup": "yes",
    "vllm_warmup_seconds": "20",
    "vllm_user": "vllm",
    "vllm_residents_patience": 5,
    "vllm_secrets": {"chat": {"HF_TOKEN": "s3cret $x"}},
}

OF_GROUPS = {"vllm_group_firewall": "nftables", "vllm_group_ports": "20000-29999", "vllm_group_stall": 60}


def plan(instance="chat", **container):
    return {
        "instance": instance,
        "replica_of": "chat",
        "runtime": "container",
        "stack": "cuda",
        "env": {"HOME": f"/var/cache/vllm/{instance}", "PLAIN": "a b"},
        "config": {"port": 8000},
        "middleware": ["--middleware", "availability.Availability"],
        "secrets": ["HF_TOKEN"],
        "container": {
            "image": "mirror:5000/lab/vllm:1",
            "command": [],
            "user": "vllm",
            "shm_size": "16g",
            "devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
            "groups": [],
            "mounts": ["/srv/models/m:/srv/models/m:ro"],
            "memlock": True,
            **container,
        },
    }


# Ansible finds the collection's filters only in a process that has not imported the collection otherwise.
RENDER = """
import json, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([sys.argv[1]])
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import instance_files
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.render import RoleTemplates
templates = RoleTemplates(DataLoader())
for line in sys.stdin:
    plan, variables = json.loads(line)
    files = instance_files(plan, variables["__vllm_container"])
    items = [{**entry, "name": plan["instance"], "plan": plan} for entry in files]
    texts = {item["path"]: templates.render(item["template"], item, variables) for item in items}
    print(json.dumps(texts), flush=True)
"""


@functools.lru_cache(maxsize=None)
def renderer():
    """Return the process that renders; it ends with this one. Its start takes longer than all that it renders."""
    command = [sys.executable, "-c", RENDER, str(TOP / ".collections")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@functools.lru_cache(maxsize=None)
def texts(given):
    process = renderer()
    process.stdin.write(f"{given}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def rendered(settings=None, instance="chat", **container):
    """Return the texts of an instance's files by their paths."""
    variables = {**VARIABLES, "__vllm_container": {**SETTINGS, **(settings or {})}}
    return texts(json.dumps([plan(instance, **container), variables]))


UNIT = "/etc/systemd/system/vllm@chat.service"
SERVE = "/var/lib/vllm/chat/serve"
QUADLET = "/etc/containers/systemd/vllm@chat.container"


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_secret_is_in_its_own_file_alone(engine):
    texts = rendered({"engine": engine})
    assert [path for path, text in texts.items() if "s3cret" in text] == ["/etc/vllm/chat.secrets"]
    assert 'HF_TOKEN="s3cret \\$x"' in texts["/etc/vllm/chat.secrets"]


def test_a_replica_has_the_secrets_of_its_instance():
    assert "s3cret" in rendered(instance="chat-2")["/etc/vllm/chat-2.secrets"]


def test_the_script_hands_every_word_to_the_engine_as_it_is(tmp_path):
    engine = tmp_path / "docker"
    engine.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    engine.chmod(0o755)
    script = tmp_path / "serve"
    script.write_text(rendered({"command": str(engine), "gpus": "flag"}, command=COMMAND)[SERVE])
    out = subprocess.run(["/bin/sh", script, "--config", "a b"], check=True, capture_output=True, text=True).stdout
    words = json.loads(out)
    notice = ["--middleware", "availability.Availability"]
    assert words[-8:] == ["mirror:5000/lab/vllm:1", *COMMAND[1:], *notice, "--config", "a b"]
    assert words[words.index("--gpus") + 1] == '"device=0,1"'
    assert words[words.index("--entrypoint") + 1] == "/bin/bash"


def test_docker_is_stopped_with_time_to_drain_and_nothing_is_left_behind():
    lines = rendered()[UNIT].splitlines()
    assert "Requires=docker.service" in lines
    assert "ExecStop=/bin/sh -c '/usr/bin/docker stop --time 80 vllm-chat >/dev/null 2>&1 || :'" in lines
    assert "ExecStopPost=/bin/sh -c '/usr/bin/docker rm --force vllm-chat >/dev/null 2>&1 || :'" in lines
    assert "TimeoutStopSec=113" in lines and "TimeoutStartSec=900" in lines
    assert "ExecStart=/var/lib/vllm/%i/serve --config /etc/vllm/%i.yaml" in lines


def test_podman_needs_no_daemon():
    text = rendered({"engine": "podman", "quadlet": False})[UNIT]
    assert "docker" not in text and "/usr/bin/podman stop --time 80 vllm-chat" in text


def test_a_quadlet_has_the_unit_of_the_other_runtimes_around_it():
    text = rendered({"engine": "podman"})[QUADLET]
    sections = [line for line in text.splitlines() if line.startswith("[")]
    assert sections == ["[Unit]", "[Container]", "[Service]", "[Install]"]
    for line in ("EnvironmentFile=-/etc/vllm/%i.secrets", "Restart=always", "StartLimitBurst=5",
                 "ExecStartPost=/usr/bin/python3 /usr/local/lib/vllm-wait-ready.py %i 20", "WantedBy=multi-user.target",
                 "Exec=--middleware availability.Availability --config /etc/vllm/chat.yaml",
                 "Image=mirror:5000/lab/vllm:1", "PodmanArgs=--env=HF_TOKEN"):  # fmt: skip
        assert line in text.splitlines()


VENV = {"runtime": "venv", "venv": {}, "launch": ["/opt/vllm/x/bin/vllm", "serve"], "container": None}
# What root's programs would obey, and what a shell or systemd would change.
HOSTILE = {
    "LD_PRELOAD": "/srv/x.so",
    "PYTHONPATH": "/srv/evil",
    "QUOTED": 'a "b" $HOME `id` \\n \' %i {"c": [1]}',
    "EMPTY": "",
    "LEADING": " a#b ",
}


def every_text():
    """Yield kind, path and text of all files of instances, in every runtime and with every drop-in."""
    group = {"role": "decode", "address": "10.0.0.1", "peers": {}, "prefill": ["10.0.0.2:8000"], "guarded": ["5600"],
             "router": {"venv": {"path": "/opt/r"}}}  # fmt: skip
    for kind, engine, more in (
        ("venv", {}, VENV),
        ("docker", {}, {}),
        ("podman", {"engine": "podman", "quadlet": False}, {}),
        ("quadlet", {"engine": "podman"}, {}),
    ):
        given = {**plan(), **more, "env": HOSTILE, "listen": {"port": 8000}, "residents": "gpu0", "group": group}
        variables = {**VARIABLES, **OF_GROUPS, "__vllm_container": {**SETTINGS, **engine}}
        for path, text in texts(json.dumps([given, variables])).items():
            yield kind, path, text


def secrets_of(unit):
    """Return what a unit must read before it starts: that of an engine, or its container, the secrets."""
    engine = "\n[Container]" in unit or "/var/lib/vllm/%i/serve --config" in unit
    return ["EnvironmentFile=-/etc/vllm/%i.secrets"] if engine else []


def test_nothing_that_root_runs_has_the_environment_of_an_instance():
    """A recipe can write that environment; a line with + runs as root, and so does a unit without User=."""
    seen = set()
    for kind, path, text in every_text():
        if not path.startswith(("/etc/systemd", "/etc/containers")):
            continue
        lines = text.splitlines()
        privileged = [line for line in lines if re.match(r"Exec\w+=[-@:]*[+!]", line)]
        taken = [line for line in lines if line.startswith(("EnvironmentFile=", "Environment=", "PassEnv"))]
        assert taken == secrets_of(text), (kind, path)
        assert "/srv/x.so" not in text and "/srv/evil" not in re.sub("PYTHONPATH=[^ ]+", "", text), (kind, path)
        for line in privileged:
            seen.add(line.partition("=")[2].split()[0])
            assert not re.search(r"/var/lib/vllm|/run/vllm|\$|serve", line), line
            if "python3" in line:
                assert "python3 -I " in line, line
    assert seen == {"-+/usr/bin/systemctl", "+/usr/sbin/nft", "+/usr/bin/python3", "+/usr/bin/install"}


def test_the_ports_between_hosts_are_closed_for_every_protocol_with_ports():
    rules = {text for _kind, path, text in every_text() if path.endswith(".nft")}
    assert rules
    for text in rules:
        dropped = [line for line in text.splitlines() if line.endswith("counter drop")]
        (ports,) = {re.search(r"dport (\{[^}]+\})", line)[1] for line in dropped}
        assert ports == "{ 5600, 20000-29999 }"
        assert [line.split(" dport")[0].strip().split()[0] for line in dropped] == ["tcp", "meta"]
        # Answers to this host's own questions come to the same ports.
        assert "udp" in dropped[1] and " ct state new " in dropped[1]


def test_no_unit_of_any_role_takes_the_environment_of_an_instance():
    units = [path for path in (TOP / "roles").glob("*/templates/*.j2") if "[Service]" in path.read_text()]
    assert len(units) > 10
    for path in units:
        lines = path.read_text().splitlines()
        taken = [line for line in lines if line.startswith(("EnvironmentFile=", "PassEnvironment="))]
        assert taken == secrets_of(path.read_text()), path


def test_nobody_chooses_the_level_of_a_line_in_the_journal():
    """A line that begins with <0> would be on every terminal, with journald's ForwardToWall."""
    kept = set()
    for path in (TOP / "roles").glob("*/templates/*.j2"):
        lines = path.read_text().splitlines()
        if "[Service]" not in lines or not any(line.startswith(("ExecStart=", "ExecReload=")) for line in lines):
            continue
        if "{% include 'unit-service.j2' +%}" in lines:
            lines += (path.parent / "unit-service.j2").read_text().splitlines()
        if "SyslogLevelPrefix=false" not in lines:
            kept.add(path.name)
    # The first reports damage at a level of its own, in lines without a second one; the other has no text of others.
    assert kept == {"weights-scrub.service.j2", "openings.service.j2"}
    assert "SyslogLevelPrefix=false" in rendered({"engine": "podman"})[QUADLET]
    # Nor directly, as any user of a host can: these are the units in which a program of others is no container.
    assert environment_unit()["InaccessiblePaths"] == ["-/run/systemd/journal"]


def test_vllm_in_an_environment_gets_every_value_as_it_is(tmp_path):
    """The unit's own line is run with the files at another place; the program prints its environment."""
    found = {path: text for kind, path, text in every_text() if kind == "venv"}
    (line,) = [
        line for line in found["/etc/systemd/system/vllm@.service"].splitlines() if line.startswith("ExecStart=")
    ]
    (tmp_path / "env").write_text(found["/etc/vllm/chat.env"])
    printer = tmp_path / "print"
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    printer.write_text(f'#!/bin/sh\nexec env -u LD_PRELOAD {sys.executable} -I -c \'{code}\' "$LD_PRELOAD" "$@"\n')
    printer.chmod(0o755)
    words = shlex.split(line.partition("=")[2].replace("%i", "chat"))
    words[-1] = words[-1].replace("/etc/vllm/chat.env", str(tmp_path / "env")).replace(SERVE, str(printer))
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    arguments, environment = json.loads(done.stdout)
    assert arguments == ["/srv/x.so", "--config", "/etc/vllm/chat.yaml"]
    assert {name: environment.get(name) for name in HOSTILE if name != "LD_PRELOAD"} == {
        name: value for name, value in HOSTILE.items() if name != "LD_PRELOAD"
    }


def test_the_engine_reads_every_value_as_it_is():
    for kind, path, text in every_text():
        if kind != "venv" and path == "/etc/vllm/chat.env":
            assert [line for line in text.splitlines() if not line.startswith("#")] == [
                f"{name}={HOSTILE[name]}" for name in sorted(HOSTILE)
            ]


def test_the_cache_belongs_to_who_writes_to_it():
    assert "install -d -o vllm -g vllm -m 0750 /var/cache/vllm/%i" in rendered()[UNIT]
    assert "install -d -o root -g root -m 0750 /var/cache/vllm/%i" in rendered(user="root")[UNIT]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of root, and becomes another user")
@pytest.mark.parametrize(("engine", "path"), [("docker", UNIT), ("podman", QUADLET)])
def test_no_user_reaches_what_a_container_of_root_leaves_in_its_cache(tmp_path, engine, path):
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(0o755)
    cache = tmp_path / "cache/vllm"
    # As earlier releases have left it.
    (cache / "chat").mkdir(parents=True)
    group = f"-g {grp.getgrgid(os.getgid()).gr_name} "
    for line in rendered({"engine": engine}, user="root")[path].splitlines():
        if line.startswith("ExecStartPre=") and "/install -d " in line:
            text = line.partition("=")[2].lstrip("+").replace("-g vllm ", group)
            subprocess.run(shlex.split(text.replace("/var/cache/vllm", str(cache)).replace("%i", "chat")), check=True)
    # The engine's work: it owns its cache, and opens it.
    shutil.copy("/usr/bin/id", cache / "chat/id")
    (cache / "chat/id").chmod(0o4755)
    (cache / "chat").chmod(0o755)
    with pytest.raises(PermissionError):
        subprocess.run([cache / "chat/id"], user=65534, group=65534, extra_groups=[], check=True)
    assert "-m 0710" not in rendered({"engine": engine})[path]


def test_units_agree_on_when_to_start_and_to_give_up():
    def kept(path, settings):
        names = (
            "Assert",
            "StartLimit",
            "Restart",
            "ExecStartPost",
            "TimeoutStart",
            "TimeoutStop",
            "LimitMEMLOCK",
            "LimitNOFILE",
            "After=net",
        )
        return [
            line for line in rendered(settings)[path].splitlines() if line.startswith(names) and "serve" not in line
        ]

    assert kept(UNIT, {}) == kept(QUADLET, {"engine": "podman"})


def test_every_unit_tells_gateways_before_it_stops_vllm():
    podman = {"engine": "podman", "quadlet": False}
    for path, settings in ((UNIT, {}), (UNIT, podman), (QUADLET, {"engine": "podman"})):
        stops = [line for line in rendered(settings)[path].splitlines() if line.startswith("ExecStop=")]
        assert stops[0].endswith("/usr/bin/python3 /usr/local/lib/vllm-drain.py %i 60 3")
        # One that fails must not keep the next command from stopping the container.
        assert stops[0].startswith("ExecStop=-")
        assert "RuntimeDirectory=vllm/%i" in rendered(settings)[path].splitlines()


def test_vllm_finds_the_middleware_in_every_runtime():
    library, run = "/usr/local/lib/vllm", "/run/vllm/chat"
    words = rendered()[SERVE].split()
    assert f"type=bind,source={library},target={library},readonly" in words
    assert f"type=bind,source={run},target={run},readonly" in words
    lines = rendered({"engine": "podman"})[QUADLET].splitlines()
    assert f"Volume={library}:{library}:ro" in lines and f"Volume={run}:{run}:ro" in lines


def test_a_start_that_succeeded_does_not_count_for_the_limit_of_starts():
    for path, settings in ((UNIT, {}), (QUADLET, {"engine": "podman"})):
        posts = [line for line in rendered(settings)[path].splitlines() if line.startswith("ExecStartPost=")]
        assert posts[1] == "ExecStartPost=-+/usr/bin/systemctl reset-failed %n"


def test_the_unit_of_environments_starts_and_stops_as_those_of_containers():
    def kept(template):
        names = ("ExecStop=-", "ExecStartPost=", "StartLimit", "Restart", "RuntimeDirectory=")
        text = (TOP / "roles/vllm/templates" / template).read_text()
        return sorted(line for line in text.splitlines() if line.startswith(names))

    assert kept("vllm@.service.j2") == kept("instance.service.j2") == kept("instance.container.j2")


def environment_unit():
    """Return the directives of the unit of environments: every value of each name."""
    names = ("vllm@.service.j2", "unit-closed.j2", "unit-confined.j2")
    text = "".join((TOP / "roles/vllm/templates" / name).read_text() for name in names)
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.isalnum():
            found.setdefault(name, []).append(value)
    return found


# The classes of character devices in /proc/devices that vLLM opens, as the vendors' drivers name them.
CLASSES = {
    "cuda": ("nvidia", "nvidia-uvm", "nvidia-caps", "nvidia-nvswitch"),
    "cuda before 525": ("nvidia-frontend",),
    "rocm": ("kfd", "drm"),
    "cann": ("davinci0", "davinci15", "davinci_manager", "devmm_svm", "hisi_hdc"),
    "several hosts": ("infiniband_verbs",),
}


@pytest.mark.parametrize("stack", CLASSES)
def test_the_unit_opens_the_devices_of_every_vendor(stack):
    allowed = [value.split() for value in environment_unit()["DeviceAllow"]]
    for name in CLASSES[stack]:
        assert [mode for pattern, mode in allowed if fnmatch(f"char-{name}", pattern)] == ["rw"], name


def test_the_unit_opens_no_other_device():
    found = environment_unit()
    known = [f"char-{name}" for names in CLASSES.values() for name in names]
    assert found["DevicePolicy"] == ["closed"]
    for value in found["DeviceAllow"]:
        assert [name for name in known if fnmatch(name, value.split()[0])], value
    others = ("block-sd", "char-mem", "char-vfio", "char-nvidia-modeset", "char-kvm", "char-input", "char-tty")
    patterns = [value.split()[0] for value in found["DeviceAllow"]]
    assert [name for name in others if any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_the_hardening_that_was_tried_with_a_gpu_is_there():
    found = environment_unit()
    expected = {
        "ProtectSystem": "strict", "ProtectProc": "invisible", "NoNewPrivileges": "true", "CapabilityBoundingSet": "",
        "PrivateTmp": "true", "ProtectHome": "true", "RestrictNamespaces": "true", "SystemCallErrorNumber": "EPERM",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == {name: [value] for name, value in expected.items()}
    assert found["SystemCallFilter"][:2] == ["@system-service", "~@privileged"]
    # Each of these would stop CUDA, NCCL or a compiler of kernels.
    assert not {"PrivateDevices", "PrivateUsers", "PrivateIPC", "MemoryDenyWriteExecute", "ProcSubset"} & set(found)
    assert found["LimitMEMLOCK"] == ["infinity"] and "AF_NETLINK" in found["RestrictAddressFamilies"][0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(("settings", "exposure"), [({}, 2.0), ({"engine": "podman", "quadlet": False}, 9.0)])
def test_the_unit_of_a_container_is_closed_as_far_as_its_engine_allows(tmp_path, settings, exposure):
    (tmp_path / "vllm@chat.service").write_text(rendered(settings)[UNIT])
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(tmp_path / "vllm@chat.service")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found and float(found[1]) <= exposure, done.stdout + done.stderr


SHARED_UNIT = "/etc/systemd/system/vllm@.service"
DROP_IN = "/etc/systemd/system/vllm@chat.service.d/residents.conf"
SERVICE = "/etc/systemd/system/vllm-residents@.service"


def rendered_plan(**more):
    variables = {**VARIABLES, "__vllm_container": SETTINGS}
    return texts(json.dumps([{**plan(), **more}, variables]))


def test_the_start_of_an_instance_that_shares_chips_waits_for_them():
    found = rendered_plan(residents="gpu0")
    lines = found[DROP_IN].splitlines()
    acquire = "/usr/local/lib/vllm-residents.py acquire gpu0 %i 810"
    assert f"ExecStartPre=+/usr/bin/python3 -I {acquire}" in lines
    assert "Wants=vllm-residents@gpu0.service" in lines and "After=vllm-residents@gpu0.service" in lines
    # The wait ends before systemd would end the start.
    assert "TimeoutStartSec=900" in found[UNIT].splitlines()


def test_the_start_of_an_instance_waits_for_the_weights_that_stay_on_the_chips():
    found = rendered_plan(preload=True, env={"VLLM_ENGINE_READY_TIMEOUT_S": "3600"})
    drop_in = found["/etc/systemd/system/vllm@chat.service.d/preload.conf"].splitlines()
    assert "ExecStartPre=-+/usr/bin/python3 -I /usr/local/lib/vllm-preload.py settle %i" in drop_in
    unit = found["/etc/systemd/system/vllm-preload@.service"].splitlines()
    # The wait ends before systemd would end the start.
    assert "TimeoutStartSec=3120" in unit and "TimeoutStartSec=3900" in found[UNIT].splitlines()
    assert "DevicePolicy=closed" in unit and unit[-1] == "RemoveIPC=false"


@pytest.mark.parametrize(("allowed", "seconds"), [("3600", 3900), ("600", 900), ("60", 900), ("$(id)", 900)])
def test_a_start_may_take_as_long_as_vllm_allows_its_engine(allowed, seconds):
    found = rendered_plan(env={"VLLM_ENGINE_READY_TIMEOUT_S": allowed})
    assert f"TimeoutStartSec={seconds}" in found[UNIT].splitlines()


def test_the_units_themselves_are_the_same_with_and_without_shared_chips():
    alone, shared = rendered_plan(), rendered_plan(residents="gpu0")
    assert set(shared) - set(alone) == {DROP_IN, SERVICE}
    assert all(shared[path] == text for path, text in alone.items())
    alone, shared = rendered_plan(**VENV), rendered_plan(residents="gpu0", **VENV)
    assert SHARED_UNIT in alone and all(shared[path] == text for path, text in alone.items())


def test_the_service_of_shared_chips_is_confined():
    lines = rendered_plan(residents="gpu0")[SERVICE].splitlines()
    assert "ExecStart=/usr/bin/python3 -I /usr/local/lib/vllm-residents.py serve %i 5.0" in lines
    for line in ("Group=vllm", "CapabilityBoundingSet=CAP_DAC_OVERRIDE", "RuntimeDirectoryMode=0700", "Restart=always",
                 "UMask=0027", "NoNewPrivileges=true", "ProtectSystem=strict", "StopWhenUnneeded=true"):  # fmt: skip
        assert line in lines


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_reads_the_service_of_shared_chips(tmp_path):
    unit = tmp_path / "vllm-residents@gpu0.service"
    unit.write_text(rendered_plan(residents="gpu0")[SERVICE])
    done = subprocess.run(["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True)
    assert "Unknown" not in done.stderr and "Failed to parse" not in done.stderr
