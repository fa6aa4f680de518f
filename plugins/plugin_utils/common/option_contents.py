# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of role options that are more than a type: sources, waves, prompts, Huawei's files.

The code that uses such an option on a host refuses the same values, but only after hosts have been contacted.
"""

import functools
import ipaddress
import re
from typing import Any, Callable, Mapping

from ...module_utils.cann.installers import read_files
from ...module_utils.common.ip_addresses import is_ip
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.containers.image_names import IMAGE, REGISTRY
from ...module_utils.encodings.host import check_sources
from ...module_utils.endpoint.gates import GateError, load_of, prompts_of
from ...module_utils.health.webhook import check_token, check_url
from ...module_utils.host_tuning.settings import limit_files
from ...module_utils.weights.sources import parse_sources
from .addresses import is_host, is_listen
from .wave_sizes import WaveSizeError, size_of


class ContentError(ValueError):
    """The value of an option is refused; the message begins with the option's name."""


def check_contents(name: str, value: Any) -> None:
    """Raise ContentError for a value that the option's type allows and that no host could use."""
    check = CHECKS.get(name)
    if check is None:
        return
    try:
        check(value)
    except (ValueError, GateError) as exc:
        text = str(exc)
        # The messages about the gates have the names of the module's options.
        raise ContentError(text if text.startswith(name) else f"rollout_{text}") from exc


def _waves(value: Any) -> None:
    for number, entry in enumerate(_listed(value)):
        try:
            size_of(entry, 1)
            # Of a text such as 1,50 on a command line every entry is a text.
            if isinstance(value, list) and isinstance(entry, str) and entry.strip().isdecimal():
                share = f'a share such as "{entry.strip()}%"'
                raise WaveSizeError(f"found the text {show_value(entry)}, expected a number without quotes, or {share}")
        except WaveSizeError as exc:
            raise ContentError(f"rollout_waves[{number}]: {exc}") from exc


