# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest and largest value of each number among the options of the roles; argument specs have no ranges."""

import math
from typing import Mapping, NamedTuple


class Range(NamedTuple):
    """The limits of a number, both included."""

    least: float
    most: float = math.inf

    def describe(self) -> str:
        """Return the range for a message, such as ``from 1 to 65535``."""
        return f"from {self.least:g}" + ("" if math.isinf(self.most) else f" to {self.most:g}")


FROM_0, FROM_1, PORT = Range(0), Range(1), Range(1, 65535)
# A share of an earlier figure; 80 is not 80 percent.
SHARE = Range(0, 1)
RANGES: Mapping[str, Range] = {
    # count_problem of plugin_utils/catalog/accelerators.py knows how many chips one host can have.
    "accelerator_count": FROM_1,
    "accelerator_mec_firmware": FROM_0,
    # Of one chip, or of a CPU's host. 81920 are MiB.
    "accelerator_memory_gib": Range(1, 65536),
    "cann_reboot_timeout": FROM_1,
    "cuda_reboot_timeout": FROM_1,
    "encodings_connections": FROM_1,
    "gateway_agent_port": PORT,
    "provisioner_bmc_read_timeout": FROM_1,
    "provisioner_http_port": PORT,
    "provisioner_max_concurrent": FROM_1,
    "provisioner_port": PORT,
    "gateway_check_interval": FROM_1,
    "gateway_error_limit": FROM_0,
    "gateway_inspect_kib": Range(1, 1024),
    "gateway_max_body": FROM_0,
    "gateway_min_available": FROM_0,
    "gateway_port": PORT,
    "gateway_probe_after": FROM_0,
    "gateway_router_id": Range(1, 255),
    "gateway_slowstart": FROM_0,
    "gateway_stats_port": PORT,
    "gateway_stuck_after": FROM_1,
    "gateway_tokens_months": Range(1, 1200),
    "gateway_tokens_port": PORT,
    "gateway_timeout": FROM_1,
    "health_poll": FROM_1,
    "health_stall": FROM_0,
    "health_webhook_per_hour": FROM_1,
    "host_tuning_power_cap": FROM_0,
    "host_tuning_reboot_timeout": FROM_1,
    "mirror_port": PORT,
    "mirror_registry_port": PORT,
    "monitoring_node_port": PORT,
    "rocm_reboot_timeout": FROM_1,
    "rollout_canaries": FROM_0,
    "rollout_drain_timeout": FROM_0,
    "rollout_first_token_share": SHARE,
    "rollout_max_failures": FROM_0,
    "rollout_min_available": FROM_0,
    "rollout_pause": FROM_0,
    "rollout_ready_timeout": FROM_1,
    "rollout_throughput_share": SHARE,
    "rollout_watch": FROM_0,
    "vendor_stack_reboot_timeout": FROM_1,
    "vllm_drain_timeout": FROM_0,
    "vllm_group_check_port": PORT,
    "vllm_group_check_timeout": FROM_1,
    "vllm_group_min_gb_per_s": FROM_0,
    "vllm_group_stall": FROM_0,
    "vllm_residents_patience": FROM_0,
    "vllm_slots_keep": FROM_0,
    "vllm_start_timeout": FROM_1,
    "vllm_stop_notice": FROM_0,
    "vllm_warmup_seconds": FROM_0,
    "weights_bandwidth": FROM_0,
    "weights_connections": FROM_1,
    # -1 keeps all revisions.
    "weights_keep": Range(-1),
    "weights_lock_timeout": FROM_0,
    "weights_lowest_rate": FROM_0,
    "weights_progress": FROM_0,
    "weights_scrub_bandwidth": FROM_0,
    "weights_stall_timeout": FROM_1,
}
