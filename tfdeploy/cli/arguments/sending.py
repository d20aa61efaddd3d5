"""The flags of verbs that send code and data."""

from __future__ import annotations

from functools import partial

from tfdeploy.cli.declared import option, switch
from tfdeploy.model.job import VIAS

via_option = partial(
    option,
    "--via",
    choices=VIAS,
    help="auto: from host to host; rsync: each host from here (job file: via)",
)
allow_secrets_switch = partial(
    switch,
    "--allow-secrets-in-code",
    help="send code although a file of it holds a private key or the value of a secret",
)
