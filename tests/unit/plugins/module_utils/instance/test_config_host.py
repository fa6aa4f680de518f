# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import InstanceError, Listening
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_host import listening_in


def test_where_an_instance_of_this_host_listens(tmp_path):
    (tmp_path / "chat.yaml").write_text("port: 8001\n")
    assert listening_in(str(tmp_path), "chat") == Listening("127.0.0.1", 8001, False, False)
    (tmp_path / "chat.yaml").write_text("headless: true\n")
    assert listening_in(str(tmp_path), "chat") is None


@pytest.mark.parametrize(
    ("text", "said"), [(b"port: x\n", "port: found 'x'"), (b"\xff", "cannot be read: "), (None, "No such")]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, said):
    if text is not None:
        (tmp_path / "chat.yaml").write_bytes(text)
    with pytest.raises(InstanceError, match=f"{tmp_path}/chat.yaml: .*{said}"):
        listening_in(str(tmp_path), "chat")
