-- SPDX-License-Identifier: GPL-3.0-or-later

-- A service without a replica at work lets its requests wait until one has started (docs/operate/scale.md). HAProxy itself would
-- answer 503 at once.
core.register_action("await", { "http-req" }, function(txn, service, seconds)
    local started = core.now().sec
    while txn.f:nbsrv(service) == 0 and core.now().sec - started < tonumber(seconds) do
        core.msleep(200)
    end
end, 2)
