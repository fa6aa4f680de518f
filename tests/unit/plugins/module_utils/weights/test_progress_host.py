# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import time

from ansible_collections.baremetal.inference.plugins.module_utils.weights import progress_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.progress import Progress, parse_progress
from ansible_collections.baremetal.inference.plugins.module_utils.weights.progress_host import Reporter


def test_reports_grow_in_beat_and_are_gone_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(progress_host, "INTERVAL", 0.01)
    path, done = tmp_path / "run" / "weights.json", iter(range(0, 10**9, 1000))
    beats = []
    with Reporter(str(path), lambda: Progress("a/b", done=next(done), total=10**9)):
        while len(beats) < 5:
            time.sleep(0.005)
            report = parse_progress(path.read_text()) if path.exists() else None
            if report and report.beat not in beats:
                beats.append(report.beat)
    assert beats == sorted(beats)
    assert report is not None
    assert report.rate > 1000
    assert list(path.parent.iterdir()) == []


def test_without_a_path_nothing_is_written(tmp_path):
    with Reporter("", Progress):
        pass
    assert json.dumps(list(tmp_path.iterdir())) == "[]"
