# SPDX-License-Identifier: GPL-3.0-or-later
"""Compose arguments and environment in layers from a recipe, the hardware and the choices.

The order is that of vLLM's own recipe site, with this collection's layers in between: model, variant, strategy,
preset, generation of the hardware, exact hardware, features, release fixes, the instance's own settings.
"""

from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..options.arguments import Setting, lay, read_mapping, read_words, to_mapping
from ..options.table import OptionTable
from .conditions import applies
from .hardware import Accelerator, describes, exact_blocks, generation_blocks
from .inputs import PlanError
from .strategies import Sizes

# Of one layer. Upstream's recipes have fewer than 40, and each that is unknown is compared with all of a release.
MOST_SETTINGS = 200


@dataclass(frozen=True)
class Choice:
    """What is served and how, all defaults resolved; ``features`` maps each enabled feature to its mode or None."""

    variant: str
    strategy: str
    preset: str | None
    features: Mapping[str, str | None]
    sizes: Sizes


@dataclass(frozen=True)
class Layer:
    """Arguments and variables from one place; ``because`` is its reason, ``by_recipe`` whether it is a recipe."""

    where: str
    words: Sequence[Any] | Mapping[str, Any] = ()
    env: Mapping[str, Any] = field(default_factory=dict)
    because: str | None = None
    by_recipe: bool = False


@dataclass(frozen=True)
class Step:
    """One key as one layer set it; ``value`` is None where the layer removed it."""

    layer: str
    value: Any
    because: str | None


@dataclass(frozen=True)
class Composed:
    """The arguments (False: switched off) and variables, and for every key the layers that set it, in their order."""

    args: dict[str, Any]
    env: dict[str, str]
    history: dict[str, list[Step]]

    def set_by(self, layer: str) -> dict[str, Any]:
        """Return the settings whose value is the layer's."""
        last = {name: steps[-1] for name, steps in self.history.items() if steps}
        return {name: step.value for name, step in last.items() if step.layer == layer and step.value is not None}


def compose(layers: Sequence[Layer], table: OptionTable, where: str) -> Composed:
    """Merge the layers, weakest first: a later layer overrides key by key, None removes a key.

    Raises PlanError, which begins with ``where`` and names the layer, for words that cannot be parsed.
    """
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    history: dict[str, list[Step]] = {}
    for layer in layers:
        try:
            settings = _settings(layer, table)
        except ValueError as exc:
            raise PlanError(f"{where}, {layer.where}: {exc}") from exc
        count = len(settings) + len(layer.env)
        if count > MOST_SETTINGS:
            raise PlanError(
                f"{where}, {layer.where}: found {count:,} arguments and variables, expected at most {MOST_SETTINGS}"
            )
        for setting in settings:
            args = lay(args, setting)
            _note(history, setting, args, layer, table)
        for name, value in layer.env.items():
            env.pop(name, None)
            if value is not None:
                env[name] = str(value)
            history.setdefault(f"env.{name}", []).append(Step(layer.where, value, layer.because))
    return Composed(args, env, history)


def _settings(layer: Layer, table: OptionTable) -> list[Setting]:
    if isinstance(layer.words, Mapping):
        return read_mapping(layer.words, table)
    return read_words(layer.words, table)


def _note(
    history: dict[str, list[Step]], setting: Setting, args: Mapping[str, Any], layer: Layer, table: OptionTable
) -> None:
    value = args.get(setting.name)
    name, value = next(iter(to_mapping({setting.name: value}, table).items()))
    # A switch and its negation are one key and share one history.
    other = name[3:] if name.startswith("no-") else f"no-{name}"
    steps = history.pop(name, None) or history.pop(other, [])
    history[name] = [*steps, Step(layer.where, value, layer.because)]


def layers_of(
    recipe: Mapping[str, Any], accelerator: Accelerator, choice: Choice, facts: Mapping[str, Any]
) -> list[Layer]:
    """Return the layers of a recipe for one choice, weakest first, without the instance's own settings.

    ``facts`` are the values for the conditions of rules (conditions.CONDITIONS).
    """
    reader = _Reader(recipe, accelerator, choice, facts)
    return [layer for part in reader.parts() for layer in part if layer.words or layer.env]


