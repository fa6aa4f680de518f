# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of the fleet's page: the same fleet always gives the same text, and no host can inject HTML."""

import itertools
import json
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.accelerator.recognition import CPU, Model
from ..pages.colours import Colour, choose_colours
from ..pages.texts import SharedTexts, escape_json, fill_page
from .chips import STATES
from .lines import Line

# The hues (of 360) of a vendor; its models also differ in lightness, for people who cannot see hues.
HUES = {"nvidia": (125, 215), "amd": (15, 90), "intel": (225, 265), "ascend": (285, 345)}
OTHER_HUES = (95, 120)
# For hosts without an accelerator, or with a model that is in no catalogue.
GREY = Colour(0.62)


def page(lines: Sequence[Line], models: Mapping[str, Model], title: str, parts: Mapping[str, str]) -> str:
    """Return the page as text. ``parts`` are its ``html``, ``css`` and ``js``; the page allows only these two.

    ``lines`` have the order of fleet_lines().
    """
    return fill_page(parts, title, data(lines, models, title))


def data(lines: Sequence[Line], models: Mapping[str, Model], title: str) -> str:
    """Return the fleet as JSON for a script element, one host per line, so that a diff of two pages names hosts."""
    texts, serves = SharedTexts(), SharedTexts(())
    sites = []
    for site, of_site in itertools.groupby(lines, key=lambda line: line.site):
        clusters = []
        for cluster, of_cluster in itertools.groupby(of_site, key=lambda line: line.cluster):
            rows = [
                {"models": [model for model, _count in key], "hosts": [_host(line, texts, serves) for line in members]}
                for key, members in _by_kind(of_cluster)
            ]
            clusters.append({"name": cluster, "rows": rows})
        sites.append({"name": site, "clusters": clusters})
    used = {model for line in lines for model, _count in line.chips}
    document = {
        "title": title,
        "states": list(STATES),
        "models": _describe_models(used, models),
        "texts": texts.all,
        "serves": serves.all,
        "sites": sites,
    }
    return _json(document)


def _by_kind(lines: Iterable[Line]) -> Iterable[tuple[tuple[tuple[str, int], ...], list[Line]]]:
    """Yield the hosts of each kind with the chips of the first of them; hosts of a kind may be apart."""
    kinds: dict[str, list[Line]] = {}
    for line in lines:
        kinds.setdefault(line.kind, []).append(line)
    for members in kinds.values():
        yield members[0].chips, members


def _host(line: Line, texts: SharedTexts, serves: SharedTexts) -> list[Any]:
    """Return name, state, numbers of chips, time of the last answer and numbers of texts, without trailing zeros."""
    values = [
        line.host,
        STATES.index(line.state),
        [count for _model, count in line.chips] if len(line.chips) > 1 else line.chips[0][1] if line.chips else 0,
        line.seen_at or 0,
        *(texts.number(text) for text in (line.found, ", ".join(line.facts), line.declared)),
        serves.number(line.serves),
        *(texts.number(text) for text in (line.why, line.todo)),
    ]
    while values[-1] == 0:
        values.pop()
    return values


def _describe_models(used: Iterable[str], models: Mapping[str, Model]) -> dict[str, dict[str, Any]]:
    """Return title, family and colour of each model; the colours are those that differ most for this fleet."""
    described: dict[str, dict[str, Any]] = {}
    for key in sorted(used):
        known = models.get(key)
        if known:
            described[key] = {"title": known.title, "family": f"{known.vendor} {known.stack} {known.generation}"}
        else:
            described[key] = {"title": "no accelerator" if key == CPU else key, "family": ""}
    ranges = {key: HUES.get(models[key].vendor, OTHER_HUES) for key in described if key in models}
    colours = choose_colours(ranges, [GREY])
    for key, entry in described.items():
        colour = colours.get(key, GREY)
        entry.update(hue=colour.hue, light=colour.light)
    return described


def _json(document: Mapping[str, Any]) -> str:
    """Return a document as ASCII JSON without characters that HTML would interpret; each host has its own line."""
    text = escape_json(json.dumps(document, separators=(",", ":")))
    # Quotes within a text are escaped, so these patterns occur only outside of texts.
    return text.replace('"hosts":[[', '"hosts":[\n[').replace('],["', '],\n["')
