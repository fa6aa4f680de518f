# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal.inspect_host import Inspection
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import Request, Site
from ansible_collections.baremetal.inference.plugins.module_utils.removal.plan import decide
from ansible_collections.baremetal.inference.plugins.module_utils.removal.remove_host import Removal

from tests.fakes.systemd import FakeInstances, FakeSystemd


class FakeHost(FakeInstances):
    """A host below a directory: systemctl is played, no engine is installed, and no process runs."""

    def __init__(self, directory):
        super().__init__(directory / "root")
        self.root.mkdir()
        self.systemd = FakeSystemd(directory / "systemd.json")
        self.proc = directory / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self/mountinfo").write_text("1 1 0:1 / / rw - ext4 disk rw\n")
        self.users = []
        # Answers of other commands by their names, and how they were called.
        self.commands = {}
        self.asked = []

    def run(self, words, **_options):
        if words[0] in self.commands:
            self.asked.append(" ".join(words))
            return self.commands[words[0]]
        if words[0] == "userdel":
            self.users.append(words[1])
            return 0, "", ""
        if words[0] != "systemctl":
            raise FileNotFoundError(2, "No such file", words[0])
        return self.systemd(words)

    def inspection(self):
        # The test's own machine may have a user of this name.
        site = Site(user="nobody-has-this-name")
        return Inspection(str(self.root), site, self.run, str(self.proc))

    def plan(self, kind, *names, **options):
        return decide(Request(kind, names, **options), self.inspection().read(kind, options.get("also", ())))

    def removal(self):
        return Removal(self.inspection(), self.run)

    def remove(self, kind, *names, **options):
        removal = self.removal()
        removal.remove(self.plan(kind, *names, **options).items)
        if kind == "everything":
            removal.tidy()
        return removal

    def files(self):
        return sorted("/" + str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir())


@pytest.fixture
def there(tmp_path):
    return FakeHost(tmp_path)
