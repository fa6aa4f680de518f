# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that readers type lead to the page with the answer, as the search of the site (Sphinx) finds pages.

It finds the pages that have each word of a query in text or title; where no page has the word, those with a longer one.
tests/integration/test_site.py asks the built site in a browser.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.site import build

TOP = Path(__file__).resolve().parents[3]
PAGES = build.pages_of(TOP, ["README.md"])
# What a reader types: the page, below docs/, that has to be among the findings.
QUERIES = {
    "401": "operate/gateway.md",
    "429": "operate/fair.md",
    "503": "operate/when-something-is-wrong.md",
    "air gap": "start/air-gapped.md",
    "api key": "operate/rotate-a-key.md",
    "audit log": "operate/faq.md",
    "autoscaling": "operate/scale.md",
    "back up": "operate/faq.md",
    "bare metal": "start/from-power-off.md",
    "benchmark": "operate/bench.md",
    "billing": "operate/faq.md",
    "certificate renewal": "operate/faq.md",
    "cold start": "operate/starts.md",
    "decommission": "operate/faq.md",
    "disaster recovery": "operate/faq.md",
    "disk full": "operate/when-something-is-wrong.md",
    "downgrade": "operate/roll-back.md",
    "downgrade collection": "operate/faq.md",
    "downgrade driver": "operate/drivers.md",
    "dry run": "operate/faq.md",
    "electricity": "operate/faq.md",
    "email": "operate/faq.md",
    "failover": "operate/faq.md",
    "fallen off the bus": "operate/when-something-is-wrong.md",
    "FAQ": "operate/faq.md",
    "getting started": "operate/faq.md",
    "healthcheck": "operate/faq.md",
    "HF_TOKEN": "operate/weights.md",
    "hugepages": "operate/faq.md",
    "hugging face token": "operate/weights.md",
    "huggingface token": "operate/weights.md",
    "idempotent": "operate/faq.md",
    "IPMI": "operate/faq.md",
    "kubernetes": "explain/comparison.md",
    "let's encrypt": "operate/faq.md",
    "load balancer": "operate/gateway.md",
    "logs": "operate/when-something-is-wrong.md",
    "maintenance": "operate/drain.md",
    "MIG": "start/gpu-server.md",
    "MIG mode": "operate/faq.md",
    "migration": "operate/faq.md",
    "multi gpu": "operate/several-hosts.md",
    "multi node": "operate/several-hosts.md",
    "multi tenant": "operate/faq.md",
    "multiple models": "operate/faq.md",
    "never gets ready": "operate/when-something-is-wrong.md",
    "noisy neighbour": "operate/faq.md",
    "offline": "start/air-gapped.md",
    "OOM": "operate/when-something-is-wrong.md",
    "out of memory": "operate/when-something-is-wrong.md",
    "prerequisites": "start/gpu-server.md",
    "proxy": "operate/weights.md",
    "quick start": "start/try-it.md",
    "quota": "operate/faq.md",
    "reimage server": "operate/faq.md",
    "reinstall": "operate/faq.md",
    "remove everything": "operate/remove.md",
    "replace GPU": "operate/drain.md",
    "requirements": "start/gpu-server.md",
    "restart": "operate/faq.md",
    "rollback": "operate/roll-back.md",
    "rolling update": "operate/faq.md",
    "speculative decoding": "operate/faq.md",
    "ssl certificate": "operate/gateway.md",
    "SSO": "operate/faq.md",
    "structured output": "operate/faq.md",
    "tls certificate": "operate/gateway.md",
    "troubleshooting": "operate/when-something-is-wrong.md",
    "uninstall": "operate/remove.md",
    "zero downtime": "operate/faq.md",
}


def words_of(text):
    return set(re.findall(r"\w+", text.lower()))


WORDS = {page: words_of((TOP / page).read_text(encoding="utf-8")) for page in PAGES}
KNOWN = set().union(*WORDS.values())


def finds(words, query, known=KNOWN):
    """Return whether the search finds a page with these words: each term, or a longer word if no page has the term."""
    return all(term in words or (term not in known and any(term in word for word in words)) for term in words_of(query))


@pytest.mark.parametrize(("query", "page"), QUERIES.items())
def test_a_word_of_readers_leads_to_its_page(query, page):
    assert f"docs/{page}" in PAGES
    assert finds(WORDS[f"docs/{page}"], query)


def test_the_search_wants_every_word_of_a_query():
    words = words_of("A multi_node_tp group")
    assert finds(words, "multi node", known=words)
    assert not finds(words, "multi gpu", known=words)
    # Where a page has the very word, longer words do not count.
    assert not finds(words, "multi", known={"multi"})
