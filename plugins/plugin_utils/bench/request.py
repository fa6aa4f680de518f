# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user requests of a benchmark, checked before a host is contacted."""

from typing import Any, Mapping

from ...module_utils.common.kinds import show_value
from .records import read_summary
from .workloads import WorkloadError, choose_workloads, load_workloads, read_concurrency


def check_request(options: Mapping[str, Any]) -> None:
    """Check the options of playbooks/bench.yml that need no host. Raises WorkloadError and RecordError."""
    check_numbers(options)
    choose_workloads(load_workloads(options["workload_definitions"]), options["workloads"])
    read_concurrency(options["concurrency"], "")
    if options["compare"]:
        read_summary("bench_compare", options["compare"])


def check_numbers(options: Mapping[str, Any]) -> None:
    """Check the numbers among the options. Raises WorkloadError."""
    for name in ("repeats", "requests_per_stream", "requests_min"):
        if options[name] < 1:
            raise WorkloadError(f"bench_{name}: found {options[name]}, expected a whole number from 1 up")
    if options["timeout"] <= 0:
        raise WorkloadError(f"bench_timeout: found {options['timeout']:g}, expected more than 0 seconds")
    seed = options["seed"].strip()
    if seed and not (seed.isascii() and seed.isdigit()):
        raise WorkloadError(f"bench_seed: found {show_value(options['seed'])}, expected a whole number from 0 up")