class _Reader:
    """Yields the layers of one recipe in their order."""

    def __init__(
        self, recipe: Mapping[str, Any], accelerator: Accelerator, choice: Choice, facts: Mapping[str, Any]
    ) -> None:
        self.recipe = recipe
        self.accelerator = accelerator
        self.choice = choice
        self.facts = facts
        self.variant: Mapping[str, Any] = (recipe.get("variants") or {}).get(choice.variant) or {}
        self.chips = choice.sizes.chips
        self.override: Mapping[str, Any] = (recipe.get("strategy_overrides") or {}).get(choice.strategy) or {}

    def parts(self) -> Iterator[Iterator[Layer]]:
        yield self.model()
        yield self.of_variant()
        yield self.strategy()
        yield self.preset()
        yield self.hardware()
        yield self.features()
        yield self.rules("release_fixes", self.recipe.get("release_fixes"))

    def block(
        self, where: str, block: Mapping[str, Any], args: str = "extra_args", env: str = "extra_env"
    ) -> Iterator[Layer]:
        yield Layer(where, block.get(args) or [], block.get(env) or {}, by_recipe=True)
        yield from self.rules(where, block.get("rules"), args, env)

    def rules(
        self, where: str, rules: Sequence[Mapping[str, Any]] | None, args: str = "extra_args", env: str = "extra_env"
    ) -> Iterator[Layer]:
        for rule in rules or []:
            if applies(rule, self.facts):
                yield Layer(where, rule.get(args) or [], rule.get(env) or {}, rule.get("because"), by_recipe=True)

    def model(self) -> Iterator[Layer]:
        model = self.recipe["model"]
        yield Layer("model", model.get("base_args") or [], model.get("base_env") or {}, by_recipe=True)
        yield from self.rules("model", model.get("rules"))

    def of_variant(self) -> Iterator[Layer]:
        where = f"variants.{self.choice.variant}"
        yield from self.block(where, self.variant)
        for name, block in exact_blocks(self.accelerator, self.variant.get("hardware_overrides"), self.chips):
            yield from self.block(f"{where}.hardware_overrides.{name}", block)

    def strategy(self) -> Iterator[Layer]:
        sizes = self.choice.sizes
        yield Layer(f"strategy {self.choice.strategy}", sizes.words, sizes.env, sizes.because)
        where = f"strategy_overrides.{self.choice.strategy}"
        yield from self.block(where, self.override)
        yield from self.block(where, {**self.override, "rules": None}, "vllm_args", "env")

    def preset(self) -> Iterator[Layer]:
        if not self.choice.preset:
            return
        where = f"presets.{self.choice.preset}"
        preset = self.recipe["presets"][self.choice.preset] or {}
        yield from self.block(where, preset)
        overrides = preset.get("hardware_overrides")
        for name, block in (
            *generation_blocks(self.accelerator, overrides),
            *exact_blocks(self.accelerator, overrides, self.chips),
        ):
            yield from self.block(f"{where}.hardware_overrides.{name}", block)

    def hardware(self) -> Iterator[Layer]:
        recipe = self.recipe.get("hardware_overrides")
        strategy = self.override.get("hardware_overrides")
        of_strategy = list(generation_blocks(self.accelerator, strategy))
        where = f"strategy_overrides.{self.choice.strategy}.hardware_overrides"
        if of_strategy:
            # A strategy's block for a generation replaces those of the recipe and the variant.
            for name, block in of_strategy:
                yield from self.block(f"{where}.{name}", block)
        else:
            for name, block in generation_blocks(self.accelerator, recipe):
                yield from self.block(f"hardware_overrides.{name}", block)
            for name, block in generation_blocks(self.accelerator, self.variant.get("hardware_overrides")):
                yield from self.block(f"variants.{self.choice.variant}.hardware_overrides.{name}", block)
        for name, block in exact_blocks(self.accelerator, recipe, self.chips):
            yield from self.block(f"hardware_overrides.{name}", block)
        for name, block in exact_blocks(self.accelerator, strategy, self.chips):
            yield from self.block(f"{where}.{name}", block)

    def features(self) -> Iterator[Layer]:
        for name, mode in self.choice.features.items():
            feature = self.recipe["features"][name] or {}
            if mode is not None:
                yield from self.feature(f"features.{name}.modes.{mode}", feature["modes"][mode] or {}, exact=True)
                # A feature gives all its modes the same variables and rules; each mode has its own args.
                yield from self.block(f"features.{name}", {**feature, "args": None}, "args", "env")
            else:
                yield from self.feature(f"features.{name}", feature, exact=False)

    def feature(self, where: str, entry: Mapping[str, Any], exact: bool) -> Iterator[Layer]:
        blocks_by_name = entry.get("hardware_overrides") or {}
        overrides = {name: block for name, block in blocks_by_name.items() if describes(name, self.chips)}
        found = self.accelerator.pick(overrides) if exact else None
        if not exact:
            blocks = [
                *generation_blocks(self.accelerator, overrides),
                *exact_blocks(self.accelerator, overrides, self.chips),
            ]
            found = blocks[-1][1] if blocks else None
        if found is None:
            yield from self.block(where, entry, "args", "env")
            return
        # An override of a feature replaces its arguments.
        args = found["args"] if found.get("args") is not None else entry.get("args")
        env = {**(entry.get("env") or {}), **(found.get("env") or {})}
        yield from self.block(
            where, {"args": args, "env": env, "rules": found.get("rules") or entry.get("rules")}, "args", "env"
        )


