# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading

from ansible_collections.baremetal.inference.plugins.module_utils.transfer.publishers import Publishers


def test_so_many_are_done_at_once_and_no_more():
    lock, together, now, most = threading.Lock(), threading.Barrier(3, timeout=10), [0], [0]

    def work():
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        # Three at once, or it never opens.
        together.wait()
        with lock:
            now[0] -= 1

    ends = Publishers(3)
    for _number in range(30):
        ends.add(work)
    ends.close()
    assert most == [3]


def test_all_that_was_added_is_done_when_it_is_closed():
    done = []
    ends = Publishers(2)
    for number in range(500):
        ends.add(lambda number=number: done.append(number))
    ends.close()
    assert sorted(done) == list(range(500))


def test_nothing_to_do_begins_no_thread():
    before = threading.active_count()
    Publishers(2).close()
    assert threading.active_count() == before
