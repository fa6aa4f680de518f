# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of Sphinx for the site; tools/site/build.py runs it."""

import os

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
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "monokai"