def features_on(
    recipe: Mapping[str, Any],
    accelerator: Accelerator,
    strategy: str,
    variant: str,
    requested: Sequence[str] | None,
    modes: Mapping[str, str],
    where: str,
) -> dict[str, str | None]:
    """Return the enabled features, in the recipe's order, each with its mode or None.

    Unless features are requested, the recipe's features are on that are not opt-in, and those whose mode the variant
    sets; features that the recipe excludes on this hardware or strategy are left out. Requesting such a feature raises
    PlanError.
    """
    offered = recipe.get("features") or {}
    _check_names(offered, requested or (), f"{where}.features", recipe)
    _check_names(offered, modes, f"{where}.feature_modes", recipe)
    if requested is None:
        opt_in = {*(recipe.get("opt_in_features") or [])}
        for name in accelerator.names:
            opt_in |= {*((recipe.get("hardware_opt_in_features") or {}).get(name) or [])}
        chosen = (((recipe.get("variants") or {}).get(variant) or {}).get("default_modes")) or {}
        wanted = [name for name in offered if name not in opt_in or name in chosen]
    else:
        wanted = [name for name in offered if name in requested]
    on: dict[str, str | None] = {}
    for name in wanted:
        problem = _unavailable(offered[name] or {}, accelerator, strategy)
        if problem and requested is not None:
            raise PlanError(f"{where}.features: {name} of recipe {_id(recipe)} {problem}")
        if problem:
            continue
        found, mode = _mode(recipe, name, accelerator, variant, modes.get(name), where)
        if found:
            on[name] = mode
        elif requested is not None:
            raise PlanError(
                f"{where}.features: {name} of recipe {_id(recipe)} has no mode for {accelerator.model} and the "
                f"variant {variant!r}"
            )
    for name in modes:
        if name not in on:
            raise PlanError(f"{where}.feature_modes.{name}: this feature is off; add it to {where}.features")
    return on


def _id(recipe: Mapping[str, Any]) -> str:
    return str(recipe["model"]["model_id"])


def _check_names(offered: Mapping[str, Any], names: Any, where: str, recipe: Mapping[str, Any]) -> None:
    for name in names:
        if name not in offered:
            raise PlanError(f"{where}: recipe {_id(recipe)} has no feature {name!r}; {nearest(str(name), offered)}")


def _unavailable(feature: Mapping[str, Any], accelerator: Accelerator, strategy: str) -> str | None:
    if feature.get("strategies") and strategy not in feature["strategies"]:
        return f"does not support the strategy {strategy}; supported: {', '.join(feature['strategies'])}"
    if accelerator.pick(feature.get("hardware") or {}) == "unsupported":
        return f"does not run on {accelerator.model}"
    return None


def _mode(
    recipe: Mapping[str, Any], name: str, accelerator: Accelerator, variant: str, requested: str | None, where: str
) -> tuple[bool, str | None]:
    """Return whether the feature can be on, and its mode; the mode is None where it has no modes."""
    feature = recipe["features"][name] or {}
    modes = feature.get("modes")
    if not modes:
        if requested:
            raise PlanError(f"{where}.feature_modes.{name}: this feature has no modes; found {show_value(requested)}")
        return True, None
    if requested and requested not in modes:
        raise PlanError(
            f"{where}.feature_modes.{name}: recipe {_id(recipe)} has no mode {requested!r}; {nearest(requested, modes)}"
        )
    allowed = [key for key, mode in modes.items() if _mode_allowed(mode or {}, accelerator, variant)]
    if requested and requested not in allowed:
        raise PlanError(
            f"{where}.feature_modes.{name}: {requested!r} is not for {accelerator.model} and the variant {variant!r}; "
            f"available: {', '.join(allowed) or 'none'}"
        )
    entry = (recipe.get("variants") or {}).get(variant) or {}
    for key in (requested, (entry.get("default_modes") or {}).get(name), feature.get("default_mode")):
        if key in allowed:
            return True, key
    return (True, allowed[0]) if allowed else (False, None)


def _mode_allowed(mode: Mapping[str, Any], accelerator: Accelerator, variant: str) -> bool:
    gates = mode.get("hardware") or {}
    barred = any(gates.get(name) == "unsupported" for name in accelerator.names)
    return not barred and (not mode.get("variants") or variant in mode["variants"])
