# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of Sphinx for the site; tools/site/build.py runs it."""

import os
from typing import Any

from sphinx.search.en import SearchEnglish

project = "baremetal.inference"
author = "the baremetal.inference authors"
project_copyright = "2026, the baremetal.inference authors"
version = release = os.environ["SITE_VERSION"]
extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton"]
language = "en"
myst_heading_anchors = 6  # links to headings, spelt as GitHub does
# Pages show output and configuration that no lexer reads to its end.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "none"
nitpicky = False  # links of modules to Ansible's own documentation have no target here

# The button copies commands, without their prompt and without what they print.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

html_theme = "furo"
html_title = f"baremetal.inference {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["numbers.js"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "monokai"


class WithNumbers(SearchEnglish):
    """English, with the numbers that people search for: those of HTTP and of NVIDIA's Xid."""

    def word_filter(self, word: str) -> bool:
        return super().word_filter(word) or (word.isdigit() and len(word) in (2, 3))


def setup(app: Any) -> None:
    app.add_search_language(WithNumbers)
