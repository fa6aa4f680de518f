# SPDX-License-Identifier: GPL-3.0-or-later
"""An hour of 50 teams, simulated: gateway-admission.lua decides in HAProxy, and a queue like HAProxy's obeys."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.fakes.gateways import HAPROXY, ROLE

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")

# A service with 100 places whose requests take 2 to 18 seconds. Teams and clients send at a constant mean rate.
SIMULATION = """
local now, actions, working = 0, {}, {}
local stktable = { lookup = function(_, key) return { conn_cur = working[key:match(":(.*)")] or 0 } end }
local fake = { now = function() return { sec = now // 1000, usec = now %% 1000 * 1000 } end,
    backends = { ["gateway:shares"] = { stktable = stktable } },
    register_action = function(name, _, run) actions[name] = run end, register_service = function() end,
    register_task = function() end }
assert(loadfile("%(lua)s", "t", setmetatable({ core = fake }, { __index = _G })))()
math.randomseed(44)
local PLACES, HOUR = 100, %(seconds)d * 1000
local queue, running, served, refused, longest = {}, {}, {}, {}, {}

-- A heap by HAProxy's order: class, then time, then arrival.
local function before(a, b)
    if a.class ~= b.class then return a.class < b.class end
    return a.key < b.key or a.key == b.key and a.number < b.number
end
local function push(heap, item, less)
    local at = #heap + 1
    heap[at] = item
    while at > 1 and less(item, heap[at // 2]) do
        heap[at], heap[at // 2] = heap[at // 2], item
        at = at // 2
    end
end
local function pop(heap, less)
    local top, last = heap[1], table.remove(heap)
    if #heap > 0 then
        local at = 1
        while true do
            local child = 2 * at
            if child > #heap then break end
            if child < #heap and less(heap[child + 1], heap[child]) then child = child + 1 end
            if not less(heap[child], last) then break end
            heap[at] = heap[child]
            at = child
        end
        heap[at] = last
    end
    return top
end
local function sooner(a, b) return a.at < b.at end

local function txn_of(team, class, client)
    local vars = { ["txn.class"] = class, ["txn.team"] = team, ["txn.client"] = client,
        ["txn.working"] = working[team], ["txn.own"] = working[client] }
    return { vars = vars, get_var = function(_, name) return vars[name] end,
        set_var = function(_, name, value) vars[name] = value end,
        f = { be_conn = function() return #queue + #running + 1 end, queue = function() return #queue end,
            be_conn_free = function() return PLACES - #running end, nbsrv = function() return 1 end } }
end
local ORDER = { gold = 0, standard = 1, batch = 2 }
local number = 0
local function begin(request)
    request.at = now + math.random(2000, 18000)
    actions.answered(request.txn)
    longest[request.team] = math.max(longest[request.team] or 0, now > HOUR / 6 and now - request.came or 0)
    push(running, request, sooner)
end
local function arrive(source)
    working[source.team] = (working[source.team] or 0) + 1
    working[source.client] = (working[source.client] or 0) + 1
    local txn = txn_of(source.team, source.class, source.client)
    actions.admit(txn, "chat", PLACES, 1, "auto")
    if txn.vars["txn.admission"] == "refused" then
        working[source.team], working[source.client] = working[source.team] - 1, working[source.client] - 1
        refused[source.team] = (refused[source.team] or 0) + 1
        return
    end
    number = number + 1
    local request = { txn = txn, team = source.team, client = source.client, class = ORDER[source.class], came = now,
        number = number, key = now + txn.vars["txn.offset"] }
    if #running < PLACES then begin(request) else push(queue, request, before) end
end
local function complete()
    local request = pop(running, sooner)
    working[request.team], working[request.client] = working[request.team] - 1, working[request.client] - 1
    if now > HOUR / 6 then
        served[request.team] = (served[request.team] or 0) + 1
        served[request.client] = (served[request.client] or 0) + 1
    end
    if #queue > 0 then begin(pop(queue, before)) end
end
local sources, due = %(sources)s, {}
for _, source in ipairs(sources) do
    push(due, { at = math.random() * 1000 / source.rate, source = source }, sooner)
end
while now < HOUR do
    local arrival, ending = due[1].at, running[1] and running[1].at or math.huge
    now = math.floor(math.min(arrival, ending))
    if ending <= arrival then
        complete()
    else
        local entry = pop(due, sooner)
        arrive(entry.source)
        entry.at = arrival - math.log(1 - math.random()) * 1000 / entry.source.rate
        push(due, entry, sooner)
    end
end
local parts = {}
for team in pairs(working) do
    parts[#parts + 1] = ('"%%s":[%%d,%%d,%%d]'):format(team, served[team] or 0, refused[team] or 0, longest[team] or 0)
end
for _, source in ipairs(sources) do
    parts[#parts + 1] = ('"%%s":[%%d,0,0]'):format(source.client, served[source.client] or 0)
end
print("{" .. table.concat(parts, ",") .. "}")
"""


def simulate(directory, sources, seconds=3600):
    """Return served, refused and the longest wait in ms of each team, and served of each client, after ten minutes."""
    lua = ",".join(
        f'{{team="{team}",class="{class_}",client="{client}",rate={rate}}}' for team, class_, client, rate in sources
    )
    (directory / "simulation.lua").write_text(
        SIMULATION % {"lua": ROLE / "files/gateway-admission.lua", "seconds": seconds, "sources": f"{{{lua}}}"}
    )
    (directory / "haproxy.cfg").write_text(f"global\n    lua-load {directory / 'simulation.lua'}\n")
    done = subprocess.run([HAPROXY, "-c", "-f", directory / "haproxy.cfg"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0])


def test_teams_that_want_more_than_their_share_get_the_same_and_the_others_all_they_want(tmp_path):
    # 10 requests a second are served. 20 teams want 0.05, 30 want 0.4 to 4: their share is 0.3.
    quiet = [(f"quiet{n}", "standard", f"q{n}", 0.05) for n in range(20)]
    noisy = [(f"noisy{n}", "standard", f"n{n}", 0.4 if n < 15 else 4) for n in range(30)]
    found = simulate(tmp_path, [*quiet, *noisy])
    shares = [found[f"noisy{n}"][0] for n in range(30)]
    mean = sum(shares) / len(shares)
    assert max(shares) <= 1.1 * mean and min(shares) >= 0.9 * mean, shares
    # All places were busy.
    assert 9.7 * 3000 <= sum(shares) + sum(found[f"quiet{n}"][0] for n in range(20)) <= 10.3 * 3000
    for n in range(20):
        served, refused, longest = found[f"quiet{n}"]
        assert refused == 0 and served > 90 and longest < 15_000, (n, found[f"quiet{n}"])
    # Nobody starves: 20 s are the mean, and a team that had more places in the queue waits for itself. HAProxy would
    # answer 503 after 30 s.
    assert max(found[f"noisy{n}"][2] for n in range(30)) < 90_000


def test_clients_of_a_team_have_the_same_and_more_of_them_get_their_team_no_more(tmp_path):
    one = [("one", "standard", "alone", 20)]
    many = [("many", "standard", f"m{n}", 2 if n else 20) for n in range(10)]
    found = simulate(tmp_path, [*one, *many])
    served = [found[team][0] for team in ("one", "many")]
    assert max(served) <= 1.1 * sum(served) / 2, served
    # One of them sends ten times as much as each other.
    loud, *others = (found[f"m{n}"][0] for n in range(10))
    assert max(others) <= 1.1 * min(others) and loud <= 1.6 * min(others), (loud, others)


def test_a_class_gets_all_that_the_classes_above_it_leave(tmp_path):
    sources = [("product", "gold", "p", 4), ("research", "standard", "r", 3), ("nightly", "batch", "b", 20)]
    found = simulate(tmp_path, sources)
    assert found["product"][1] == found["research"][1] == 0 and found["nightly"][1] > 0
    assert found["product"][2] < 2000 and found["research"][2] < 8000
    assert sum(found[team][0] for team, *_more in sources) >= 9.7 * 3000


# Places are left by one request after the other; then come two of a team that has sent nothing.
TURNS = """
local lowest = 0
local function come(team, class, times, pause)
    for _ = 1, times do
        now = now + (pause or 5)
        arrive({ team = team, class = class, client = team })
    end
end
local function until_served(team)
    local completed = 0
    while true do
        local left = 0
        for _, request in ipairs(queue) do
            lowest = math.min(lowest, request.txn.vars["txn.offset"])
            left = left + (request.team == team and 1 or 0)
        end
        if left == 0 then return completed end
        complete()
        completed = completed + 1
    end
end
%s
print(("[%%d,%%d]"):format(until_served("res"), lowest))
"""


@pytest.mark.parametrize(
    "story",
    [
        # Fast ones, each over before the next, and then slow ones.
        'for _ = 1, 540 do come("loud", "standard", 1); complete() end; come("loud", "standard", 195)',
        # A class that was idle while a lower one kept the queue from being empty.
        'come("night", "batch", 190); come("res", "standard", 3); until_served("res"); now = now + 600000; '
        'come("night", "batch", 20); come("loud", "standard", 40)',
        # A burst whose requests are not answered, and one ten minutes later.
        'come("night", "batch", 190); come("loud", "standard", 40); for n = #queue, 1, -1 do '
        'if queue[n].team == "loud" then table.remove(queue, n); working.loud = working.loud - 1 end end; '
        'now = now + 600000; come("loud", "standard", 40)',
        # Five requests a millisecond, each cancelled while it waits, and then the end of all that waits.
        'come("loud", "standard", 101); for n = 1, 600000 do now = now + (n % 5 == 0 and 1 or 0); '
        'come("loud", "standard", 1, 0); table.remove(queue); working.loud = working.loud - 2 end; '
        'until_served("loud"); complete(); come("loud", "standard", 61)',
        # Three ordinary requests a millisecond, served as fast.
        'come("loud", "standard", 250); for n = 1, 60000 do now = now + (n % 3 == 0 and 1 or 0); complete(); '
        'come("loud", "standard", 1, 0); assert(queue[#queue].txn.vars["txn.offset"] < 1000) end',
    ],
)
def test_a_team_that_was_quiet_is_next_whatever_was_before(tmp_path, story):
    head, _rest = SIMULATION.split("local sources, due =")
    text = head % {"lua": ROLE / "files/gateway-admission.lua", "seconds": 3600}
    (tmp_path / "turns.lua").write_text(text + TURNS % f'{story}; come("res", "standard", 2)')
    (tmp_path / "haproxy.cfg").write_text(f"global\n    lua-load {tmp_path / 'turns.lua'}\n")
    done = subprocess.run([HAPROXY, "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[") and line.endswith("]")]
    completed, lowest = json.loads(lines[0])
    assert completed <= 4, lines
    # HAProxy's queue looks back 524 s, and a request may wait 30 s in it, twice.
    assert lowest >= -464000
