"""List the data sets that are read from a host, and choose each host's part of split data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tfdeploy.model.inventory import Host, Hosts, Inventory, hosts_named
from tfdeploy.model.job import Job
from tfdeploy.operations.broadcast.origin import list_origin_data
from tfdeploy.operations.broadcast.split import SplitRequest, ask_and_decide_split
from tfdeploy.operations.probe import ProbeQuestions, probe
from tfdeploy.operations.sending.shipment import Shipment
from tfdeploy.planning.datasets import refuse_split_without_workers, split_data_names
from tfdeploy.planning.seats import hosts_to_probe, seats_if_gpus_free
from tfdeploy.transport.protocols import Fleet


def add_host_data(shipment: Shipment, fleet: Fleet, job: Job, inventory: Inventory) -> Shipment:
    """Ask hosts for what a shipment (the code and data to send) still lacks. Return the shipment.

    It lacks the listing of each data set that is read from a host, and each host's part of split
    data sets. `inventory` is the whole inventory. Raises the errors of the called functions.
    """
    shipment = add_origin_listings(shipment, fleet, job, inventory.hosts)
    if not split_data_names(job):
        return shipment
    refuse_split_without_workers(job)
    names = hosts_to_probe(inventory, job.mode)
    asked = hosts_named(inventory.hosts, names)
    facts = probe(
        fleet, asked, ProbeQuestions.for_hosts(asked, job=job.name), emit=lambda event: None
    )
    tasks = {seat.task: seat.host for seat in seats_if_gpus_free(inventory, job, facts)}
    return add_data_splits(shipment, fleet, job, inventory.hosts, tasks)


def add_origin_listings(
    shipment: Shipment, fleet: Fleet, job: Job, hosts: Iterable[Host]
) -> Shipment:
    """List each data set that is read from a host. Return the shipment with these listings.

    `hosts` are all hosts of the inventory. Raises Refused if data is missing or unreadable.
    """
    known = {host.name: host for host in hosts}
    origins = {
        name: known[source.from_host]
        for name, source in job.data.items()
        if source.from_host is not None
    }
    if not origins:
        return shipment
    listings = {
        name: list_origin_data(fleet, host, job.data[name].path) for name, host in origins.items()
    }
    data = {name: listings.get(name) or shipment.data[name] for name in job.data}
    return replace(shipment, data=data, origins=origins)


def add_data_splits(
    shipment: Shipment,
    fleet: Fleet,
    job: Job,
    hosts: Hosts,
    host_by_task: Mapping[str, str],
) -> Shipment:
    """Choose which host gets which files of each split data set, and return the new shipment.

    `hosts` are all hosts that may already hold some of the files. `host_by_task` is {task: its
    host}. Raises UsageError if there are fewer files than workers.
    """
    split_data = {}
    for name in split_data_names(job):
        workers = [
            (task, host) for task, host in host_by_task.items() if task.startswith("worker:")
        ]
        workers.sort(key=lambda pair: int(pair[0].partition(":")[2]))
        others = job.data[name].others == "all"
        whole = frozenset(
            host for task, host in host_by_task.items() if others and not task.startswith("worker:")
        )
        ask = SplitRequest(
            job.name,
            name,
            tuple(host for _, host in workers),
            whole,
            job.places.get(f"data.{name}"),
        )
        split_data[name] = ask_and_decide_split(fleet, hosts, ask, shipment.data[name])
    return replace(shipment, splits=split_data) if split_data else shipment
