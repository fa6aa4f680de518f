-- SPDX-License-Identifier: GPL-3.0-or-later

-- Decides which request waits for which while all places of the servers are taken, and which is refused (docs/operate/fair.md).
-- HAProxy keeps the queue: it serves the class with the lowest number first, and within a class the request with the lowest time.
-- "admit" sets txn.offset, the milliseconds by which that time is moved, and txn.admission: now, waits or refused.
--
-- Fair queueing with the queue's own clock (Golestani, SCFQ, 1994). Each service and class has a clock that counts rounds: in one
-- round each team that waits gets one request served. A request gets the number of the round in which it is due; a team that has sent
-- ten requests at once is due in ten rounds one after the other, and one that has sent none is due next. So nothing has to be known
-- of the duration of requests. Within a team the same holds for its clients.

-- How many times the places of a service may wait before a class is refused, and after how many seconds it may come again.
local BOUNDS = { gold = 4, standard = 2, batch = 1 }
local RETRY_AFTER = { gold = 1, standard = 2, batch = 10 }
local BUCKETS = { 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 }
-- HAProxy's queue looks back 524 seconds, and puts what is older last. A request may wait there twice, for 30 seconds each.
local FURTHEST = 450000
local HIGHER = { gold = { "gold" }, standard = { "gold", "standard" }, batch = { "gold", "standard", "batch" } }

local clocks, counts, waits = {}, {}, {}

local function milliseconds()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

-- The value at a path of nested tables, which are made where they are missing.
local function at(from, ...)
    for _, name in ipairs({ ... }) do
        from[name] = from[name] or {}
        from = from[name]
    end
    return from
end

-- round: the last one that was served; times: HAProxy's time of each round that is due, up to the round ``top``.
local function clock_of(service, class)
    local clock = at(clocks, service, class)
    clock.round, clock.top = clock.round or 0, clock.top or 0
    at(clock, "times")
    at(clock, "teams")
    return clock
end

-- HAProxy's time of a round: behind those of the rounds before it, and never changed, so that the order of rounds is the order of
-- the queue however long each of them takes. It is ahead of now by no more milliseconds than rounds are due: where more than 1,000
-- of them are served in a second, neighbours have the same time, and HAProxy serves the oldest request of both first.
local function time_of(clock, round, now)
    while clock.top < round do
        local last = clock.times[clock.top] or 0
        clock.top = clock.top + 1
        clock.times[clock.top] = math.max(now, last, math.min(last + 1, now + clock.top - clock.round))
    end
    return clock.times[round]
end

-- How many have a request that is due after the clock's round; the others are forgotten.
local function waiting(due, round)
    local number = 0
    for name, value in pairs(due) do
        if (type(value) == "table" and value.last or value) > round then
            number = number + 1
        else
            due[name] = nil
        end
    end
    return number
end

-- The round in which a request is due: the next of its client, who takes turns with the others of the team, and at the latest the
-- next of its team. So what a quiet client does not use is for the others of its team. A team is due in no more rounds than it has
-- requests that run or wait, ``working``: those that were cancelled are forgotten.
local function round_of(clock, team, client, working)
    clock.teams[team] = clock.teams[team] or { due = 0, last = 0, clients = {} }
    local clients, own = clock.teams[team].clients, clock.teams[team]
    local others = waiting(clients, clock.round) - (clients[client] and 1 or 0)
    own.due = math.min(math.max(clock.round, own.due), clock.round + math.max(1, working) - 1) + 1
    clients[client] = math.min(own.due, math.max(clock.round, clients[client] or 0) + 1 + others)
    own.last = math.max(own.last, clients[client])
    return clients[client]
end

-- A request of this round is served.
local function served(clock, round)
    while clock.round < round do
        clock.times[clock.round] = nil
        clock.round = clock.round + 1
    end
end

-- Nothing waits, so nobody owes anybody a turn.
local function restart(clock)
    clock.round, clock.times, clock.teams = clock.top, {}, {}
end

