# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.common import inventory_files
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.inventory_files import inventory_texts


def test_what_people_write_is_read_once_from_each_kind_of_source(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory_files, "MAX_FILE_BYTES", 20)
    files = {"hosts.yml": b"a: 1\r\n", "host_vars/gpu-01": b"b: 1\n", "group_vars/all/x.json": b"{}"}
    others = {".hidden.yml": b"x", "notes.txt": b"x", "large.yml": b"x" * 21, "binary.yml": b"\xff"}
    for name, data in {**files, **others}.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    expected = {str(tmp_path / "site" / name): data.decode() for name, data in files.items()}
    for sources in (["site"], ["site/hosts.yml"], ["site", "site/hosts.yml", "a,b", "missing"]):
        found = inventory_texts([str(tmp_path / source) for source in sources])
        assert {str(path): text for path, text in found} == expected
        assert len(found) == len(expected)
