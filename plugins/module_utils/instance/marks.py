# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that programs, vLLM's middleware and gateways say to each other about an instance.

Marks are files in the instance's directory below /run/vllm, which systemd makes and removes with the unit.
"""

CONFIG_DIR, STATE_DIR, RUN_DIR, CACHE_DIR = "/etc/vllm", "/var/lib/vllm", "/run/vllm", "/var/cache/vllm"
# Holds the state of the watchdog of an instance on several hosts.
GROUP_RUN_DIR = "/run/vllm-group"

# vLLM answers at full speed; the file holds the seconds of the warm-up. WITHDRAWN is its name while a host of the
# instance is missing.
READY, WITHDRAWN = "ready", "withdrawn"
# systemd stops the instance: first gateways send nothing more, then new requests are refused.
STOPPING, CLOSED = "stopping", "closed"
# Gateways send it nothing more because the others are enough. It serves what still comes, and sleeps once others of its
# host need its chips.
SPARE = "spare"
# The instances that gateways have stopped, because the others are enough; below /run, since their own directories go.
STOPPED_DIR = "/run/vllm-scale"
# Holds why the instance is sick, for gateways: answers of GET /metrics have it as a header of this name.
UNHEALTHY = "unhealthy"
LONGEST_REASON = 200
# A watchdog asks for the number of requests without an answer.
WATCHED = "watched"
# New requests wait while an adapter is replaced.
HOLD = "hold"
# Holds the token that opens vLLM's endpoints for operators, for so many seconds after it was written: to replace all
# adapters of an instance takes minutes.
OPERATOR, OPERATOR_SECONDS = "operator", 3600
# docker writes the id of the instance's container there, because its processes are outside of the unit.
CONTAINER = "container"
# Holds the SHA-256 of the configuration that the running engine has taken over.
APPLIED = "adapters"

# With this header, GET /health returns vLLM's own answer.
PROBE = {"Availability-Probe": "1"}
OPERATOR_HEADER = "operator-token"
# In answers of the middleware: requests without a complete answer, and without the first byte of one.
OPEN_HEADER, UNANSWERED_HEADER = "open-requests", "unanswered"


def header_text(text: str) -> str:
    """Return a reason as it may stand in a header or a line for HAProxy: printable ASCII, and not too long."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:LONGEST_REASON].strip()


def unit_of(name: str) -> str:
    """Return the unit of an instance."""
    return f"vllm@{name}.service"
