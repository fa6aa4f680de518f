#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_usage_info
short_description: (internal) Read the tokens that a gateway has counted
description:
  - Reads the database of the role P(baremetal.inference.gateway#role) on a gateway, in which each gateway stores what
    all of them served.
  - Changes nothing. The playbook gateway_usage.yml shows the rows of several gateways together.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  since:
    description: The first hour, from a day such as V(2026-11-25), a month such as V(2026-11), or a time before now such
      as V(7d) or V(24h). Days and months begin in UTC.
    type: str
    default: 30d
  end:
    description: The end, in the same form; when empty, now.
    type: str
    default: ""
"""

EXAMPLES = "\n# playbooks/gateway_usage.yml\n"

import time

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.gateway.usage_host import read_usage
from ..module_utils.gateway.usage_period import PeriodError, time_of

DATABASE = "/var/lib/gateway-usage/usage.sqlite"
# As users of the playbook know them.
OPTIONS = {"since": "gateway_usage_since", "end": "gateway_usage_until"}


@door(DOCUMENTATION)
def main(module: AnsibleModule) -> Result:
    now, times = int(time.time()), {"since": 0, "end": 0}
    for name in times:
        text = module.params[name]
        try:
            times[name] = time_of(text, now) if text else now + 3600
        except PeriodError as exc:
            module.fail_json(msg=f"{OPTIONS[name]}: {exc}")
    return read_usage(DATABASE, times["since"], times["end"])


if __name__ == "__main__":
    main()
