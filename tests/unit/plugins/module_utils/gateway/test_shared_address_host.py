# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a gateway should have the shared address."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.shared_address_host import SharedAddress


class TestSharedAddress:
    def usable(self, *seen):
        address = SharedAddress("", 2)
        return [address.saw(fault, now) for now, fault in seen]

    def test_a_haproxy_that_has_ended_loses_the_address_at_once(self):
        assert self.usable((0, ""), (2, "ended"), (4, "ended"), (6, "ended")) == [True, True, True, False]

    def test_one_that_is_slow_to_answer_keeps_it_for_a_minute(self):
        assert all(self.usable(*((now, "silent") for now in range(0, 60, 2))))
        assert not self.usable(*((now, "silent") for now in range(0, 62, 2)))[-1]

    def test_faults_that_come_and_go_move_nothing(self):
        seen = [(now, "silent" if now % 4 else "") for now in range(0, 600, 2)]
        assert all(self.usable(*seen))

    def test_an_agent_that_did_not_run_has_seen_nothing(self):
        assert all(self.usable(*((now, "no server") for now in range(0, 600, 30))))


def test_the_file_for_keepalived_changes_with_the_state_only(tmp_path, capsys):
    address = SharedAddress(str(tmp_path / "unusable"), 2)
    address.write()
    before = (tmp_path / "unusable").stat().st_ino
    address.write()
    assert (tmp_path / "unusable").stat().st_ino == before and (tmp_path / "unusable").read_text() == "0\n"
    address.usable, address.fault = False, "ended"
    address.write()
    assert (tmp_path / "unusable").read_text() == "1\n" and [path.name for path in tmp_path.iterdir()] == ["unusable"]
    address.path = str(tmp_path / "none/unusable")
    address.write()
    assert "cannot be written" in capsys.readouterr().out
