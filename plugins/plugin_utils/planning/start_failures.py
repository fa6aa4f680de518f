# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM reports of any model that it cannot start, and what to do; a recipe's own issues go before these.

The texts of VLLM are those of vLLM 0.33.0; a parity test finds each of them in its sources.
"""

VLLM = {
    "`trust_remote_code=True`": (
        "The model needs code that comes with its weights: read its files, then set args: {trust-remote-code: true}"
    ),
    "are not supported for now": (
        "This release of vLLM does not know the model's architecture: choose a newer vllm_release"
    ),
    "Cannot find any model weights": (
        "The model's files are missing on the host: run site.yml, which fetches them. If it finds all, they are not in "
        "the format that load-format reads: pin the model again with pin_load_format"
    ),
    "No available memory for the cache blocks": (
        "The weights leave no memory for the KV cache: raise tensor-parallel-size or gpu-memory-utilization, or take a "
        "smaller variant; playbooks/fit.yml shows what fits"
    ),
    "To serve at least one request with the model's max seq len": (
        "The context does not fit: set max-model-len to the length that the line names, or raise tensor-parallel-size"
    ),
    "is less than desired GPU memory utilization": (
        "Another process uses the memory of the chips: stop it, or lower gpu-memory-utilization"
    ),
    "must be divisible by tensor parallel size": (
        "Set tensor-parallel-size to a number that divides the number of heads in the line"
    ),
}
_NO_TORCHVISION = (
    "Most models of pictures and videos need torchvision, which the bundled lock of the CPU build lacks: set "
    "vllm_runtime: container, whose image has it"
)
# What Python and transformers report.
_OTHERS = dict.fromkeys(
    ("No module named 'torchvision'", "requires the Torchvision library but it was not found"), _NO_TORCHVISION
)
START_FAILURES = tuple({"symptom": symptom, "advice": f"{text}."} for symptom, text in {**VLLM, **_OTHERS}.items())
