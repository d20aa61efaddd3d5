"""Launch a run: lock, probe, plan, sync, prepare, start, commit (`tfdeploy launch`).

A failure before the commit undoes everything. After the commit, the run needs neither this process
nor this machine, only its hosts.
"""

from __future__ import annotations

import os.path
import random
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfdeploy.errors import PortTaken, has_code
from tfdeploy.model.answers.hosts import PING, LockHolder
from tfdeploy.model.answers.runs import RUN_COMMIT, RUN_PREPARE, RUN_START
from tfdeploy.model.events import Emit, Event
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Hosts, Inventory, hosts_except, hosts_named
from tfdeploy.model.job import AskedLevel, Job, Secret
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Plan, plan_to_json
from tfdeploy.operations.broadcast.copy_keep import KeepCopyRequest, copy_keep
from tfdeploy.operations.copy.code_files import CodeChanged
from tfdeploy.operations.emit import emit_host_state, emit_note, emit_warning, step_events
from tfdeploy.operations.launching.clocks import compare_clocks
from tfdeploy.operations.launching.keep_elsewhere import rename_keep_on_others
from tfdeploy.operations.launching.preflight import preflight
from tfdeploy.operations.launching.prepare_blobs import prepare_blobs
from tfdeploy.operations.launching.reachability import check_links, open_ports_note
from tfdeploy.operations.launching.readiness import wait_for_successful_end, wait_until_tasks_up
from tfdeploy.operations.launching.refusals import combined_prepare_error
from tfdeploy.operations.launching.renewal import keep_renewing_run, run_ended_error, says_run_ended
from tfdeploy.operations.launching.rollback import PreparedRun
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.outcomes import combine_errors, split_outcomes, values_or_error
from tfdeploy.operations.probe import ProbeQuestions, probe
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.run_lookup.run_names import refuse_taken_run_name
from tfdeploy.operations.sending.deletions import Confirm, never_confirm
from tfdeploy.operations.sending.host_data import add_data_splits, add_origin_listings
from tfdeploy.operations.sending.send_data import note_and_confirm_deletions
from tfdeploy.operations.sending.shipment import Shipment, read_shipment, refuse_secret_values
from tfdeploy.operations.setup import read_environment_recipe
from tfdeploy.operations.sync import sync
from tfdeploy.planning.checks import program_needed_on_path
from tfdeploy.planning.datasets import data_links, with_part_sizes
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.seats import hosts_to_probe, requested_roles
from tfdeploy.planning.source.entry_point import named_interpreter
from tfdeploy.planning.source.imports import (
    find_imports_outside_code,
    find_module_hiding_files,
    modules_to_probe,
    own_modules,
)
from tfdeploy.store.runs import RunStore
from tfdeploy.text.typed import Verb
from tfdeploy.transport.protocols import Errors, Fleet
from tfdeploy.tree import EnvironmentRecipe
from tfdeploy.tree.listing import find_ignore_pattern

PING_S = 10.0  # timeout, in seconds, of the call to all hosts just before the tasks start
PREPARE_S = 300.0
# A launch is tried again if a port was taken or a file changed after the probe. It is tried at most
# this many times.
TRIES = 6
# Launches of several jobs that begin together plan the same ports. Before a launch probes again, it
# waits for a random time of at most this many seconds, so that one after the other succeeds.
PORT_PAUSE_S = 4.0


@dataclass(frozen=True)
class LaunchRequest:
    """The request for one launch.

    `now` is in UTC seconds, and `run` is the run id. `holder` describes who holds the job's lock.
    Other operators see it when they wait for the lock.
    """

    inventory: Inventory
    job: Job
    run: str
    now: float
    operator: str
    holder: LockHolder
    options: Options = field(default_factory=Options)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    sync: bool = True
    # Send code even if it holds a private key or the value of a secret.
    allow_secrets: bool = False
    force: bool = False  # ignore errors of the preflight
    # This function asks the operator before most files of a data set are deleted on hosts.
    confirm: Confirm = never_confirm
    cache: Path | None = None
    # All hosts of the inventory, because data may come from any of them.
    known: Hosts = ()


def probe_and_plan(request: LaunchRequest, fleet: Fleet, emit: Emit) -> Plan:
    """Probe the hosts and return the plan, for `--dry-run`.

    This locks nothing, and sends the hosts nothing except tfdeploy's agent.
    """
    steps = _make_steps(request, fleet, emit)
    shipment = steps.read_code_and_data()
    plan, _ = steps.plan(shipment, steps.probe(shipment))
    return plan


