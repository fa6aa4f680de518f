# SPDX-License-Identifier: GPL-3.0-or-later

from typing import ClassVar, Mapping, Sequence

from ..plugin_utils.cann.plan import CannStack
from ..plugin_utils.cuda.plan import CudaStack
from ..plugin_utils.rocm.plan import RocmStack
from ..plugin_utils.vendor_stack.action import Stack, StackAction

ROCM_OPTIONS = ("userspace", "users", "blacklist_remove", "iommu_pt", "numa_balancing_off")
CANN_OPTIONS = (
    "driver_version", "firmware_version", "repository_key", "format", "run_files", "licence_accepted", "toolkit",
    "user", "group",
)  # fmt: skip


class ActionModule(StackAction):
    """Decides what a vendor's driver needs."""

    ROLES = ("cuda", "rocm", "cann")
    STACKS: ClassVar[Mapping[str, Stack]] = {stack.name: stack for stack in (CudaStack(), RocmStack(), CannStack())}
    OF_STACKS: ClassVar[Mapping[str, Sequence[str]]] = {
        "epel_mirror": ("cuda", "rocm"),
        **dict.fromkeys(ROCM_OPTIONS, ("rocm",)),
        **dict.fromkeys(CANN_OPTIONS, ("cann",)),
    }
