"""Find the run to which a verb applies, and the hosts that the verb asks about this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.output import print_message
from tfdeploy.cli.project import load_job_if_any, load_whole_inventory
from tfdeploy.cli.state import open_run_store, remember_plan
from tfdeploy.errors import UsageError, worst_exit_code
from tfdeploy.model.inventory import Host, Inventory, select_hosts
from tfdeploy.operations.run_lookup.find_run import find_run
from tfdeploy.text.names import fold_names

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags, OneRunFlags
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.job import Job
    from tfdeploy.model.plan import Plan
    from tfdeploy.transport.protocols import Fleet


class LookupScope(NamedTuple):
    """The hosts and the job to which a search for runs is limited.

    `inventory`: the whole inventory, regardless of --limit and --exclude; without hosts if the file
    cannot be read.
    `job`: the job of the job file; None if there is none.
    """

    flags: CommonFlags
    inventory: Inventory
    job: Job | None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Return the hosts that --limit and --exclude select, which are asked for runs."""
        if not self.inventory.hosts:
            return ()
        return select_hosts(self.inventory, self.flags.limit, self.flags.exclude).hosts

    @property
    def unselected_host_names(self) -> tuple[str, ...]:
        """Return the names of the hosts that --limit and --exclude leave out."""
        return tuple(host.name for host in self.inventory.hosts if host not in self.hosts)

    def select_run_hosts(self, plan: Plan) -> frozenset[str] | None:
        """Return the hosts of the run that --limit and --exclude select, or None for all its hosts.

        The patterns may name hosts and roles that are only in the plan. Raises UsageError if the
        patterns select no host.
        """
        if not self.flags.selects_hosts:
            return None
        chosen = select_hosts(
            _add_run_hosts(plan, self.inventory), self.flags.limit, self.flags.exclude
        )
        selected = frozenset(plan.host_names) & {host.name for host in chosen.hosts}
        if not selected:
            raise UsageError(
                f"--limit and --exclude select no host of {plan.run}",
                where="--limit/--exclude",
                next=f"it runs on {fold_names(plan.host_names)}",
            )
        return selected


def _add_run_hosts(plan: Plan, inventory: Inventory) -> Inventory:
    """Return the inventory with the hosts and roles of the plan added."""
    hosts = {host.name: host for host in inventory.hosts}
    for host in plan.hosts:
        hosts.setdefault(host.host, Host(host.host, host.address))
    roles = dict(inventory.roles)
    for task in plan.tasks:
        roles[task.role] = (*roles.get(task.role, ()), task.host)
    return Inventory(tuple(hosts.values()), roles, inventory.source)


class ChosenRun(NamedTuple):
    """The run to which a verb applies.

    `only_hosts`: the hosts that --limit and --exclude select; None if that is all hosts.
    `exit_code`: the most severe exit code of the hosts whose copy of the plan cannot be used, else
    0. The errors of these hosts have been printed.
    """

    plan: Plan
    only_hosts: frozenset[str] | None
    exit_code: int


def choose_run(
    flags: OneRunFlags,
    fleet: Fleet,
    *,
    live_first: bool = False,
    scope: LookupScope | None = None,
) -> ChosenRun:
    """Return the run that the flags name, or the newest run of the job.

    `live_first`: True to prefer a live run to a newer run that has ended. `scope`: where to look;
    if it is None, the scope is read from the files that the flags name. Prints the errors of hosts
    whose copy of the plan cannot be used.
    """
    scope = scope or read_lookup_scope(flags, flags.run_prefix)
    plan_errors: dict[str, TfdeployError] = {}
    warnings: list[str] = []
    job_name, metrics = (scope.job.name, scope.job.metrics) if scope.job else (None, {})
    # The plan in the store is preferred, because it lists all hosts of the run. The inventory may
    # lack some of them.
    plan = open_run_store().plan(flags.run_prefix, job_name) if flags.run_prefix else None
    plan = plan or find_run(
        fleet,
        scope.hosts,
        open_run_store(),
        prefix=flags.run_prefix,
        job=job_name,
        live_first=live_first,
        regex_by_metric=metrics,
        plan_errors=plan_errors,
        warnings=warnings,
    )
    for text in warnings:
        print_message(f"warning: {text}")
    remember_plan(plan)
    show_errors(flags, plan_errors)
    return ChosenRun(plan, scope.select_run_hosts(plan), worst_exit_code(plan_errors.values()))


def read_lookup_scope(flags: CommonFlags, run_prefix: str | None = None) -> LookupScope:
    """Return the hosts and the job to which a search for runs is limited.

    If the job file is invalid, a message says that it is ignored. If the inventory is invalid, it
    is ignored only if this machine has recorded a run whose id begins with `run_prefix`. Otherwise
    UsageError is raised.
    """
    job, job_error = None, None
    try:
        job = load_job_if_any(flags)
    except UsageError as error:
        job_error = error
    try:
        inventory = load_whole_inventory(flags, job)
    except UsageError as error:
        recorded = () if run_prefix is None else open_run_store().run_ids()
        if not any(run.startswith(run_prefix or "") for run in recorded):
            raise (job_error or error) from None
        inventory = Inventory(())
    if job_error is not None:
        print_message(f"the job file is ignored: {job_error.what} ({job_error.where})")
    return LookupScope(flags, inventory, job)
