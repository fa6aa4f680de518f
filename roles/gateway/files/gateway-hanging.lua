-- SPDX-License-Identifier: GPL-3.0-or-later

-- A server that is down keeps its requests: an engine that is stopping, or refuses new ones, still completes the others. Only an
-- engine that hangs completes none. The agent reports it with these words, and its clients must not wait for gateway_timeout.
core.register_task(function()
    while true do
        core.msleep(1000)
        for _, backend in pairs(core.backends) do
            for _, server in pairs(backend.servers) do
                local stats = server:get_stats()
                local agent = stats["last_agt"] or ""
                if stats["agent_status"] == "L7STS" and agent:find("(hangs: ", 1, true) then
                    server:shut_sess()
                end
            end
        end
    end
end)
