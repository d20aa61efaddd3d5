"""Answers `probe`: the facts about this host at one moment, as the fields of model.facts.HostFacts.

The probe first repairs links. In the folder of a run, each keep folder is a link to a folder in the
job's `keep`. A program may have replaced that link by files of its own. If the run is dead and this
session holds the job's lock, the probe moves these files into the job's `keep` and makes the link
again. The probe changes nothing else.

Programs (interpreter, nvidia-smi, rsync) are started first and their output is read last, so the
probe takes no longer than the slowest of them.
"""

from __future__ import annotations

import os
import time

from tfdeploy import __version__
from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import boot_id, logind, user_name
from tfdeploy.agent.host.disk import free_space
from tfdeploy.agent.host.installed import (
    StartedProgram,
    find_program,
    read_gpus,
    read_python_facts,
    read_rsync_version,
    start_gpu_query,
    start_python_query,
    start_rsync_query,
)
from tfdeploy.agent.host.network.addresses import own_addresses
from tfdeploy.agent.host.network.free_ports import scan_ports
from tfdeploy.agent.host.network.hosts_file import find_names_on_loopback
from tfdeploy.agent.run import keep_aside, keep_links, shown_plan
from tfdeploy.agent.run.find import find_damage, run_names, runs_of_this_machine
from tfdeploy.agent.run.keep_folders import describe_keep_folders
from tfdeploy.agent.run.live_runs import list_live_runs, list_port_owners
from tfdeploy.agent.serve.lock import holds_lock

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_MODULES = 1000  # limit of the modules in one call
# The plan sets these environment variables for each task. If the login environment sets them too,
# `check` says that tasks get the plan's values instead.
PRESET = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES")
PROXIES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "grpc_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
)


def probe_host(call: Call) -> Answer:
    """Gather the facts about this host. Programs of dead runs may have replaced their links to keep
    folders by files of their own. If the session holds the job's lock, these files are first moved
    into the job's `keep`, and `problems` in the answer reports this.

    Args: python, ports [lo, hi], gpus, job?, keep [paths], names [cluster names], resolve? [names
    to look up], setup? (digest), program? (report whether PATH has it), modules? [names] (report
    whether the job's interpreter finds each, without importing it), preflight? (add the facts of a
    preflight), firewall? (ask nft whether it can make a table; if that needs sudo, sudo logs it).

    Raises VerbError bad_argument, bad_name.
    """
    workdir, host = call.workdir, call.host
    job = call.job if call.flag("job") else None
    low, high = _port_range(call)
    python = find_program(call.text("python", "python3"))
    modules = [str(name) for name in call.rows("modules")][:MOST_MODULES]
    started_python, rsync = start_python_query(python, modules), start_rsync_query()
    started_gpus = start_gpu_query() if _wants_gpus(call) else None
    read_preflight = _start_preflight(call, low, high)
    read_firewall, read_resolved = _start_nft_check(call), _start_lookups(call)
    machine = _machine_facts(workdir)
    free_ports, taken_ports = scan_ports(low, high, list_port_owners(workdir, host))
    problems = _machine_problems(machine)
    keep: List[Answer] = []
    succeeded, wrote_last = None, None
    live_runs: List[Answer] = []
    if job:
        if call.flag("keep") and holds_lock(call.context, job):
            problems += keep_links.restore_links_of_dead_runs(workdir, job, host)
        problems += _damaged_run_problems(workdir, job)
        renamed = keep_aside.pending_keep_renames(workdir, job)
        keep = describe_keep_folders(workdir, job, call.rows("keep"), renamed)
        if call.rows("keep"):
            succeeded, wrote_last = _writer_facts(workdir, job, host)
        live_runs = [
            {
                "run": paths.run,
                "who": shown_plan.read_plan(workdir, job, paths.run)["operator"],
                "started": paths.state().started,
            }
            for paths in list_live_runs(workdir, job, host)
        ]
    setup_digest = call.name("setup") if call.flag("setup") else ""
    interpreter, problem = _interpreter_facts(
        workdir, started_python, python, call.text("python", "python3"), setup_digest, modules
    )
    program = call.text("program")
    gpus, gpu_error = read_gpus(started_gpus)
    return {
        **machine,
        **interpreter,
        "protect": _protection_facts(read_firewall()),
        "hosts_file_loopback": find_names_on_loopback([str(name) for name in call.rows("names")]),
        "resolved": read_resolved(),
        "free_ports": free_ports,
        "taken_ports": taken_ports,
        "keep": keep,
        "succeeded": succeeded,
        "wrote_last": wrote_last,
        "live_runs": live_runs,
        "lacks_program": bool(program) and not _has_program(program, interpreter["python"]),
        "problems": problems + ([problem] if problem else []),
        "rsync": read_rsync_version(rsync),
        "gpus": gpus,
        "gpu_error": gpu_error,
        "preflight": read_preflight(),
        "clock": time.time(),
    }


def _writer_facts(workdir: str, job: str, host: str) -> Tuple[Optional[float], Optional[bool]]:
    """Return two facts about the task that writes checkpoints (the first deciding task of a run).
    First: when such a task last succeeded on this host, in UTC seconds, or None if never. Second:
    whether that task of the newest committed run was on this host, or None if this host has no
    committed run."""
    times, runs = [], []
    for paths in runs_of_this_machine(workdir, job, host):
        writer = next((peer for peer in paths.part().peers if peer.deciding), None)
        task = writer.task if writer and writer.host == paths.host else ""
        if paths.is_commit_recorded():
            runs.append((paths.state().started or 0.0, bool(task)))
        status = paths.status(task)
        if task and status.outcome == "succeeded" and status.ended is not None:
            times.append(status.ended)
    return max(times, default=None), max(runs, default=(0.0, None))[1]


