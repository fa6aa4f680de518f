# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action driver_plan does for every stack: read the host, decide on the controller."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Mapping, Sequence

from ansible.errors import AnsibleActionFail

from ...module_utils.accelerator.recognition import AcceleratorError, Catalogue
from ...module_utils.common.processes_host import boot_id
from ...module_utils.vendor_stack.model import RETAIN, DriverPlan, Host, Package, StackError
from ...module_utils.vendor_stack.reboot import boot_mark, reboot_refusal
from ...module_utils.vendor_stack.users import Holder, foreign_holders, units_to_stop
from ..catalog.accelerators import load_catalogue
from ..catalog.faults import faults_of_host
from ..catalog.files import load_release
from ..common.action import ControllerAction
from ..common.addresses import AddressError, refuse_login
from ..planning.inputs import PlanError

# Steps that must come before a download: without them the package manager would download other packages, or none.
BEFORE_DOWNLOAD = ("recover", "unpin", "remove_first", "prepare")


@dataclass(frozen=True)
class StackInputs:
    """The inputs of a plan: the site's request, the result of driver_state, the chips and their catalogue."""

    request: Any
    state: Mapping[str, Any]
    detected: Mapping[str, Any]
    catalogue: Catalogue

    @property
    def host(self) -> Host:
        """The state of the host."""
        return Host.from_dict(self.state["host"])


class Stack:
    """What the planning of one vendor's driver needs beside what all have in common."""

    name = ""
    # Options that are passed on to the module driver_state.
    state_options: Sequence[str] = ()
    # Files of plans: their contents on the host decide whether they must be written.
    paths: Sequence[str] = ()

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> Any:
        """Return the site's request; ``release`` is the section of its release for this stack. Raises PlanError."""
        raise NotImplementedError

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        """Return the plan; ``offered`` are the versions in the repositories of version_packages(), if known."""
        raise NotImplementedError

    def version_packages(self, plan: DriverPlan) -> list[str]:
        """Return the packages of a plan whose versions in the repositories decide on its versions."""
        raise NotImplementedError

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        """Return further results for the role's tasks."""
        raise NotImplementedError


