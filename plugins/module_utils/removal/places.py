# SPDX-License-Identifier: GPL-3.0-or-later
"""Every path of hosts that the collection writes to: who writes it, and what removes it.

docs/reference/what-lies-where.md says of each what it is, and what lies on the controller. Words in capitals stand for
names; a path that ends with a slash stands for everything below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# What removes a place: an option of playbooks/remove.yml, or nothing of the collection.
INSTANCE, MODEL, ENVIRONMENT = "remove_instance", "remove_model", "remove_environment"
EVERYTHING, DRIVER, ENGINE, NOTHING = "remove_everything", "remove_driver", "remove_container_engine", "by hand"


@dataclass(frozen=True)
class Place:
    """A path, the role or playbook that writes it, and what removes it."""

    path: str
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
    Place("/etc/systemd/system/vllm@.service", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm@NAME.service", "vllm", INSTANCE),
    Place("/etc/systemd/system/vllm@.service.d/", "vllm, you", EVERYTHING),
    Place("/etc/systemd/system/multi-user.target.wants/vllm@NAME.service", "vllm", INSTANCE),
    Place("/etc/systemd/system/vllm@NAME.service.d/", "vllm, you", INSTANCE),
    Place("/etc/systemd/system/vllm-group@.service", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-router@.service", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-preload@.service", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-residents@.service", "vllm", EVERYTHING),
    Place("/etc/systemd/system/vllm-scale.service", "vllm-scale", EVERYTHING),
    Place("/etc/containers/systemd/vllm@NAME.container", "vllm", INSTANCE),
    Place("/etc/containers/systemd/vllm@NAME.container.d/", "you", INSTANCE),
    Place("/etc/vllm/NAME.env", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.secrets", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.yaml", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.group.json", "vllm", INSTANCE),
    Place("/etc/vllm/NAME.nft", "vllm", INSTANCE),
    Place("/etc/vllm/", "vllm", EVERYTHING),
    Place("/var/lib/vllm/NAME/", "vllm", INSTANCE),
    Place("/var/lib/vllm/rollout.json", "rollout", EVERYTHING),
    Place("/var/lib/vllm/tune.json", "tune.yml", EVERYTHING),
    Place("/var/lib/vllm/tune.json.lock", "tune.yml", EVERYTHING),
    Place("/var/lib/vllm/", "vllm", EVERYTHING),
    Place("/var/cache/vllm/NAME/", "vllm", INSTANCE),
    Place("/var/cache/vllm/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-wait-ready.py", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-wait-ready/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-drain.py", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-drain/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-group.py", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-group/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-router.py", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-router/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-preload.py", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-preload/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-residents.py", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-residents/", "vllm", EVERYTHING),
    Place("/usr/local/lib/vllm-scale.py", "vllm-scale", EVERYTHING),
    Place("/usr/local/lib/vllm-scale/", "vllm-scale", EVERYTHING),
    Place("/usr/local/lib/vllm/", "vllm", EVERYTHING),
    Place("/run/vllm/NAME/", "vllm", INSTANCE),
    Place("/run/vllm/", "vllm", EVERYTHING),
    Place("/run/vllm-preload/", "vllm", EVERYTHING),
    Place("/run/vllm-group/NAME/", "vllm", INSTANCE),
    Place("/run/vllm-group/", "vllm", EVERYTHING),
    Place("/run/vllm-residents/GROUP/", "vllm", EVERYTHING),
    Place("/run/vllm-residents/", "vllm", EVERYTHING),
    Place("/run/vllm-scale/", "vllm-scale", EVERYTHING),
    Place("/opt/vllm/RELEASE-HASH/", "vllm", ENVIRONMENT),
    Place("/opt/vllm/uv-VERSION/", "vllm", EVERYTHING),
    Place("/opt/vllm/", "vllm", EVERYTHING, True),
    Place("/srv/models/ORG/MODEL/", "weights", MODEL),
    Place("/srv/models/", "weights", EVERYTHING, True),
    Place("/etc/systemd/system/weights-scrub.service", "weights", EVERYTHING),
    Place("/etc/systemd/system/weights-scrub.timer", "weights", EVERYTHING),
    Place("/usr/local/lib/weights-scrub.py", "weights", EVERYTHING),
    Place("/usr/local/lib/weights-scrub/", "weights", EVERYTHING),
    Place("/var/lib/systemd/timers/stamp-weights-scrub.timer", "weights", EVERYTHING),
    Place("/var/lib/baremetal-inference/", "vllm, weights", EVERYTHING),
    Place("/srv/encodings/NAME.tiktoken", "encodings", EVERYTHING),
    Place("/srv/encodings/", "encodings", EVERYTHING, True),
    Place("/var/lib/baremetal-rollout/", "rollout", EVERYTHING),
    Place("/etc/systemd/system/vllm-health.service", "health", EVERYTHING),
    Place("/etc/vllm-health.json", "health", EVERYTHING),
    Place("/etc/vllm-health-webhook.json", "health", EVERYTHING),
    Place("/usr/local/lib/vllm-health.py", "health", EVERYTHING),
    Place("/usr/local/lib/vllm-health/", "health", EVERYTHING),
    Place("/usr/local/sbin/vllm-health", "health", EVERYTHING),
    Place("/var/lib/vllm-health/", "health", EVERYTHING),
    Place("/var/lib/prometheus/node-exporter/vllm-health.prom", "health", EVERYTHING),
    Place("/etc/systemd/system/host-tuning.service", "host_tuning", EVERYTHING),
    Place("/etc/host-tuning.json", "host_tuning", EVERYTHING),
    Place("/usr/local/lib/host-tuning.py", "host_tuning", EVERYTHING),
    Place("/usr/local/lib/host-tuning/", "host_tuning", EVERYTHING),
    Place("/usr/local/sbin/host-tuning", "host_tuning", EVERYTHING),
    Place("/var/lib/host-tuning/", "host_tuning", EVERYTHING),
    Place("/etc/security/limits.d/90-host-tuning.conf", "host_tuning", EVERYTHING),
    Place("/etc/systemd/system.conf.d/90-host-tuning.conf", "host_tuning", EVERYTHING),
    Place("/etc/default/grub.d/90-baremetal-host-tuning.cfg", "host_tuning", NOTHING),
    Place("/etc/systemd/system/prometheus-node-exporter.service", "monitoring", EVERYTHING),
    Place("/etc/systemd/system/gateway-agent.service", "gateway", EVERYTHING),
    Place("/etc/systemd/system/gateway-agent.socket", "gateway", EVERYTHING),
    Place("/etc/systemd/system/gateway-readers.service", "gateway", EVERYTHING),
    Place("/etc/systemd/system/haproxy.service.d/50-gateway.conf", "gateway", EVERYTHING),
    Place("/etc/haproxy/haproxy.cfg", "gateway", EVERYTHING),
    Place("/etc/haproxy/maps/", "gateway", EVERYTHING),
    Place("/etc/haproxy/certs/gateway.pem", "gateway", EVERYTHING),
    Place("/etc/haproxy/certs/gateway.pem.key", "gateway", EVERYTHING),
    Place("/etc/haproxy/gateway-agent.json", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-tool.py", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-tool/", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-agent.py", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-agent/", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-batch.py", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-batch/", "gateway", EVERYTHING),
    Place("/etc/systemd/system/gateway-usage.service", "gateway", EVERYTHING),
    Place("/etc/systemd/system/gateway-usage.socket", "gateway", EVERYTHING),
    Place("/etc/haproxy/gateway-usage.json", "gateway", EVERYTHING),
    Place("/etc/haproxy/gateway-secret.map", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-usage.py", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-usage/", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway_usage_store.py", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway_usage_budgets.py", "gateway", EVERYTHING),
    # With DynamicUser=, systemd keeps the data in /var/lib/private, and /var/lib has a link to it.
    Place("/var/lib/private/gateway-usage/", "gateway", EVERYTHING),
    Place("/var/lib/gateway-usage/", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-settle.lua", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-hanging.lua", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-body.lua", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-admission.lua", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-await.lua", "gateway", EVERYTHING),
    Place("/usr/local/lib/gateway-refuse.lua", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/server-state", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/routed/", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/drained.json", "gateway", EVERYTHING),
    Place("/var/lib/haproxy/address-arrivals", "gateway", EVERYTHING),
    Place("/run/gateway-readers/", "gateway", EVERYTHING),
    Place("/var/lib/private/gateway-agent/", "gateway", EVERYTHING),
    Place("/var/lib/gateway-agent/", "gateway", EVERYTHING),
    Place("/etc/keepalived/keepalived.conf", "gateway", EVERYTHING),
    Place("/etc/nginx/conf.d/mirror.conf", "mirror", EVERYTHING),
    Place("/etc/systemd/system/nginx.service.d/50-mirror.conf", "mirror", EVERYTHING),
    Place("/etc/systemd/system/nginx.service.d/60-mirror.conf", "mirror", EVERYTHING),
    Place("/etc/systemd/system/mirror-openings.service", "mirror", EVERYTHING),
    Place("/etc/nginx/nginx.conf", "mirror, provisioner", NOTHING),
    Place("/etc/nginx/sites-enabled/default", "mirror", NOTHING),
    Place("/var/lib/prometheus/node-exporter/mirror.prom", "mirror", EVERYTHING),
    Place("/var/lib/baremetal-inference/mirror-accepted", "mirror", EVERYTHING),
    Place("/etc/docker/registry/config.yml", "mirror", EVERYTHING),
    Place("/etc/systemd/system/docker-registry.service.d/50-mirror.conf", "mirror", EVERYTHING),
    Place("/run/docker-registry/", "mirror", NOTHING),
    Place("/srv/mirror/", "mirror, you", NOTHING),
    Place("/etc/systemd/system/baremetal-provisioner.service", "provisioner", EVERYTHING),
    Place("/etc/nginx/conf.d/provisioner.conf", "provisioner", EVERYTHING),
    Place("/etc/systemd/system/nginx.service.d/60-provisioner.conf", "provisioner", EVERYTHING),
    Place("/etc/systemd/system/provisioner-openings.service", "provisioner", EVERYTHING),
    Place("/etc/baremetal-provisioner/", "provisioner", EVERYTHING),
    Place("/usr/local/lib/baremetal-provisioner/", "provisioner", EVERYTHING),
    Place("/opt/provisioner/", "provisioner", EVERYTHING),
    Place("/var/lib/baremetal-provisioner/", "provisioner", EVERYTHING),
    Place("/var/cache/baremetal-provisioner/", "provisioner", EVERYTHING),
    Place("/srv/provisioner/", "provisioner", EVERYTHING),
    Place("/etc/baremetal-inference/", "provision.yml", NOTHING),
    Place("/var/lib/docker-registry/", "mirror", NOTHING),
    Place("/var/tmp/evaluate-X.NAME/", "evaluate.yml", NOTHING),  # noqa: S108 (a name for people; the playbook makes it with mkdtemp)
    Place("/var/lib/baremetal-STACK/", "cuda, rocm, cann", DRIVER),
    Place("/etc/modprobe.d/baremetal-nouveau.conf", "cuda", DRIVER),
    Place("/etc/modules-load.d/baremetal-nvlink5.conf", "cuda", DRIVER),
    Place("/etc/systemd/system/nvidia-persistenced.service.d/baremetal.conf", "cuda", DRIVER),
    Place("/etc/default/grub.d/baremetal-rocm.cfg", "rocm", DRIVER),
    Place("/etc/sysctl.d/90-baremetal-rocm.conf", "rocm", DRIVER),
    Place("/etc/apt/preferences.d/baremetal-rocm", "rocm", DRIVER),
    Place("/etc/modprobe.d/", "rocm", NOTHING),
    Place("/usr/local/Ascend/", "cann", NOTHING),
    Place("/etc/ascend_install.info", "cann", NOTHING),
    Place("/etc/apt/keyrings/", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/usr/share/keyrings/", "cann", NOTHING),
    Place("/etc/apt/sources.list.d/", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/etc/pki/rpm-gpg/", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/etc/yum.repos.d/", "cuda, rocm, cann, container_runtime", NOTHING),
    Place("/etc/docker/daemon.json", "container_runtime", NOTHING),
    Place("/etc/containers/registries.conf.d/50-container-runtime.conf", "container_runtime", ENGINE),
    Place("/etc/containers/storage.conf", "container_runtime", NOTHING),
    Place("/etc/udev/rules.d/71-nvidia-dev-char.rules", "container_runtime", ENGINE),
    Place("/etc/cdi/amd.json", "container_runtime", ENGINE),
    Place("/etc/cdi/nvidia.yaml", "container_runtime", ENGINE),
    Place("/usr/local/Ascend/Ascend-Docker-Runtime/", "container_runtime", NOTHING),
    Place("/var/cache/ascend-docker-runtime/", "container_runtime", ENGINE),
)

SERVICES = (
    Service("weights", "/etc/systemd/system/weights-scrub.timer", ("weights-scrub.timer", "weights-scrub.service")),
    Service("host_tuning", "/etc/systemd/system/host-tuning.service", ("host-tuning.service",)),
    # The package stays, and its own unit with it, disabled.
    Service(
        "monitoring", "/etc/systemd/system/prometheus-node-exporter.service", ("prometheus-node-exporter.service",)
    ),
    Service("vllm-scale", "/etc/systemd/system/vllm-scale.service", ("vllm-scale.service",)),
    Service("health", "/etc/systemd/system/vllm-health.service", ("vllm-health.service",)),
    Service(
        "gateway",
        "/etc/haproxy/gateway-agent.json",
        (
            *("keepalived.service", "haproxy.service", "gateway-agent.socket", "gateway-agent.service"),
            *("gateway-usage.socket", "gateway-usage.service", "gateway-readers.service"),
        ),
    ),
    Service(
        "provisioner",
        "/etc/systemd/system/baremetal-provisioner.service",
        ("baremetal-provisioner.service", "provisioner-openings.service"),
        ("nginx.service",),
    ),
    Service(
        "mirror",
        "/etc/systemd/system/nginx.service.d/50-mirror.conf",
        ("docker-registry.service", "mirror-openings.service"),
        ("nginx.service",),
    ),
)

_WORD = re.compile(r"[A-Z]{2,}")


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
