# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables a fleet file may set: none that makes the controller run a program, or read or write a file."""

import re
from typing import Any

from ..common.playbook_options import known_options
from ..common.role_options import FILES, ON_CONTROLLER, SWITCHES, options_of

# Variables that the plugin reads; misspelt variables are compared with these.
KNOWN = (
    "accelerator", "accelerator_bmc", "accelerator_count", "accelerator_cuda_version", "accelerator_driver_version",
    "accelerator_mec_firmware", "accelerator_memory_gib", "accelerator_partition", "accelerators", "cluster", "site",
)  # fmt: skip
# Variables that the plugin or Ansible sets, and secrets, which would appear in every cache and listing.
_REFUSED = {
    "accelerator_conflict": "the plugin sets it",
    "accelerator_detected": "the plugin sets it",
    "accelerator_discovered_at": "the plugin sets it",
    "accelerator_mixed": "the plugin sets it",
    "accelerator_stale": "the plugin sets it",
    "accelerator_bmc_password": "a password belongs into a vaulted file of group_vars or host_vars",
    "inventory_dir": "Ansible sets it",
    "inventory_file": "Ansible sets it",
}
# Of Ansible's own. Each other one may name a program, words for one, or a file: ansible_ssh_common_args.
_OF_ANSIBLE = ("ansible_become", "ansible_host", "ansible_port", "ansible_user")
# ssh gets these as words, and takes one that begins with - for an option.
_WORDS = {
    "ansible_host": (re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*"), "a name or an address"),
    "ansible_user": (re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\+-]*\$?"), "the name of a user"),
}
# Options of roles that name directories or tasks of the controller.
_PLACES = re.compile(r"(?:accelerator|cann|cuda|health|rocm|rollout|vllm|weights)_\w*(?:path|tasks)")
# These name files of the controller in their values: keys, tokens, weights to send.
_WITH_FILES = ("gateway_clients", "weights_sources")
# Ansible runs the tasks of the controller where these say.
CONTROLLER = ("localhost", "127.0.0.1", "::1")


def refusal(name: str) -> str | None:
    """Return why a fleet file cannot set a variable; None where it can."""
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith("ansible_") and name not in _OF_ANSIBLE:
        return f"of Ansible's own, a fleet file sets only {', '.join(_OF_ANSIBLE)}; set it in group_vars or host_vars"
    if name.startswith("__"):
        return "names with __ are private to the collection; rename it"
    if name in ON_CONTROLLER or name in FILES or name in _WITH_FILES or _PLACES.fullmatch(name):
        return "it names files on the controller; set it in group_vars or host_vars"
    if name in known_options() and name not in options_of("monitoring") and name not in SWITCHES:
        return "it is an option of a playbook; set it with -e, or in group_vars or host_vars"
    return None


def value_problem(name: str, value: Any) -> str | None:
    """Return what is wrong with the address or the user of a connection; None where nothing is."""
    pattern, expected = _WORDS.get(name, (None, ""))
    if pattern is None or value is None or (isinstance(value, (str, int)) and pattern.fullmatch(str(value))):
        return None
    return expected
