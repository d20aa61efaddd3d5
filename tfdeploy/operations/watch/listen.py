"""Receive the reports of every host of a run, by the verb `run.watch`.

Each host has its own thread, so that a slow host does not delay the others.
"""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial

from tfdeploy.errors import BadAnswer, TfdeployError, has_code
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.answers.runs import RUN_WATCH
from tfdeploy.model.inventory import Host
from tfdeploy.operations.emit import emit_warning
from tfdeploy.operations.outcomes import session_of
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.watch.resume import resume_or_end_with_retries
from tfdeploy.operations.watch.watch import Watch

BAD_ANSWER_S = 5.0  # seconds to wait after an invalid answer before the host is called again
# Seconds to wait before a lost connection is made again. The wait is short, because an attempt to
# connect already takes 10 s if there is no answer.
AGAIN_S = 0.5


def start_listening(watch: Watch, stop: threading.Event) -> None:
    """Start one thread for each host, which passes the host's reports to `watch`.

    A thread ends when the run has ended on its host or `stop` is set.
    """
    for host in hosts_of(watch.plan, watch.watched):
        start_thread(_listen_to_host, watch, host, stop, name=f"watch {host.name}")


def _listen_to_host(watch: Watch, host: Host, stop: threading.Event) -> None:
    """Receive the reports of one host until the run has ended there. Reconnect after an error."""
    while not stop.is_set():
        try:
            _receive_reports_until_run_end(watch, host, stop)
            if stop.is_set() or watch.has_run_ended_on(host.name):
                break
            report = partial(emit_warning, watch.emit, host=host.name, run=watch.plan.run)
            if not resume_or_end_with_retries(watch.fleet, watch.plan, host.name, report, stop):
                break
        except TfdeployError as error:
            # A caller that stops closes its sessions, which says nothing about the hosts.
            if stop.is_set():
                break
            watch.receive_report(host.name, error)
            if not host.address or has_code(error, "unknown_run"):
                break
            if isinstance(error, BadAnswer):
                stop.wait(BAD_ANSWER_S)
        stop.wait(AGAIN_S)
    watch.mark_reports_ended(host.name)


def _receive_reports_until_run_end(watch: Watch, host: Host, stop: threading.Event) -> None:
    """Receive reports until the run has ended on the host. Raise the error of a lost connection."""
    agent = session_of(watch.fleet, host).agent()
    agent.shorten_timeouts()
    with closing(agent.stream(RUN_WATCH, watch.plan.run_args)) as stream:
        for item, _ in stream:
            watch.receive_report(host.name, item)
            if stop.is_set():
                return
        if host.name not in watch.states:
            raise BadAnswer(
                "the host stopped reporting before it sent the state of the run", where=host.name
            )
