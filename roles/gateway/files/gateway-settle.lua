-- SPDX-License-Identifier: GPL-3.0-or-later

-- HAProxy counts a request for a moment after its client has the complete answer. A client that sends the next request at
-- once over another connection is checked again after this delay, before it is refused.
core.register_action("settle", { "http-req" }, function(_txn)
    core.msleep(50)
end)
