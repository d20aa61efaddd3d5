"""Read all code and data of a sync, including data sets that are read from a host or are split."""

from __future__ import annotations

from pathlib import Path

from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job
from tfdeploy.operations.sending.shipment import Shipment, read_shipment
from tfdeploy.planning.datasets import split_data_names
from tfdeploy.transport.protocols import Fleet


def read_whole_shipment(
    fleet: Fleet,
    job: Job,
    cache: Path | None,
    inventory: Inventory,
    *,
    allow_secrets: bool = False,
) -> Shipment:
    """Return the shipment of a sync.

    `inventory` is the whole inventory. Raises an error if the code or data cannot be read, or if a
    data set cannot be split.
    """
    shipment = read_shipment(job, cache, inventory.hosts, allow_secrets=allow_secrets)
    from_hosts = any(source.from_host is not None for source in job.data.values())
    if not (from_hosts or split_data_names(job)):
        return shipment
    # Imported only here, because the import takes 40 ms and most jobs have no data that is split or
    # read from hosts.
    from tfdeploy.operations.sending.host_data import add_host_data

    return add_host_data(shipment, fleet, job, inventory)
