-- SPDX-License-Identifier: GPL-3.0-or-later

-- Answers with txn.refusal, "STATUS RETRY-AFTER TEXT". After an answer of a program HAProxy reads the rest of the body, and drops it; after
-- one of its own it breaks off.
core.register_service("refuse", "http", function(applet)
    local status, retry, text = applet:get_var("txn.refusal"):match("^(%d+) (%S+) (.*)$")
    applet:set_status(tonumber(status))
    applet:add_header("content-type", "application/json")
    applet:add_header("content-length", #text)
    if retry ~= "-" then
        applet:add_header("retry-after", retry)
    end
    applet:start_response()
    applet:send(text)
end)
