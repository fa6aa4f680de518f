# SPDX-License-Identifier: GPL-3.0-or-later
"""Every path that the collection writes to: who writes it, and what removes it.

docs/reference/what-lies-where.md has the same table. Words in capitals stand for names; a path that ends with a slash
stands for everything below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# What removes a place: an option of playbooks/remove.yml, or nothing of the collection.
INSTANCE, MODEL, ENVIRONMENT = "remove_instance", "remove_model", "remove_environment"
EVERYTHING, DRIVER, ENGINE, NOTHING = "remove_everything", "remove_driver", "remove_container_engine", "by hand"


@dataclass(frozen=True)
class Place:
    """A path, what lies there, the role or playbook that writes it, and what removes it."""

    path: str
    what: str
    writer: str
    removed_by: str
    # Whether it is removed only when it is empty.
    when_empty: bool = False


@dataclass(frozen=True)
class Service:
    """The units of a role that are stopped before its files are removed.

    ``marker`` is a file that only this role writes. It is removed last: while it exists, a later run knows that
    something remains. ``restarted`` are other units that have read files of the role.
    """

    role: str
    marker: str
    stopped: tuple[str, ...]
    restarted: tuple[str, ...] = ()


HOST = (
    Place("/etc/systemd/system/vllm@.service", "the unit of all instances in virtual environments", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm@NAME.service", "the unit of an instance in a container", "vllm", INSTANCE),
    Place(
        "/etc/systemd/system/vllm@.service.d/", "drop-ins of all instances, if you made any", "vllm, you", EVERYTHING
    ),
    Place("/etc/systemd/system/multi-user.target.wants/vllm@NAME.service", "its start at boot", "vllm", INSTANCE),
    Place(
        "/etc/systemd/system/vllm@NAME.service.d/", "drop-ins of an instance, if you made any", "vllm, you", INSTANCE
    ),
    Place("/etc/systemd/system/vllm-group@.service", "the watchdog of hosts that serve together", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-router@.service", "the router of decode hosts", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-preload@.service", "the service of preloaded weights", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-residents@.service", "the service of shared chips", "vllm", EVERYTHING),
    Place("/etc/containers/systemd/vllm@NAME.container", "the quadlet of an instance in podman", "vllm", INSTANCE),
    Place("/etc/containers/systemd/vllm@NAME.container.d/", "drop-ins of a quadlet, if you made any", "you", INSTANCE),
    Place("/etc/vllm/NAME.env", "the environment of an instance", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.secrets", "the secrets of an instance, for root only", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.yaml", "the arguments of an instance", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.group.json", "the hosts of an instance that spans several", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.nft", "the firewall of the ports between them", "vllm", INSTANCE),
    Place("/etc/vllm/", "the directory of the files above", "vllm", EVERYTHING),
    Place("/var/lib/vllm/NAME/", "start script, link to the weights, kept states of an instance", "vllm", INSTANCE),
    Place("/var/lib/vllm/rollout.json", "the mark of a rollout that updates the host", "rollout", EVERYTHING),
    Place("/var/lib/vllm/tune.json", "the lock of a tune that works on the host", "tune.yml", EVERYTHING),
    Place("/var/lib/vllm/tune.json.lock", "held while that file is read and written", "tune.yml", EVERYTHING),
    Place("/var/lib/vllm/", "the home of the user `vllm`", "vllm", EVERYTHING),
    Place("/var/cache/vllm/NAME/", "compiled kernels and graphs of an instance, records of tokens", "vllm", INSTANCE),
    Place("/var/cache/vllm/", "the directory of the caches", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-wait-ready.py", "the probe of a starting instance", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-wait-ready/", "the modules that it imports", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-drain.py", "lets the requests of a stopping instance end", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-drain/", "the modules that it imports", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-group.py", "the program of the watchdog", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-group/", "the modules that it imports", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-router.py", "starts the router", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-router/", "the modules that it imports", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-preload.py", "the program of that service", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-preload/", "the modules that it imports", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-residents.py", "the program of that service", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-residents/", "the modules that it imports", "vllm", EVERYTHING),
    Place(
        "/usr/local/lib/vllm/",
        "what vLLM imports: for gateways: whether it takes requests, tokens, and models that a key may use",
        "vllm",
        EVERYTHING,
    ),
    Place("/run/vllm/NAME/", "marks of start and stop, for as long as the unit runs", "vllm", INSTANCE),
    Place("/run/vllm-preload/", "sockets of preloaded weights", "vllm", EVERYTHING),
    Place("/run/vllm-group/NAME/", "what the watchdog sees, for as long as it runs", "vllm", INSTANCE),
    Place(
        "/run/vllm-residents/GROUP/",
        "its socket, and when its loops last worked, for as long as it runs",
        "vllm",
        EVERYTHING,
    ),
    Place("/opt/vllm/RELEASE-HASH/", "a virtual environment (`vllm_venv_root`)", "vllm", ENVIRONMENT),
    Place("/opt/vllm/uv-VERSION/", "uv, which makes the environments", "vllm", EVERYTHING),
    Place("/opt/vllm/", "the directory of the environments, if nothing else is in it", "vllm", EVERYTHING, True),
    Place(
        "/srv/models/ORG/MODEL/", "a model: its revisions, lock, partial downloads (`weights_root`)", "weights", MODEL
    ),
    Place("/srv/models/", "the directory of the models, if nothing else is in it", "weights", EVERYTHING, True),
    Place("/etc/systemd/system/weights-scrub.service", "the scrub", "weights", EVERYTHING),
    Place("/etc/systemd/system/weights-scrub.timer", "its timer", "weights", EVERYTHING),
    Place("/usr/local/lib/weights-scrub.py", "its program", "weights", EVERYTHING),
    Place("/usr/local/lib/weights-scrub/", "the modules that it imports", "weights", EVERYTHING),
    Place("/var/lib/systemd/timers/stamp-weights-scrub.timer", "when it ran last", "weights", EVERYTHING),
    Place(
        "/var/lib/baremetal-inference/",
        "the report of the scrub; which libraries accept the encodings",
        "vllm, weights",
        EVERYTHING,
    ),
    Place("/srv/encodings/NAME.tiktoken", "the encodings (`encodings_dir`)", "encodings", EVERYTHING),
    Place("/srv/encodings/", "their directory, if nothing else is in it", "encodings", EVERYTHING, True),
    Place("/var/lib/baremetal-rollout/", "the locks of rollouts", "rollout", EVERYTHING),
    Place("/etc/systemd/system/vllm-health.service", "watches the chips", "health", EVERYTHING),
    Place("/etc/vllm-health.json", "its configuration", "health", EVERYTHING),
    Place("/usr/local/lib/vllm-health.py", "its program", "health", EVERYTHING),
    Place("/usr/local/lib/vllm-health/", "the modules that it imports", "health", EVERYTHING),
    Place("/usr/local/sbin/vllm-health", "its command for people", "health", EVERYTHING),
    Place("/var/lib/vllm-health/", "what it knows of sick chips", "health", EVERYTHING),
    Place(
        "/var/lib/prometheus/node-exporter/vllm-health.prom",
        "metrics of the chips (`health_metrics_file`)",
        "health",
        EVERYTHING,
    ),
    Place("/etc/systemd/system/host-tuning.service", "sets the host's settings at boot", "host_tuning", EVERYTHING),
    Place("/etc/host-tuning.json", "its configuration", "host_tuning", EVERYTHING),
    Place("/usr/local/lib/host-tuning.py", "its program", "host_tuning", EVERYTHING),
    Place("/usr/local/lib/host-tuning/", "the modules that it imports", "host_tuning", EVERYTHING),
    Place("/usr/local/sbin/host-tuning", "its command for people", "host_tuning", EVERYTHING),
    Place("/var/lib/host-tuning/", "the settings from before", "host_tuning", EVERYTHING),
    Place("/etc/security/limits.d/90-host-tuning.conf", "limits of logins", "host_tuning", EVERYTHING),
    Place("/etc/systemd/system.conf.d/90-host-tuning.conf", "limits of units", "host_tuning", EVERYTHING),
    Place(
        "/etc/default/grub.d/90-baremetal-host-tuning.cfg",
        "arguments of the kernel; a run without `host_tuning_iommu_pt` removes them",
        "host_tuning",
        NOTHING,
    ),
    Place("/etc/systemd/system/prometheus-node-exporter.service", "the node exporter", "monitoring", EVERYTHING),
    Place("/etc/systemd/system/gateway-agent.service", "the agent of a gateway", "gateway", EVERYTHING),
    Place("/etc/systemd/system/haproxy.service.d/50-gateway.conf", "a drop-in of HAProxy", "gateway", EVERYTHING),
    Place("/etc/haproxy/haproxy.cfg", "the configuration of HAProxy", "gateway", EVERYTHING),
    Place("/etc/haproxy/maps/", "hashes of the clients' keys, their limits and rights", "gateway", EVERYTHING),
    Place("/etc/haproxy/certs/gateway.pem", "the certificate of a gateway", "gateway", EVERYTHING),
    Place("/etc/haproxy/certs/gateway.pem.key", "its key, for root only", "gateway", EVERYTHING),
    Place("/etc/haproxy/gateway-agent.json", "the configuration of the agent", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-tool.py", "saves the states of the servers", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-tool/", "the modules that it imports", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-agent.py", "the program of the agent", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-agent/", "the modules that it imports", "gateway", EVERYTHING),
    Place("/etc/systemd/system/gateway-usage.service", "counts the tokens of clients", "gateway", EVERYTHING),
    Place("/etc/haproxy/gateway-usage.json", "the configuration of this service", "gateway", EVERYTHING),
    Place("/etc/haproxy/gateway-secret.map", "what gateways prove themselves with to instances", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-usage.py", "its program", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-usage/", "the modules that it imports", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway_usage_store.py", "a part of it before release 0.8.0", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway_usage_budgets.py", "a part of it before release 0.8.0", "gateway", EVERYTHING),
    Place("/var/lib/gateway-usage/", "the tokens of each client, team, model and hour", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-settle.lua", "an action of HAProxy", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-hanging.lua", "another action of HAProxy", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-body.lua", "a third action of HAProxy", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-admission.lua", "a fourth, with `gateway_admission`", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/server-state", "the states of the servers", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/routed/", "sockets of HAProxy to itself, for routers and reloads", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/drained.json", "who drained which server", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/address-arrivals", "how often a shared address came here", "gateway", EVERYTHING),
    Place("/var/lib/gateway-agent/", "whether this gateway can serve, for keepalived", "gateway", EVERYTHING),
    Place("/etc/keepalived/keepalived.conf", "the shared address of two gateways", "gateway", EVERYTHING),
    Place("/etc/nginx/conf.d/mirror.conf", "the site of a mirror", "mirror", EVERYTHING),
    Place("/etc/systemd/system/nginx.service.d/50-mirror.conf", "a drop-in of nginx", "mirror", EVERYTHING),
    Place("/etc/nginx/sites-enabled/default", "nginx's own site: removed where it conflicts", "mirror", NOTHING),
    Place(
        "/var/lib/prometheus/node-exporter/mirror.prom",
        "when the content was last changed (`mirror_metrics_file`)",
        "mirror",
        EVERYTHING,
    ),
    Place("/var/lib/baremetal-inference/mirror-accepted", "how new the accepted disk is", "mirror", EVERYTHING),
    Place("/etc/docker/registry/config.yml", "the configuration of the registry", "mirror", EVERYTHING),
    Place(
        "/etc/systemd/system/docker-registry.service.d/50-mirror.conf",
        "a drop-in of the registry",
        "mirror",
        EVERYTHING,
    ),
    Place("/srv/mirror/", "the carried disk and its index of wheels (`mirror_root`)", "mirror, you", NOTHING),
    Place("/var/lib/docker-registry/", "the images of the registry (`mirror_registry_storage`)", "mirror", NOTHING),
    Place(
        "/var/tmp/evaluate-X.NAME/",  # noqa: S108 (a name for people; the playbook makes it with mkdtemp)
        "a running evaluation, which removes it at its end",
        "evaluate.yml",
        NOTHING,
    ),
    Place("/var/lib/baremetal-STACK/", "the mark of a reboot, the vendor's installers", "cuda, rocm, cann", DRIVER),
    Place("/etc/modprobe.d/baremetal-nouveau.conf", "keeps nouveau unloaded", "cuda", DRIVER),
    Place("/etc/modules-load.d/baremetal-nvlink5.conf", "modules for NVLink 5", "cuda", DRIVER),
    Place("/etc/systemd/system/nvidia-persistenced.service.d/baremetal.conf", "a drop-in", "cuda", DRIVER),
    Place("/etc/default/grub.d/baremetal-rocm.cfg", "arguments of the kernel", "rocm", DRIVER),
    Place("/etc/sysctl.d/90-baremetal-rocm.conf", "settings of the kernel", "rocm", DRIVER),
    Place("/etc/apt/preferences.d/baremetal-rocm", "prefers AMD's packages", "rocm", DRIVER),
    Place("/etc/modprobe.d/", "copies of module options with a setting of AMD's driver taken out", "rocm", NOTHING),
    Place("/usr/local/Ascend/", "driver, firmware and toolkit", "cann", NOTHING),
    Place("/etc/ascend_install.info", "who owns the driver", "cann", NOTHING),
    Place("/etc/apt/keyrings/", "keys of package repositories", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/usr/share/keyrings/", "keys of package repositories", "cann", NOTHING),
    Place("/etc/apt/sources.list.d/", "package repositories", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/etc/pki/rpm-gpg/", "keys of package repositories", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/etc/yum.repos.d/", "package repositories", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/etc/docker/daemon.json", "settings of docker, merged with yours", "container_runtime", NOTHING),
    Place(
        "/etc/containers/registries.conf.d/50-container-runtime.conf",
        "registries of podman",
        "container_runtime",
        ENGINE,
    ),
    Place("/etc/containers/storage.conf", "where podman stores images", "container_runtime", NOTHING),
    Place("/etc/udev/rules.d/71-nvidia-dev-char.rules", "links of NVIDIA's device nodes", "container_runtime", ENGINE),
    Place("/etc/cdi/amd.json", "AMD's devices for containers", "container_runtime", ENGINE),
    Place("/etc/cdi/nvidia.yaml", "NVIDIA's devices for containers", "container_runtime", ENGINE),
    Place("/usr/local/Ascend/Ascend-Docker-Runtime/", "Huawei's runtime for docker", "container_runtime", NOTHING),
    Place("/var/cache/ascend-docker-runtime/", "its installer", "container_runtime", ENGINE),
)

CONTROLLER = (
    Place("EVALUATE_DIR/", "results of evaluations, prepared questions (`evaluate_dir`)", "evaluate.yml", NOTHING),
    Place(
        "~/.local/state/baremetal-inference/rollouts/ID/",
        "journal and report of a rollout (`rollout_state_dir`)",
        "rollout",
        NOTHING,
    ),
    Place(
        "~/.ansible/accelerators/",
        "answers of discovery, cache of the inventory plugin",
        "discover.yml, accelerators",
        NOTHING,
    ),
    Place("~/.ansible_async/", "results of downloads that report progress; Ansible removes them", "weights", NOTHING),
    Place(
        "GATEWAY_CA_DIR/",
        "the certificate authority of the gateways and its key (`gateway_ca_dir`)",
        "gateway",
        NOTHING,
    ),
    Place("ACCEPT_DIR/", "results of acceptances and their pages (`accept_dir`)", "accept.yml", NOTHING),
    Place("RENDER_DIR/", "files of a rendered fleet (`render_dir`)", "render.yml", NOTHING),
    Place("BUNDLE_DIR/", "the disk for a mirror (`bundle_dir`)", "mirror.yml", NOTHING),
    Place("FLEET_PAGE", "the page of the fleet (`fleet_page`)", "fleet.yml", NOTHING),
    Place("PIN_DEST/ORG/MODEL.yml", "the manifest of a model (`pin_dest`)", "pin_weights.yml", NOTHING),
    Place(
        "BENCH_DIR/HOST/INSTANCE/PLAN/",
        "raw results, summary, evidence and page of a benchmark (`bench_dir`)",
        "bench.yml",
        NOTHING,
    ),
    Place("CACHES_DIR/", "archives of compiled caches and their manifests (`caches_dir`)", "caches.yml", NOTHING),
    Place("TUNE_DIR/", "results of a tune, from which it goes on (`tune_dir`)", "tune.yml", NOTHING),
    Place("MONITORING_DIR/", "targets, rules and dashboards (`monitoring_dir`)", "monitoring.yml", NOTHING),
    Place("LOCK_DEST/requirements/", "locks of wheels of a release (`lock_dest`)", "lock_release.yml", NOTHING),
)

SERVICES = (
    Service("weights", "/etc/systemd/system/weights-scrub.timer", ("weights-scrub.timer", "weights-scrub.service")),
    Service("host_tuning", "/etc/systemd/system/host-tuning.service", ("host-tuning.service",)),
    # The package stays, and its own unit with it, disabled.
    Service(
        "monitoring", "/etc/systemd/system/prometheus-node-exporter.service", ("prometheus-node-exporter.service",)
    ),
    Service("health", "/etc/systemd/system/vllm-health.service", ("vllm-health.service",)),
    Service(
        "gateway",
        "/etc/haproxy/gateway-agent.json",
        ("keepalived.service", "haproxy.service", "gateway-agent.service", "gateway-usage.service"),
    ),
    Service(
        "mirror", "/etc/systemd/system/nginx.service.d/50-mirror.conf", ("docker-registry.service",), ("nginx.service",)
    ),
)

_WORD = re.compile(r"[A-Z]{2,}[A-Z_]*")


def covers(place: Place, path: str) -> bool:
    """Return whether a path lies at a place; capitals in the place stand for one name each."""
    pattern = "".join(
        "[^/]+" if index % 2 else re.escape(part)
        for index, part in enumerate(re.split(f"({_WORD.pattern})", place.path))
    )
    below = "(/.*)?" if place.path.endswith("/") else ""
    return re.fullmatch(pattern.rstrip("/") + below, path.rstrip("/")) is not None


def settings_of(removed_by: str) -> list[str]:
    """Return the paths that are removed with a driver or an engine."""
    paths = [place.path.rstrip("/") for place in HOST if place.removed_by == removed_by]
    return list(dict.fromkeys(path.replace("STACK", stack) for path in paths for stack in ("cuda", "rocm", "cann")))


def fixed_paths(role: str) -> list[str]:
    """Return the paths of a role that are removed with everything and have no name in capitals."""
    return [
        place.path.rstrip("/")
        for place in HOST
        if place.removed_by == EVERYTHING
        and place.writer.split(", ")[0] == role
        and not (place.when_empty or _WORD.search(place.path))
    ]
