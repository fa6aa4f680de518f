# SPDX-License-Identifier: GPL-3.0-or-later
"""The links of a page are read, whatever else is in it."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_html import read_links


@pytest.mark.parametrize("odd", ["<![>", "<![x>", "<![if !IE]>", "<![CDATA[x]]>", "<!DOCTYPE [>", "<!>", "<?>", "</>"])
def test_a_declaration_that_nobody_knows_is_skipped(odd):
    assert read_links(f'<a href="a">{odd}<a name="x" href="b"><a href>') == ["a", "b"]


def test_a_declaration_without_end():
    assert read_links('<a href="a"><![') == ["a"]
