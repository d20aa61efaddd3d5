"""Provides the values that torchrun and mpirun give each worker: rank, world size and so on.

A job's command can contain placeholders for these values. Tasks also get the values in the
environment variables that torch.distributed reads with `env://`.
"""

from __future__ import annotations

from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def rank_placeholders(layout: Layout, seat: Seat) -> dict[str, str]:
    """Return {placeholder: value} for one task.

    `chief_host` is the address by which the other hosts reach the first worker; an IPv6 address
    has no brackets.
    """
    first = layout.seats[0]
    return {
        "rank": str(seat.index),
        "world_size": str(len(layout.seats)),
        "local_rank": str(layout.seats_on(seat.host).index(seat)),
        "chief_host": layout.address_by_host[first.host],
        "chief_port": str(layout.port_by_task[first.task]),
    }


def rank_variables(layout: Layout, seat: Seat, run: str) -> dict[str, str]:
    """Return the environment variables that torchrun would set for the task.

    They are VARIABLES and a few others: Lightning reads the number of the host, and some libraries
    read the id of the run.
    """
    hosts = list(dict.fromkeys(each.host for each in layout.seats))
    node = str(hosts.index(seat.host))
    rank, world_size, local_rank, chief_host, chief_port = rank_placeholders(layout, seat).values()
    local_size = str(len(layout.seats_on(seat.host)))
    in_order = (rank, world_size, local_rank, local_size, chief_host, chief_port)
    return {
        **dict(zip(VARIABLES, in_order, strict=True)),
        "GROUP_RANK": node,
        "NODE_RANK": node,
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "TORCHELASTIC_RUN_ID": run,
    }
