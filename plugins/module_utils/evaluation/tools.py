# SPDX-License-Identifier: GPL-3.0-or-later
"""The tools of evaluations by name."""

from . import ais_bench, gpt_oss, lm_eval

DEFAULT = lm_eval.TOOL.name
TOOLS = {tool.name: tool for tool in (lm_eval.TOOL, gpt_oss.TOOL, ais_bench.TOOL)}