def launch(request: LaunchRequest, fleet: Fleet, store: RunStore, emit: Emit) -> Plan:
    """Launch the run, and return its plan once the run is up and committed on all hosts.

    If a step fails, the run is rolled back on all hosts, and then TfdeployError is raised.
    """
    steps = _make_steps(request, fleet, emit)
    with ExitStack() as undo:
        steps.lock(undo)
        prepared = _prepare_with_retries(steps, store, undo)
        steps.start(prepared)
        steps.commit(prepared)
        locks = undo.pop_all()
    try:
        if prepared.plan.fresh:
            rename_keep_on_others(fleet, prepared.plan, steps.hosts, request.holder, emit)
        locks.close()
    except KeyboardInterrupt:
        # An interrupt after the commit does not undo the launch.
        run = prepared.plan.run
        emit_warning(
            emit,
            f"interrupted after the launch: {run} continues, and `tfdeploy stop {run}` ends it",
            run=run,
        )
    return prepared.plan


def _no_keep_reason(plan: Plan) -> str:
    return "" if plan.fresh or not plan.keep else f": no files in `keep` ({', '.join(plan.keep)})"


def _make_steps(request: LaunchRequest, fleet: Fleet, emit: Emit) -> LaunchSteps:
    """Return the steps of the launch, on the hosts that the mode uses.

    No host is contacted yet. Raises UsageError for invalid roles.
    """
    requested_roles(request.inventory, request.job, request.options)
    used_names = hosts_to_probe(request.inventory, request.job.mode)
    hosts = hosts_named(request.inventory.hosts, used_names)
    unused = hosts_except(request.inventory.hosts, used_names)
    used = replace(request, inventory=replace(request.inventory, hosts=hosts))
    return LaunchSteps(
        used, fleet, emit, unused, read_environment_recipe(request.job, request.cache)
    )


