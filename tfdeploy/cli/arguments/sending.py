"""Declare the flags of verbs that send code and data."""

from __future__ import annotations

from functools import partial

from tfdeploy.cli.declared import option, switch
from tfdeploy.model.choices import VIAS

via_option = partial(
    option,
    "--via",
    choices=VIAS,
    help="auto: hosts pass the data on to each other; rsync: this machine sends to each host (job "
    "file: via)",
)
allow_secrets_switch = partial(
    switch,
    "--allow-secrets-in-code",
    help="send the code even if a file in it contains a private key or the value of a secret",
)