def _listed(value: Any) -> list[Any]:
    """Return a list of the option; a text counts as the words between its commas, as for Ansible."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else list(value or [])


def _version(name: str, example: str, value: Any) -> None:
    """Raise ValueError for anything but the text of a version; YAML reads 580.10 without quotes as the number 580.1."""
    if not isinstance(value, str) or not re.fullmatch(r"([0-9][\w.+~-]*)?", value, re.ASCII):
        raise ValueError(f'{name}: found {show_value(value)[:80]}, expected a version in quotes, such as "{example}"')


def _matches(name: str, pattern: str, expected: str, value: Any) -> None:
    """Raise ValueError for a text that is not empty and does not match the pattern whole."""
    if value != "" and not (isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII)):
        # The text may hold a password.
        found = "a text with @" if "@" in str(value) else show_value(value)[:80]
        raise ValueError(f"{name}: found {found}, expected {expected}")


def _network(value: Any) -> None:
    """Raise ValueError for a text that is not empty and no network, as the plan of an instance with nodes does."""
    try:
        ipaddress.ip_network(str(value)) if value else None
    except ValueError as exc:
        found = f"vllm_cluster_network: found {show_value(value)[:80]}"
        raise ValueError(f"{found}, expected a network such as 10.20.0.0/24 ({exc})") from exc


def _user(value: Any) -> None:
    if isinstance(value, bool):
        raise ValueError(f"vllm_user: found {show_value(value)}, expected a text")
    # Also one of a directory service, such as vllm@site.
    _matches("vllm_user", r"[A-Za-z_][A-Za-z0-9_.@-]{0,254}\$?", "the name of a system user, such as vllm", value)


def _registries(name: str, value: Any) -> None:
    for number, entry in enumerate(_listed(value)):
        _matches(f"{name}[{number}]", REGISTRY, "a registry without http://, such as registry.site:5000", entry)


def _listen(name: str, value: Any) -> None:
    expected = "an address such as 10.0.0.5, or 0.0.0.0 for all of them"
    # nginx takes no empty address; HAProxy takes one for all of them.
    if name == "mirror_listen" and value == "":
        raise ValueError(f"{name}: found nothing, expected {expected}")
    _host(name, is_listen, expected, value)


def _is_ipv4(text: str) -> bool:
    return is_ip(text) and ":" not in text


def _port_range(value: Any) -> None:
    """Raise ValueError for anything but two ports, the smaller one first: the firewall of a group reads them."""
    first, last = ([int(port) for port in re.findall(r"[0-9]{1,5}", str(value))] + [0, 0])[:2]
    if not re.fullmatch(r"[0-9]{1,5}-[0-9]{1,5}", str(value)) or not 0 < first <= last <= 65535:
        expected = "two ports with the smaller one first, such as 32768-60999"
        raise ValueError(f"vllm_group_ports: found {show_value(value)[:80]}, expected {expected}")


def _calendar(value: Any) -> None:
    """Raise ValueError for a word that systemd does not know; other times have a digit, a * or a day of the week."""
    word = str(value).strip().lower()
    if word.isalpha() and word not in _CALENDAR and word[:3] not in _DAYS:
        raise ValueError(f"weights_scrub_calendar: found {show_value(value)[:80]}; {nearest(word, _CALENDAR)}")


def _governor(value: Any) -> None:
    if value and value not in _GOVERNORS:
        raise ValueError(f"host_tuning_governor: found {show_value(value)[:80]}; {nearest(str(value), _GOVERNORS)}")


_GOVERNORS = ("conservative", "ondemand", "performance", "powersave", "schedutil", "userspace")
_CALENDAR = (
    "annually", "daily", "hourly", "minutely", "monthly", "quarterly", "semiannually", "weekly", "yearly",
)  # fmt: skip
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def check_gateway_secret(text: str, where: str, otherwise: str) -> list[str]:
    """Return the secrets in a text, none in an empty one. Raises ValueError, without the secret in the message."""
    values = text.split()
    if len(values) > 2 or not all(map(_SECRET.fullmatch, values)) or (not values and text):
        lengths = ", ".join(str(len(value)) for value in values[:9]) or "0"
        raise ValueError(
            f"{where}: found words of {lengths} characters, expected one of 32 to 128 letters, digits and ._~+/=-, or "
            f"two while it changes; write one of openssl rand -hex 32, or {otherwise}"
        )
    return values


def _gateway_secret(value: Any) -> None:
    check_gateway_secret(str(value), GATEWAY_SECRET, OF_STATE_DIR)


def _host(name: str, accepts: Callable[[str], bool], expected: str, value: Any) -> None:
    """Raise ValueError for a text that is neither empty nor the address or the name of a host."""
    if value != "" and not (isinstance(value, str) and accepts(value)):
        raise ValueError(f"{name}: found {show_value(value)[:80]}, expected {expected}")


def _gateway_names(value: Any) -> None:
    for number, entry in enumerate(_listed(value)):
        # A wildcard stands for one part of a name.
        if not isinstance(entry, str) or not is_host(entry.removeprefix("*.")):
            raise ValueError(
                f"gateway_names[{number}]: found {show_value(entry)[:80]}, expected the name of a host without "
                "https:// and port, such as chat.example.net, or an IP address"
            )


GATEWAY_SECRET = "gateway_secret"  # noqa: S105  (the name of the option)
OF_STATE_DIR = "leave it out for that of the state directory"
# What arrives unchanged through a file of variables, a map of HAProxy and a header.
_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]{32,128}")
# Options that hold an address or an absolute path; a host's programs would take anything else for a relative path.
ADDRESSES = (
    "cann_mirror", "cann_repository_key", "container_runtime_mirror_url", "cuda_epel_mirror", "cuda_mirror",
    "provisioner_debian_mirror", "provisioner_ubuntu_mirror", "provisioner_wheel_index", "rocm_epel_mirror",
    "rocm_mirror", "vllm_caches_source", "vllm_wheel_index",
)  # fmt: skip
# Addresses that a program of the host listens on; the role gateway checks gateway_listen together with its others.
LISTENS = ("gateway_stats_listen", "mirror_listen", "monitoring_node_listen")
_ADDRESS = r"(?:[a-z][a-z0-9+.-]*://[^\s/]|file:/|/)\S*"
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "accelerator_cuda_version": functools.partial(_version, "accelerator_cuda_version", "13.0"),
    "accelerator_driver_version": functools.partial(_version, "accelerator_driver_version", "580.95.05"),
    "cann_run_files": lambda value: read_files(value or []),
    "encodings_sources": lambda value: check_sources(_listed(value)),
    **{
        name: functools.partial(_registries, name)
        for name in ("container_runtime_insecure_registries", "container_runtime_registry_mirrors")
    },
    "gateway_host_address": functools.partial(
        _host, "gateway_host_address", is_host, "an IP address such as 10.0.0.5, or the name of a host"
    ),
    "gateway_interface": functools.partial(
        _matches, "gateway_interface", r"[^\s/]{1,15}", "the name of a network interface, such as eth0"
    ),
    "gateway_names": _gateway_names,
    GATEWAY_SECRET: _gateway_secret,
    "health_webhook_token": check_token,
    "health_webhook_url": check_url,
    "host_tuning_governor": _governor,
    "host_tuning_limits": lambda value: limit_files({str(key): entry for key, entry in (value or {}).items()}),
    "mirror_server_name": functools.partial(
        _host, "mirror_server_name", is_host, "the name of a host, such as mirror.site, or _ for any name"
    ),
    "provisioner_address": functools.partial(
        _host, "provisioner_address", _is_ipv4, "the IPv4 address that servers and BMCs reach, such as 10.0.0.5"
    ),
    "rollout_measure": load_of,
    "rollout_prompts": prompts_of,
    "rollout_waves": _waves,
    "vllm_cluster_network": _network,
    "vllm_group_ports": _port_range,
    "vllm_image": functools.partial(
        _matches, "vllm_image", IMAGE, "the name of an image, such as vllm/vllm-openai:v0.33.0"
    ),
    "vllm_registry": functools.partial(
        _matches,
        "vllm_registry",
        REGISTRY,
        "a registry without http://, such as registry.site:5000",
    ),
    "vllm_user": _user,
    "weights_scrub_calendar": _calendar,
    **{name: functools.partial(_listen, name) for name in LISTENS},
    **{
        name: functools.partial(
            _matches, name, _ADDRESS, "an address such as https://mirror.site/path, or an absolute path"
        )
        for name in ADDRESSES
    },
    "weights_sources": lambda value: parse_sources([entry for entry in _listed(value) if entry != ""]),
}