-- Whether a class is refused: too many of it and of higher ones wait, and its team has its share of those that run and wait already.
-- One of ``teams`` teams that wait, this one included, has the same share as the others, so a quiet one is not refused because of a
-- noisy one. The same holds for one of ``clients`` clients of the team, which has ``own`` requests, until the team has half as much
-- again: many keys get no more than that. Where three times as many wait, those of higher classes do, and nothing is left for this one.
local function is_refused(class, queue, places, working, teams, own, clients)
    local most = BOUNDS[class] * places
    local share = math.max(1, (places + most) // teams)
    local too_many = working > share and (own > math.max(1, share // clients) or working > share + math.max(1, share // 2))
    return queue >= most and (queue >= 3 * most or too_many)
end

-- What HAProxy's table has of each team: requests that run or wait.
local function present(service, team)
    local entry = core.backends["gateway:shares"].stktable:lookup(service .. ":" .. team)
    return entry and entry.conn_cur or 0
end

-- Requests of a class that run or wait.
local function present_of(service, class)
    local sum = 0
    for team in pairs(at(counts, service, class)) do
        sum = sum + present(service, team)
    end
    return sum
end

-- A worker that replaces another one begins with small bounds (see below), which refuse nobody: this many seconds the plan's count.
local replaces, began, RISES = os.getenv("HAPROXY_MWORKER_REEXEC"), core.now().sec, 30

local function rises()
    return replaces and core.now().sec - began < RISES
end

-- What waits, is free and could be taken, and what runs: of the real queue, or in shadow mode of the one that there would be.
local function occupancy(txn, service, places, servers, mode)
    -- Without this request, which HAProxy counts already.
    local taken = txn.f:be_conn(service) - 1
    local all = places
    places = math.max(1, places * txn.f:nbsrv(service) // servers)
    if mode == "auto" then
        local queue, free = txn.f:queue(service), math.max(0, txn.f:be_conn_free(service))
        -- HAProxy also counts refusals that nobody has read; what runs has a place, at servers that leave too.
        local running = taken - queue
        return queue, free, math.max(rises() and places or 1, math.min(running, places) + free), math.min(running, all)
    end
    return math.max(0, taken - places), math.max(0, places - taken), places, math.min(taken, all)
end

-- How many of a class and of higher ones wait at least, where ``running`` requests of any class run. Others' queue refuses nobody.
local function queue_of(service, class, queue, running)
    local sum = 0
    for _, each in ipairs(HIGHER[class]) do
        sum = sum + present_of(service, each)
    end
    return math.max(0, math.min(queue, sum - 1 - running))
end

-- By service, where servers keep places free for the highest class: how many of its requests wait, and the second when one came last.
-- Where none has come for so many seconds, the others get these places, too.
local favoured, came, UNUSED, stopping = {}, {}, 60, false

local function is_unused(service)
    return core.now().sec - (came[service] or -UNUSED) >= UNUSED
end

-- Serve the head of the queue at servers that keep places free, ``kept``: their bounds rise for a moment. While a request of the highest
-- class waits, each one that any server gets is of this class.
local function pay(service, class, kept)
    local backend, before = core.backends[service]
    repeat
        local all, got, unused = {}, 0, is_unused(service)
        for name, server in pairs(backend.servers) do
            all[name] = server:get_stats()
            got = got + all[name]["stot"]
        end
        -- Those that were cancelled are forgotten.
        favoured[service] = math.max(0, math.min(favoured[service] - got + (before or got), present_of(service, class)))
        before = got
        for name, number, places in kept:gmatch("(%S+)=(%d+)/(%d+)") do
            local server, there = backend.servers[name], all[name]["scur"]
            local most = tonumber(server:get_maxconn())
            -- As places.py: fewer of a bound that the agent has made smaller.
            local top = most + math.min(tonumber(number), number * (most + number) // places)
            if (unused or favoured[service] > 0) and there >= most and there < top then
                server:set_maxconn(there + 1)
                server:set_maxconn(most)
            end
        end
        core.msleep(unused and favoured[service] == 0 and 50 or 5)
    until not unused and favoured[service] == 0 or stopping or backend:get_stats()["qcur"] == 0
    favoured[service] = nil
end

-- A request of the highest class has come, or one is about to wait. After a reload two workers share the engines, so none sends more.
local function favour(txn, service, class, kept)
    local own, waits = txn:get_var("txn.class") == class, txn:get_var("txn.admission") == "waits"
    if own then
        came[service] = core.now().sec
    end
    if favoured[service] then
        favoured[service] = favoured[service] + (own and waits and 1 or 0)
    elseif waits and (own or is_unused(service)) and not rises() and not stopping then
        favoured[service] = own and 1 or 0
        core.register_task(function()
            core.msleep(1)
            pay(service, class, kept)
        end)
    end
end

local function admit(txn, service, all, servers, mode)
    local class, team, client = txn:get_var("txn.class"), txn:get_var("txn.team"), txn:get_var("txn.client") or "-"
    local queue, free, places, running = occupancy(txn, service, tonumber(all), tonumber(servers), mode)
    local clock, now = clock_of(service, class), milliseconds()
    local count = at(counts, service, class, team)
    if free > 0 and queue == 0 or present_of(service, class) <= 1 then
        restart(clock)
    end
    local teams = waiting(clock.teams, clock.round) + (clock.teams[team] and 0 or 1)
    local others = clock.teams[team] and clock.teams[team].clients or {}
    local clients = waiting(others, clock.round) + (others[client] and 0 or 1)
    local decision = free > 0 and queue == 0 and "now" or "waits"
    local before = queue_of(service, class, queue, running)
    if is_refused(class, before, places, txn:get_var("txn.working"), teams, txn:get_var("txn.own"), clients) then
        decision = "refused"
        txn:set_var("txn.retry_after", RETRY_AFTER[class])
    end
    count[decision] = (count[decision] or 0) + 1
    txn:set_var("txn.admission", decision)
    if decision == "refused" and mode == "auto" then
        return
    end
    local round = round_of(clock, team, client, txn:get_var("txn.working"))
    local offset = time_of(clock, round, now) - now
    txn:set_var("txn.offset", math.max(-FURTHEST, math.min(FURTHEST, offset)))
    txn:set_var("txn.round", tostring(round))
    txn:set_var("txn.came", tostring(now))
    txn:set_var("txn.admitted", service)
end

-- The engine has begun to answer, so the request has left the queue.
local function answered(txn)
    local service, class = txn:get_var("txn.admitted"), txn:get_var("txn.class")
    if not service then
        return
    end
    served(clock_of(service, class), tonumber(txn:get_var("txn.round")))
    local seconds, wait = (milliseconds() - tonumber(txn:get_var("txn.came"))) / 1000, at(waits, service, class)
    wait.sum, wait.count = (wait.sum or 0) + seconds, (wait.count or 0) + 1
    for _, bucket in ipairs(BUCKETS) do
        wait[bucket] = (wait[bucket] or 0) + (seconds <= bucket and 1 or 0)
    end
end

local function metrics()
    local lines, prefix = {}, "inference_gateway_admission"
    local function add(text, ...)
        lines[#lines + 1] = text:format(...)
    end
    add("# TYPE %s_requests_total counter", prefix)
    for service, classes in pairs(counts) do
        for class, teams in pairs(classes) do
            for team, count in pairs(teams) do
                local labels = ('service="%s",class="%s",team="%s"'):format(service, class, team)
                for _, decision in ipairs({ "now", "waits", "refused" }) do
                    add('%s_requests_total{%s,decision="%s"} %d', prefix, labels, decision, count[decision] or 0)
                end
                add("%s_requests{%s} %d", prefix, labels, present(service, team))
            end
        end
    end
    for service, classes in pairs(waits) do
        for class, wait in pairs(classes) do
            local name, labels = prefix .. "_first_answer_seconds", ('service="%s",class="%s"'):format(service, class)
            for _, bucket in ipairs(BUCKETS) do
                add('%s_bucket{%s,le="%s"} %d', name, labels, bucket, wait[bucket])
            end
            add('%s_bucket{%s,le="+Inf"} %d', name, labels, wait.count)
            add("%s_sum{%s} %.3f", name, labels, wait.sum)
            add("%s_count{%s} %d", name, labels, wait.count)
        end
    end
    return table.concat(lines, "\n") .. "\n"
end

-- After a reload two workers share the engines, until the queue of the replaced one is empty and its requests have ended. It keeps half
-- of its bounds. Those of the new one begin near zero, and its agent raises them (module_utils/gateway/places.py), or the end of RISES.
local function divide(number)
    local before = {}
    for _, backend in pairs(core.backends) do
        for _, server in pairs(backend.servers) do
            local most = tonumber(server:get_maxconn())
            if most > 1 then
                before[server] = { most, math.max(1, most // number) }
                server:set_maxconn(before[server][2])
            end
        end
    end
    return before
end

core.register_task(function()
    local before = replaces and divide(16) or {}
    while tonumber(core.get_info()["Stopping"]) == 0 do
        if core.now().sec - began > RISES then
            for server, bounds in pairs(before) do
                if tonumber(server:get_maxconn()) == bounds[2] then
                    server:set_maxconn(bounds[1])
                end
            end
            before = {}
        end
        core.msleep(200)
    end
    stopping = true
    divide(2)
end)
core.register_action("admit", { "http-req" }, admit, 4)
core.register_action("favour", { "http-req" }, favour, 3)
core.register_action("answered", { "http-res" }, answered)
core.register_service("admission", "http", function(applet)
    local text = metrics()
    applet:set_status(200)
    applet:add_header("content-type", "text/plain; version=0.0.4")
    applet:add_header("content-length", #text)
    applet:start_response()
    applet:send(text)
end)