def _start_preflight(call: Call, low_port: int, high_port: int) -> Callable[[], Optional[Answer]]:
    """Start the programs of a preflight. Return a function that returns their facts, or None if no
    preflight was asked for."""
    if not call.flag("preflight"):
        return lambda: None
    from tfdeploy.agent.serve import preflight

    programs = preflight.start_quota_and_driver_queries(_wants_gpus(call))
    return lambda: preflight.gather_facts(
        call.workdir, user_name(), (low_port, high_port), programs
    )


def _start_nft_check(call: Call) -> Callable[[], str]:
    """If the call asks for a firewall, start to check whether nft can make a table. Return a
    function that returns the result: "" if nft can make a table, otherwise the reason why not."""
    if not call.flag("firewall"):
        return lambda: "nft was not asked"
    from tfdeploy.agent.host.network import nft_program

    checks = nft_program.start_checks()
    return lambda: nft_program.find_working_command(checks)[1]


def _start_lookups(call: Call) -> Callable[[], Dict[str, List[str]]]:
    """Start to look up names of hosts of the cluster. Return a function that returns the addresses.
    In most clusters, there is no name to look up, and the module for look-ups is not loaded."""
    names = [str(name) for name in call.rows("resolve")]
    if not names:
        return dict
    from tfdeploy.agent.host.network import resolving

    return resolving.start_lookups(names)


def _wants_gpus(call: Call) -> bool:
    """Return whether the call asks for GPUs. Its argument `gpus` is auto, none, a count, or a
    list."""
    return bool(call.args.get("gpus") != "none")


def _port_range(call: Call) -> Tuple[int, int]:
    try:
        low, high = map(int, call.rows("ports") or (1, 0))
    except (TypeError, ValueError) as error:
        raise VerbError("bad_argument", "ports is not [first, last]") from error
    return max(1, low), min(65535, high)


def _machine_facts(workdir: str) -> Answer:
    free = free_space(workdir)
    connection, user = (os.environ.get("SSH_CONNECTION") or "").split(), user_name()
    return {
        "hostname": os.uname().nodename,
        "user": user,
        "home": os.path.expanduser("~"),
        "workdir": workdir,
        "cores": len(os.sched_getaffinity(0)),
        "free_disk_bytes": free.free_bytes,
        "free_inodes": free.free_inodes if free.free_inodes is not None else 1 << 40,
        "boot_id": boot_id(),
        # sshd writes UNKNOWN instead of an address if the client did not connect over a network.
        "ssh_server_address": connection[2]
        if len(connection) == 4 and peer_filter.is_address(connection[2])
        else None,
        "proxies": [name for name in PROXIES if os.environ.get(name)],
        "preset": [name for name in PRESET if name in os.environ],
        "linger": logind.is_lingering(user),
        "kill_user_processes": logind.is_logout_kill_configured(),
        "addresses": own_addresses(),
        "version": __version__,
    }


def _protection_facts(firewall_hindrance: str) -> Answer:
    """For each level of the setting `protect`, return why this host cannot provide it; "" means
    that it can."""
    from tfdeploy.agent.host.network import steering

    return {
        "peers": steering.find_filter_problem(),
        "firewall": firewall_hindrance,
        "most_instructions": steering.most_instructions(),
    }


def _interpreter_facts(
    workdir: str,
    program: Optional[StartedProgram],
    python: Optional[str],
    wanted_python: str,
    setup_digest: str,
    modules: List[str],
) -> Tuple[Answer, Optional[str]]:
    """Return (facts about the job's interpreter, what is wrong with the host's interpreter). The
    job's interpreter is that of its environment if the environment is complete and its interpreter
    works. Otherwise it is the host's interpreter."""
    versions, problem = read_python_facts(program, wanted_python)
    version = versions["python_version"]
    if setup_digest and python and version:
        from tfdeploy.agent.serve.env import environments

        folder = environments.find_complete_environment(workdir, setup_digest, version, python)
        if folder is not None:
            interpreter = environments.interpreter_path(folder)
            own_versions, wrong = read_python_facts(
                start_python_query(interpreter, modules), interpreter
            )
            if wrong is None:
                return {**own_versions, "python": interpreter, "environment": folder}, problem
    return {**versions, "python": python if version else None, "environment": None}, problem


def _has_program(name: str, python: Optional[str]) -> bool:
    """Return whether a task would find the program, beside its interpreter or on PATH."""
    in_environment = os.path.join(os.path.dirname(python), name) if python else ""
    return find_program(name) is not None or os.access(in_environment, os.X_OK)


def _damaged_run_problems(workdir: str, job: str) -> List[str]:
    faults = [find_damage(workdir, job, run) for run in run_names(workdir, job)]
    return [
        "an old run cannot be read (%s): remove its folder" % fault for fault in faults if fault
    ][:5]


def _machine_problems(machine: Answer) -> List[str]:
    problems, workdir = [], machine["workdir"]
    if not os.path.isdir(workdir):
        problems.append("the workdir %s does not exist" % workdir)
    elif not os.access(workdir, os.W_OK | os.X_OK):
        problems.append("the workdir %s is not writable" % workdir)
    return problems


VERBS = {"probe": probe_host}
