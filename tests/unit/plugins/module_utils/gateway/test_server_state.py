# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved states of servers, with the ports of the configuration."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.server_state import fitted

CONFIG = "backend chat\n    server gpu-01:chat 10.0.0.1:8000 check agent-port 9000\n"
HEAD = "1\n# be_name srv_name srv_admin_state srv_port srv_agent_port\n"
STATE = f"{HEAD}chat gpu-01:chat 1 7999 8999\nchat gone 0 7999 8999\n\n"
FITTED = f"{HEAD}chat gpu-01:chat 1 8000 9000\n\n"


def test_a_saved_state_gets_the_ports_of_the_configuration_and_loses_servers_that_left_it():
    assert fitted(STATE, CONFIG) == FITTED


def test_a_text_that_is_no_state_stays_as_it_is():
    assert fitted("", CONFIG) == ""
    assert fitted("1\nno header\n", CONFIG) == "1\nno header\n"


def test_ports_are_those_of_the_backend_of_the_server():
    state = "1\n# be_id be_name srv_id srv_name srv_admin_state srv_port srv_agent_port\n"
    state += "4 chat 1 a--chat 8 8000 1\n4 chat 2 gone 8 8000 1\n\n"
    config = "backend other\n    server a--chat 10.0.0.1:1\nbackend chat\n    default-server agent-port 8405\n"
    config += "    server a--chat [::1]:9 x\n"
    assert fitted(state, config).splitlines()[2:] == ["4 chat 1 a--chat 8 9 8405", ""]


def test_a_socket_of_haproxy_itself_has_no_state():
    own = "backend gateway:new:443\n    server new unix@/routed/port:443.sock send-proxy-v2\n"
    state = STATE.replace("\n\n", "\ngateway:new:443 new 0 443.sock 0\n\n")
    assert fitted(state, CONFIG + own) == FITTED
