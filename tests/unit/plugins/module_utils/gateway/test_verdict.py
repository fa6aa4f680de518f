# SPDX-License-Identifier: GPL-3.0-or-later
"""The judgement of one engine."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.gateway import verdict


class TestWatched:
    def watched(self, **more):
        return verdict.Watched(**{"stuck_after": 60, "probe_after": 60, "moved_at": 0.0, "proven_at": 0.0, **more})

    @staticmethod
    def metrics(running=0.0, tokens=1.0):
        return {"vllm:num_requests_running": running, "vllm:generation_tokens_total": tokens}

    def test_nothing_is_known_at_first_of_an_engine_at_work(self):
        watched = self.watched()
        assert not watched.saw(self.metrics(1), 10) and watched.verdict == ""
        assert not watched.saw(self.metrics(1, 2), 12) and watched.verdict == "up"

    def test_work_that_stands_still_is_stuck_and_work_that_moves_is_not(self):
        watched = self.watched()
        for now, tokens in ((0, 1), (50, 2), (109, 2)):
            watched.saw(self.metrics(1, tokens), now)
            assert not watched.verdict.startswith("down")
        watched.saw(self.metrics(1, 2), 110)
        assert watched.verdict == "down #requests run and nothing has moved for 60 s"
        watched.saw(self.metrics(1, 3), 112)
        assert watched.verdict == "up"

    def test_an_engine_that_shows_requests_that_were_cut_off_comes_back_by_a_token(self):
        watched = self.watched()
        watched.saw(self.metrics(5), 0)
        # Its figures stay as they are, and nothing is sent to it any more: it is asked.
        assert watched.saw(self.metrics(5), 60) and watched.verdict.startswith("down #requests run")
        watched.probed("", 61)
        assert watched.verdict == "up" and not watched.saw(self.metrics(5), 63)
        # One that hangs gives no token either.
        assert watched.saw(self.metrics(5), 121)
        watched.probed("no token within 60 s", 181)
        assert watched.verdict.startswith("down #hangs: requests run") and watched.saw(self.metrics(5), 183)

    def test_a_request_after_a_long_rest_is_not_stuck_at_once(self):
        watched = self.watched(probe_after=0)
        watched.saw(self.metrics(0), 0)
        watched.saw(self.metrics(0), 600)
        assert not watched.saw(self.metrics(1), 602) and watched.verdict == "up"

    def test_an_idle_engine_is_asked_now_and_then(self):
        watched = self.watched()
        assert not watched.saw(self.metrics(), 59) and watched.verdict == "up"
        assert watched.saw(self.metrics(), 60)
        watched.probed("no token within 60 s", 120)
        assert watched.verdict == "down #no token within 60 s" and watched.saw(self.metrics(), 122)
        watched.probed("", 123)
        assert watched.verdict == "up" and not watched.saw(self.metrics(), 180)
        assert not self.watched(probe_after=0).saw(self.metrics(), 9999)

    def test_what_cannot_be_asked_stays_what_it_was_and_begins_anew(self):
        watched = self.watched(verdict="down #x")
        watched.saw(self.metrics(1), 0)
        watched.lost(100)
        assert watched.verdict == "down #x"
        # After its restart: other counters, nothing running.
        assert watched.saw(self.metrics(0, 0.0), 102)

    def test_an_engine_that_hangs_is_said_to_hang_only_after_it_gave_no_token_either(self):
        watched = self.watched()
        for now in (0, 60):
            watched.saw(self.metrics(1), now)
        watched.probed("no token within 60 s", 120)
        assert watched.answer == "down #hangs: requests run and nothing has moved for 60 s, and no token within 60 s"
        assert watched.saw(self.metrics(1), 122) and watched.answer.startswith("down #hangs: ")
        watched.saw(self.metrics(1, 2), 124)
        assert watched.answer == "up"

    def test_an_engine_that_answers_nothing_hangs_and_one_that_has_ended_does_not(self):
        silent, ended = self.watched(heard_at=0.0, verdict="up"), self.watched(heard_at=0.0, verdict="up")
        for now in range(0, 120, 10):
            silent.lost(now)
            ended.refused(now)
            assert silent.answer == ended.answer == "up"
        silent.lost(120)
        ended.refused(120)
        assert (silent.answer, ended.answer) == ("down #hangs: no answer for 120 s", "up")
        # Its requests are not ended again while it is asked for a token.
        assert not silent.saw(self.metrics(1), 122) and silent.answer.startswith("down #answers again")
        silent.saw(self.metrics(1, 2), 124)
        assert silent.answer == "up"

    def test_an_engine_whose_streams_move_does_not_hang(self):
        stopping, stuck = self.watched(heard_at=0.0, verdict="up"), self.watched(heard_at=0.0)
        for now in range(0, 300, 10):
            stopping.counts(0, now, now)
            stopping.lost(now)
            stuck.counts(0, now, now)
            if stuck.saw(self.metrics(1), now):
                stuck.probed("no token within 60 s", now)
        assert stopping.answer == "up" and stuck.answer.startswith("down #requests run")
        stuck.probed("no token within 60 s", 400)
        assert stuck.answer.startswith("down #hangs")
        stopping.lost(420)
        assert stopping.answer.startswith("down #hangs")


class TestRefusals:
    def watched(self, **more):
        times = {"moved_at": 0.0, "proven_at": 0.0, "heard_at": 0.0}
        return verdict.Watched(
            **{"stuck_after": 60, "probe_after": 60, "error_limit": 5, "verdict": "up", **times, **more}
        )

    def test_errors_make_it_ask_and_only_a_refused_token_takes_it_out(self):
        watched = self.watched(replaceable=True)
        watched.counts(1000, 0, 0)
        watched.counts(1004, 0, 2)
        assert not watched.saw(TestWatched.metrics(1), 2)
        watched.counts(1005, 0, 4)
        assert watched.saw(TestWatched.metrics(1, 2), 4)
        watched.probed("", 5)
        assert watched.answer == "up" and not watched.saw(TestWatched.metrics(1, 3), 6)
        watched.counts(1010, 0, 6)
        assert watched.saw(TestWatched.metrics(1, 4), 6)
        watched.probed("the request for a token was answered with HTTP 500", 7, refused=True)
        assert watched.answer == "down #the request for a token was answered with HTTP 500"
        # Its old stream moves on, and it is asked until it gives a token.
        assert watched.saw(TestWatched.metrics(1, 5), 60) and watched.answer.startswith("down")
        watched.probed("", 61)
        assert watched.answer == "up" and not watched.saw(TestWatched.metrics(1, 6), 62)

    def test_old_errors_and_those_of_another_worker_do_not_count(self):
        watched = self.watched()
        for total, now in ((0, 0), (4, 1), (5, 12), (0, 13), (3, 14)):
            watched.counts(total, 0, now)
        assert not watched.saw(TestWatched.metrics(1), 14)
        watched.counts(9, 0, 20)
        assert watched.saw(TestWatched.metrics(1), 30) and not watched.saw(TestWatched.metrics(1), 31)
        assert not self.watched(error_limit=0, errors=((0, 99),)).saw(TestWatched.metrics(1), 1)

    def test_an_engine_that_hangs_says_so_whoever_else_of_its_group_is_missing(self):
        assert self.watched(incomplete="b").answer == "down #b, which serves together with it, is missing"
        assert self.watched(incomplete="b", verdict="down #hangs: x").answer == "down #hangs: x"

    def test_the_last_server_stays(self):
        watched = self.watched(refusal="the request for a token was answered with HTTP 500")
        assert watched.answer == "up"
        watched.replaceable = True
        assert watched.answer.startswith("down")

    def test_a_stuck_engine_that_refuses_tokens_stays_out(self):
        watched = self.watched(verdict="down #requests run and nothing has moved for 60 s")
        watched.probed("the request for a token was answered with HTTP 500", 1, refused=True)
        assert watched.answer == "down #requests run and nothing has moved for 60 s"