def _prepare_with_retries(steps: LaunchSteps, store: RunStore, undo: ExitStack) -> PreparedRun:
    """Probe, plan, sync and prepare, then save the run in the store.

    If a port was taken or a file changed since the probe, all of this is done again.
    """
    request = steps.request
    for tries_left in reversed(range(TRIES)):
        shipment = steps.read_code_and_data()
        plan, shipment = steps.plan(shipment, steps.probe(shipment))
        try:
            if request.sync:
                steps.sync(plan, shipment)
            prepared = steps.prepare(plan, undo)
            store.save(plan, shipment.manifest)
            return prepared
        except (PortTaken, CodeChanged) as error:
            if not tries_left:
                raise
            emit_warning(
                steps.emit,
                f"{error.what}: probing and planning again",
                run=request.run,
            )
            if isinstance(error, PortTaken):
                time.sleep(random.uniform(0.0, PORT_PAUSE_S))
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class LaunchSteps:
    """The steps of one launch.

    Some steps push actions on the stack `undo`, which undo the step if a later step fails.
    `unused_hosts` are hosts of the inventory that the mode does not use. `recipe` is the recipe of
    the job's Python environment, if the job has one.
    """

    request: LaunchRequest
    fleet: Fleet
    emit: Emit
    unused_hosts: Hosts
    recipe: EnvironmentRecipe | None

    @property
    def hosts(self) -> Hosts:
        """Return the hosts that the mode uses, then the unused hosts, which may hold data too."""
        return (*self.request.inventory.hosts, *self.unused_hosts)

    def lock(self, undo: ExitStack) -> None:
        """Acquire the job's lock on every host. The locks are released when `undo` is closed."""
        request = self.request
        with step_events(self.emit, "lock", request.run):
            undo.enter_context(
                HostLocks(
                    self.fleet,
                    request.inventory.hosts,
                    request.job.name,
                    "launch",
                    request.holder,
                    self.emit,
                ).hold()
            )

    def probe(self, shipment: Shipment) -> dict[str, HostFacts]:
        """Probe the hosts, and return their facts by host name.

        Hosts that the mode does not use are probed only if the run may continue from their
        checkpoints.
        """
        request, hosts = self.request, self.request.inventory.hosts
        unused = self.unused_hosts if request.job.keep and not request.options.ignore_keep else ()
        with step_events(self.emit, "probe", request.run):
            questions = probe_questions(request.job, hosts, shipment, self.recipe)
            return probe(self.fleet, hosts, questions, unused_hosts=unused, emit=self.emit)

    def read_code_and_data(self) -> Shipment:
        """Read the code and data of this machine, and list the data that comes from hosts."""
        request = self.request
        shipment = read_shipment(
            request.job, request.cache, request.known, allow_secrets=request.allow_secrets
        )
        if not request.allow_secrets:
            refuse_secret_values(shipment, request.secrets)
        return add_origin_listings(shipment, self.fleet, request.job, request.known)

    def plan(
        self, shipment: Shipment, facts_by_host: dict[str, HostFacts]
    ) -> tuple[Plan, Shipment]:
        """Make the plan, check it, and emit it with its notes.

        Returns the plan, and the shipment (code and data to send), with data sets split as planned.
        """
        with step_events(self.emit, "plan", self.request.run):
            plan = plan_launch(self.request, shipment, facts_by_host)
            plan, shipment = self._shard_data_sets(plan, shipment)
            preflight(
                launch_needs(self.request, shipment, plan),
                self.request.inventory,
                facts_by_host,
                force=self.request.force,
                emit=self.emit,
            )
            self.emit(Event("plan", time.time(), run=plan.run, data=plan_to_json(plan)))
            start_note = (
                f"training continues from {plan.resume}"
                if plan.resume
                else f"training starts from zero{_no_keep_reason(plan)}"
            )
            for text in (*plan.notes, start_note):
                emit_note(self.emit, text, run=plan.run)
            for warning in shipment.warnings:
                emit_warning(self.emit, warning, run=plan.run)
        return plan, shipment

    def _shard_data_sets(self, plan: Plan, shipment: Shipment) -> tuple[Plan, Shipment]:
        """Divide split data sets into parts, and add the sizes of the parts to the plan.

        Does nothing if no data set is split or the launch sends no data.
        """
        request = self.request
        if not plan.parts or not request.sync:
            return plan, shipment
        tasks = {task.task: task.host for task in plan.tasks}
        shipment = add_data_splits(shipment, self.fleet, request.job, self.hosts, tasks)
        return with_part_sizes(
            plan, {name: split.part_sizes for name, split in shipment.splits.items()}
        ), shipment

    def sync(self, plan: Plan, shipment: Shipment) -> None:
        """Send code and data to every host of the plan.

        Raises CodeChanged if a file of the code changed since it was read.
        """
        with step_events(self.emit, "sync", plan.run):
            note_and_confirm_deletions(
                self.fleet, hosts_of(plan), shipment, self.request.confirm, self.emit
            )
            values_or_error("sync", sync(self.fleet, hosts_of(plan), shipment, self.emit))

    def prepare(self, plan: Plan, undo: ExitStack) -> PreparedRun:
        """Prepare the run on all hosts or on none, and keep it prepared until the commit.

        Raises PortTaken if a port was taken since the probe, so that a new plan may help.
        """
        with step_events(self.emit, "prepare", plan.run), ExitStack() as undo_step:
            self._copy_keep(plan)
            undo_step.enter_context(keep_renewing_run(self.fleet, plan))
            blob = prepare_blobs(plan, self.request.secrets, compare_clocks(self.fleet, plan))
            prepared = PreparedRun(self.fleet, plan, self.emit)
            undo_step.push(prepared.roll_back_on_error)
            prepared_hosts, errors = split_outcomes(
                call_all(self.fleet, plan, RUN_PREPARE, blob=blob, timeout_s=PREPARE_S)
            )
            self._emit_host_states(prepared_hosts, "prepared", plan)
            if errors:
                raise combined_prepare_error(errors, len(plan.hosts))
            check_links(self.fleet, plan)
            if text := open_ports_note(plan):
                emit_note(self.emit, text, run=plan.run)
            undo.push(undo_step.pop_all())
        return prepared

    def start(self, prepared: PreparedRun) -> None:
        """Start all tasks and wait until they are up. No task starts unless all hosts answer."""
        plan = prepared.plan
        with step_events(self.emit, "start", plan.run):
            values_or_error("start", call_all(self.fleet, plan, PING, timeout_s=PING_S))
            prepared.step_begun = "start"
            if ended := self._call_and_find_ended(plan, RUN_START, "started"):
                # The state of a host that has ended the run tells why, so wait for all states.
                if any(has_code(error, "ended") for error in ended.values()):
                    wait_for_successful_end(self.fleet, plan, self.emit)
                raise run_ended_error(ended, len(plan.hosts))
            wait_until_tasks_up(self.fleet, plan, self.emit)

    def commit(self, prepared: PreparedRun) -> None:
        """Commit the run on all hosts. If the run has already succeeded, this is no failure."""
        plan, prepared.step_begun = prepared.plan, "commit"
        with step_events(self.emit, "commit", plan.run):
            if self._call_and_find_ended(plan, RUN_COMMIT, "committed"):
                wait_for_successful_end(self.fleet, plan, self.emit)

    def _copy_keep(self, plan: Plan) -> None:
        if plan.keep_from is not None:
            # A refused launch must leave the `keep` folders as they are.
            refuse_taken_run_name(self.fleet, hosts_of(plan), plan.job, plan.run)
            copy = KeepCopyRequest(
                plan.job, plan.keep, self.request.inventory.host(plan.keep_from), plan.run
            )
            copy_keep(self.fleet, copy, hosts_of(plan), self.emit)

    def _call_and_find_ended(self, plan: Plan, verb: Verb[Any], state: str) -> Errors:
        """Call the verb on all hosts, and return the errors of hosts that have ended the run.

        A host that does not know the run counts as one that has ended it. All other errors are
        combined into one error, which is raised.
        """
        answers, errors = split_outcomes(call_all(self.fleet, plan, verb))
        self._emit_host_states(answers, state, plan)
        ended = {host: error for host, error in errors.items() if says_run_ended(error)}
        if failures := {host: error for host, error in errors.items() if host not in ended}:
            raise combine_errors(verb.name.removeprefix("run."), failures, len(plan.hosts))
        return ended

    def _emit_host_states(self, hosts: Iterable[str], state: str, plan: Plan) -> None:
        for host in hosts:
            emit_host_state(self.emit, host, state, run=plan.run)


