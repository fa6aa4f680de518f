# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.site_options import (
    check_site_options,
    read_keys,
)

KEY = "ssh-ed25519 AAAA me"


def test_keys_are_a_list_or_the_text_of_one():
    assert read_keys([f"{KEY}\n", "", "ssh-rsa BBBB"]) == (KEY, "ssh-rsa BBBB")
    assert read_keys(KEY) == (KEY,)


@pytest.mark.parametrize("value", [[], [""], "", None, 7, {}, [7], [None], "AAAA", f"{KEY}\n{KEY}", [[KEY]]])
def test_other_keys_are_refused_and_not_repeated(value):
    with pytest.raises(ProvisionError, match="provision_ssh_keys: found ") as error:
        read_keys(value)
    assert "AAAA" not in str(error.value)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"provision_deadlnes": {}}, "provision_deadlnes: no playbook reads it; nearest: 'provision_deadlines'"),
        ({"provision_deadlines": [5]}, "provision_deadlines: found [5], expected a mapping of phases to seconds"),
        ({"provision_deadlines": {"write": 0}}, "provision_deadlines.write: found 0, expected seconds from 1 to 86400"),
        ({"provision_bmc_verify": "mabe"}, "provision_bmc_verify: found 'mabe', expected true or false"),
        ({"provision_user": ["root"]}, "provision_user: found ['root'], expected the name of a user"),
    ],
)
def test_an_option_that_no_run_could_use_is_refused(variables, said):
    with pytest.raises(ProvisionError) as error:
        check_site_options(variables)
    assert str(error.value) == said


def test_templates_and_variables_of_the_site_pass():
    check_site_options({"provision_deadlines": "{{ mine }}", "provision_colour": "red", "provision_ssh_keys": [KEY]})
