# SPDX-License-Identifier: GPL-3.0-or-later
"""The .run files: which tool they call, and the checksums that a site would write down."""

from __future__ import annotations

import hashlib
import os

from tests.standins.installers import write_run_file


def test_a_file_is_a_program_that_names_itself_and_has_the_checksum_that_is_returned(tmp_path):
    digest = write_run_file("huawei", "driver_26.0.run", tmp_path)
    file = tmp_path / "driver_26.0.run"
    assert os.access(file, os.X_OK)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert file.read_text().splitlines()[-1].endswith("run-file huawei 'driver_26.0.run' \"$@\"")


def test_two_files_have_two_checksums_and_a_corrupt_one_not_the_one_that_is_written_down(tmp_path):
    first, second = (write_run_file("huawei", name, tmp_path) for name in ("a.run", "b.run"))
    assert first != second
    assert write_run_file("huawei", "a.run", tmp_path, corrupt=True) == first
    assert hashlib.sha256((tmp_path / "a.run").read_bytes()).hexdigest() != first
