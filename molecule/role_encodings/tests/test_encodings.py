# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

PUBLISHED = {
    "o200k_base.tiktoken": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_file_is_the_published_one_and_readable_for_all(host, name):
    file = host.file(f"/srv/encodings/{name}")
    assert file.sha256sum == PUBLISHED[name]
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_nothing_else_is_in_the_directory(host):
    directory = host.file("/srv/encodings")
    assert sorted(directory.listdir()) == sorted(PUBLISHED)
    assert directory.mode == 0o755


def test_wrong_input_has_published_nothing(host):
    assert not host.run("ls -A /srv/refused").stdout