class StackAction(ControllerAction):
    """Reads the host, checks for other users of the chips and for reboots, and returns the plan of a stack."""

    _requires_connection = True

    STACKS: ClassVar[Mapping[str, Stack]] = {}
    # The options of only some stacks, with these.
    OF_STACKS: ClassVar[Mapping[str, Sequence[str]]] = {}

    def roles(self) -> tuple[str, ...]:
        """Return the role of the stack, which has its name."""
        stack = self._task.args.get("stack")
        return (stack,) if stack in self.STACKS else ()

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables.get("inventory_hostname", "")
        for name in self._task.args:
            stacks = self.OF_STACKS.get(name, (options["stack"],))
            if options["stack"] not in stacks:
                found = f"found with stack {options['stack']}"
                raise AnsibleActionFail(f"{name}: {found}; it is an option of stack {' or '.join(stacks)}")
        try:
            return self._planned(self.STACKS[options["stack"]], options, variables)
        except (AcceleratorError, AddressError, PlanError, StackError) as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc

    def _planned(self, stack: Stack, options: Mapping[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        for option in ("mirror", "epel_mirror"):
            refuse_login(f"{stack.name}_{option}", options.get(option, ""))
        release = load_release(options["release"], options["release_path"])["stacks"].get(stack.name, {})
        if options["keep"]:
            options, release = {**options, "version": "", "policy": RETAIN}, {**release, "minimum_driver": "0"}
        request, catalogue = stack.request(options, release), load_catalogue(options["catalog_path"])
        state = self._state(stack, options, [], task_vars)
        if state.get("failed"):
            return state
        inputs = StackInputs(request, state, options["detected"], catalogue)
        found = stack.plan(inputs, None)
        chosen = stack.version_packages(found)
        if options["resolve"] and chosen:
            found = stack.plan(inputs, self._state(stack, options, chosen, task_vars)["offered"])
        if _works(found, state):
            # The role's files would add nothing to a working driver, and cost a new initramfs.
            found = replace(found, files=(), finish=())
        stopping = _stopping(found, state)
        refused = _refused(stack.name, found, state, options)
        if found.replaces and refused and not found.unload:
            # If the tools were newer than the module, no program could start until then.
            raise StackError(
                f"driver {found.replaces} cannot be replaced without a reboot, and none is possible: {refused}"
            )
        return {
            "no_reboot": refused,
            **_result(stack.name, found, inputs, stopping),
            **stack.further_results(inputs),
        }

    def _state(
        self, stack: Stack, options: Mapping[str, Any], offered_of: list[str], task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the state of the host."""
        arguments = {
            **{key: options[key] for key in ("root", "sysfs_root", "proc_root", "hold", *stack.state_options)},
            "contents_of": [_mark(stack.name), *stack.paths],
            "offered_of": offered_of,
            "stack": stack.name,
            "faults": faults_of_host(stack.name),
        }
        state: dict[str, Any] = self._execute_module(
            module_name="baremetal.inference.driver_state", module_args=arguments, task_vars=task_vars
        )
        return state


def _works(found: DriverPlan, state: Mapping[str, Any]) -> bool:
    """Return whether the proof of the stack finds no fault in a driver that the plan does not change."""
    return not (state["findings"] or found.packages or found.installers or found.remove or found.reboot)


def _mark(stack: str) -> str:
    """Return the path of the file that prevents a second reboot for the same reason."""
    return f"/var/lib/baremetal-{stack}/rebooted"


def _stopping(found: DriverPlan, state: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the units to stop before the driver is replaced. Raises StackError where others use the chips."""
    if not found.replaces:
        return ()
    stopping = units_to_stop(state["active"])
    others = foreign_holders([Holder(**holder) for holder in state["holders"]], stopping)
    if others:
        raise StackError(
            f"driver {found.replaces} is to be replaced, and {others[0]}"
            + (f", as have {len(others) - 1} more" if others[1:] else "")
            + "; stop every program that is not a vLLM instance, then run again"
        )
    return stopping


def _refused(stack: str, found: DriverPlan, state: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """Return why a required reboot is not permitted, None if it is or if none is required."""
    if not found.reboot:
        return None
    mark = state["contents"].get(_mark(stack)) or ""
    return reboot_refusal(found.reboot, options["reboot_allowed"], state["boot"], boot_id(), mark, stack)


def _steps(found: DriverPlan, inputs: StackInputs, stopping: Sequence[str]) -> dict[str, list[Any]]:
    """Return what the tasks do, by step, without what the host already has."""
    host, state = inputs.host, inputs.state
    files = [file for file in found.files if state["contents"].get(file.path) != file.content]
    services = [name for name in found.services if state["services"].get(name) != "active"]
    hold = [name for name in found.hold if name in host.packages and name not in host.holds]
    ahead = [package.name for package in found.packages if package.ahead]
    return {
        "groups": [vars(group) for group in found.groups],
        "users": [vars(user) for user in found.users],
        "files": [vars(file) for file in files],
        "stop": list(stopping),
        "unload": list(found.unload),
        "remove_first": list(found.remove_first),
        "repositories": [
            {"key": repository.key.url, "key_path": repository.key.path, "path": file.path, "content": file.content}
            for repository, file in ((one, one.file(host.manager)) for one in found.repositories)
        ],
        "release": [name for name in (*found.hold, *found.remove) if name in host.holds]
        if found.packages or found.remove
        else [],
        "recover": list(host.unfinished) if found.packages or found.installers else [],
        "unpin": [name for name in found.pins if name not in ahead] if host.unfinished else [],
        "prepare": [list(command.argv) for command in found.prepare],
        "packages": [package.spec(host.manager) for package in found.packages],
        "installers": [{**vars(one), "argv": list(one.argv)} for one in found.installers],
        "remove": list(found.remove),
        "finish": [list(command.argv) for command in found.finish],
        # Services that need a reboot first cannot start yet.
        "services": [] if found.reboot else services,
        "hold": hold,
        "reboot": list(found.reboot),
    }


def _result(stack: str, found: DriverPlan, inputs: StackInputs, stopping: Sequence[str]) -> dict[str, Any]:
    """Return the plan as tasks carry it out."""
    host, state, steps = inputs.host, inputs.state, _steps(found, inputs, stopping)
    return {
        "manager": host.manager,
        # Including the packages of this run, so that they are held even if a later step fails.
        "holds": list(found.hold),
        **_batches(found, host),
        "pinning": [package.name for package in found.packages if package.ahead],
        # The versions that a failed upgrade restores.
        "installed": [
            Package(name, host.packages[name]).spec(host.manager)
            for name in (*found.hold, *found.pins)
            if name in host.packages
        ],
        "plan": steps,
        "before_download": [name for name in BEFORE_DOWNLOAD if steps[name]],
        "changes": any(steps.values()),
        "mark": {"path": _mark(stack), "content": boot_mark(state["boot"], found.reboot)},
        "warnings": [*found.notes, *_later(state)],
    }


def _later(state: Mapping[str, Any]) -> list[str]:
    """Return a warning for each finding that would break a working driver at a later boot."""
    return [f"{entry['where']}: {entry['what']}; {entry['action']}" for entry in state.get("later", [])]


def _batches(found: DriverPlan, host: Host) -> dict[str, Any]:
    """Return the batches of packages in order: first those that must precede others, then the rest together."""
    ahead = [package.spec(host.manager) for package in found.packages if package.ahead]
    rest = [package for package in found.packages if not package.ahead]
    batches = _in_order(rest, host) if found.in_order else [[package.spec(host.manager) for package in rest]]
    batches = [batch for batch in batches if batch]
    if host.unfinished and ahead:
        # With packages of two versions, nothing can be pinned until all have one version again.
        return {"ahead": [], "batches": [*batches, ahead]}
    return {"ahead": ahead, "batches": batches}


def _in_order(packages: Sequence[Package], host: Host) -> list[list[str]]:
    """Return packages one after the other; those without a version, which build the others, come first."""
    tools = [package.spec(host.manager) for package in packages if package.version is None]
    return [tools, *([package.spec(host.manager)] for package in packages if package.version is not None)]