def probe_questions(
    job: Job, hosts: Hosts, shipment: Shipment | None, recipe: EnvironmentRecipe | None
) -> ProbeQuestions:
    """Return the questions of a launch's probe. They are the same for all hosts.

    `recipe` is the recipe of the job's Python environment, if the job has one.
    """
    return ProbeQuestions.for_hosts(
        hosts,
        job=job.name,
        keep=job.keep,
        setup=recipe.digest if recipe else None,
        program=program_needed_on_path(job),
        python=named_interpreter(job.command),
        modules=modules_to_probe(job, shipment.program(job)) if shipment else (),
        preflight=True,
        firewall=_required_protection(job) in ("auto", "firewall"),
    )


def _required_protection(job: Job) -> AskedLevel:
    """Return by which method (`protect`) hosts must be able to protect the tasks' ports.

    In a mode that uses only one host, no task listens on a port, so no protection is needed.
    """
    return "none" if job.mode and rules_of(job.mode).single else job.protect


def launch_needs(request: LaunchRequest, shipment: Shipment, plan: Plan | None = None) -> Needs:
    """Return what the launch needs of each host, for the preflight."""
    job, manifest, program = request.job, shipment.manifest, shipment.program(request.job)
    linked = (f"{path}/" for path in (*data_links(job), *job.keep))
    files = {*(entry.path for entry in manifest.entries), *linked}
    imports = find_imports_outside_code(job, program, files)
    return Needs(
        bytes=manifest.total_bytes,
        files=len(manifest.entries),
        sync=request.sync,
        tensorflow=program.imports_tensorflow,
        imports=imports,
        own_modules=own_modules(files),
        unsent_imports={
            each.module: find_ignore_pattern(job.code, paths)
            for each in imports
            if (paths := _module_paths(job.code, program.import_folder, each.module))
        },
        hidden=find_module_hiding_files(program, files),
        requirements=os.path.basename(job.setup_requirements) if job.setup_requirements else None,
        requirements_found=_requirements_path(job),
        plan=plan,
        protect=_required_protection(job),
        hosts=hosts_to_probe(request.inventory, job.mode) if job.mode else None,
    )


def _module_paths(code: str, folder: str, module: str) -> list[str]:
    """Return which of these exist: the module's folder, its `__init__.py`, and its `.py` file.

    `folder` and the returned paths are relative to `code`.
    """
    paths = (
        os.path.join(folder, name) for name in (module, f"{module}/__init__.py", f"{module}.py")
    )
    return [path for path in paths if os.path.exists(os.path.join(code, path))]


def _requirements_path(job: Job) -> str | None:
    """Return the path of requirements.txt in the code, relative to the job file's folder.

    Return None if the code has no such file.
    """
    file = os.path.join(job.code, "requirements.txt")
    return os.path.relpath(file, job.folder or job.code) if os.path.isfile(file) else None


def plan_launch(
    request: LaunchRequest, shipment: Shipment, facts_by_host: dict[str, HostFacts]
) -> Plan:
    """Make the plan of the launch. Raises the errors of `make_plan`."""
    manifest = shipment.manifest
    options = replace(
        request.options,
        sync=request.sync,
        needed_bytes=manifest.total_bytes,
        files=frozenset(entry.path for entry in manifest.entries),
        file_data=frozenset(name for name, data in shipment.data.items() if not data.is_folder),
    )
    return make_plan(
        request.inventory,
        request.job,
        facts_by_host,
        release=manifest.release,
        sources=shipment.sources,
        run=request.run,
        now=request.now,
        operator=request.operator,
        options=options,
    )
