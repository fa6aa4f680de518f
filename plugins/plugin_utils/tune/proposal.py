# SPDX-License-Identifier: GPL-3.0-or-later
"""The proposal of a tune as diffs: of the site's ``vllm_instances``, and of the preset in the recipe's file."""

import difflib
import json
from typing import Any, Iterator, Mapping

import yaml

from ..catalog.recipe_schema import check_recipe
from ..common.yaml import dump_yaml, literal, load_yaml
from ..common.yaml_events import EventYamlError
from ..planning.inputs import PlanError
from .variants import MAPPINGS, TEXTS, Variant


def instance_diff(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> str:
    """Return the difference between two ``vllm_instances`` in one instance, as a unified diff of YAML."""
    texts = [dump_yaml(literal(_plain({"vllm_instances": {name: each[name]}}))) for each in (before, after)]
    return _diff(texts[0], texts[1], "vllm_instances")


def _plain(value: Any) -> Any:
    """Return a value of the inventory as plain data that YAML can write: Ansible's own text types become plain ones."""
    return json.loads(json.dumps(value, default=str))


def recipe_diff(
    text: str, file: str, preset: str | None, hardware: tuple[str, str], variant: Variant, because: str
) -> str:
    """Return the diff that adds a variant as a rule of the preset for one accelerator; empty if no rule can express it.

    A rule sets arguments and variables and removes none, and only a preset can hold it. ``text`` is that of the recipe
    in ``file``, ``hardware`` the accelerator and the release of vLLM that were measured, from which on the rule holds.
    """
    if not preset or any(key in variant for key in TEXTS) or not _settable(variant):
        return ""
    lines = text.splitlines(keepends=True)
    place = _end_of_rules(text, preset)
    if place is None:
        return ""
    line, indent, has_rules = place
    rule = [f"{'' if has_rules else ' ' * indent + 'rules:' + chr(10)}"]
    rule += [f"{' ' * (indent + 2)}{entry}\n" for entry in _rule(hardware, variant, because)]
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    changed = "".join([*lines[:line], *rule, *lines[line:]])
    try:
        check_recipe(load_yaml(changed), file)
    except (PlanError, EventYamlError):
        return ""
    return _diff(text, changed, file)


def _settable(variant: Variant) -> bool:
    values = [value for key in MAPPINGS for value in (variant.get(key) or {}).values()]
    return bool(values) and all(value is not None for value in values)


def _rule(hardware: tuple[str, str], variant: Variant, because: str) -> Iterator[str]:
    """Yield the lines of a rule, without their indent."""
    yield f'- when: {{accelerator: {hardware[0]}, vllm: ">={hardware[1]}"}}'
    yield f"  because: {json.dumps(because, ensure_ascii=False)}"
    words = [word for name, value in (variant.get("args") or {}).items() for word in _command_words(name, value)]
    if words:
        yield f"  extra_args: {json.dumps(words)}"
    if variant.get("env"):
        yield f"  extra_env: {json.dumps({name: str(value) for name, value in variant['env'].items()})}"


def _command_words(name: str, value: Any) -> list[str]:
    """Return one argument in the words of a command."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list):
        return [f"--{name}", *(str(item) for item in value)]
    return [f"--{name}", json.dumps(value) if isinstance(value, Mapping) else str(value)]


def _end_of_rules(text: str, preset: str) -> tuple[int, int, bool] | None:
    """Return the line behind the rules of a preset, or behind the preset, its indent, and whether it has rules.

    None where the file has no such preset in block style.
    """
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    block = _child(_child(top, "presets"), preset)
    if not isinstance(block, yaml.MappingNode) or block.flow_style or not block.value:
        return None
    rules = _child(block, "rules")
    if rules is not None and (not isinstance(rules, yaml.SequenceNode) or rules.flow_style or not rules.value):
        return None
    return _last_line(rules or block) + 1, block.start_mark.column, rules is not None


def _child(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _last_line(node: Any) -> int:
    """Return the number of the last line of a node from 0; a block ends where the next node begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    mark = node.end_mark
    return int(mark.line - 1 if mark.column == 0 and mark.line > node.start_mark.line else mark.line)


def _diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{name} (now)", f"{name} (proposed)"
    )
    return "".join(lines)
