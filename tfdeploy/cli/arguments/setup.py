"""What `tfdeploy setup` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.flags import CommonFlags, bwlimit_option


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = (
        "Makes the environment of the job's `setup:` on every host, by uv where it is there, "
        "else by pip. "
        "The same requirements and Python give the same environment: a second setup finds it."
    )
    epilog = "-v shows what uv or pip say on each host."

    bwlimit: int | None = bwlimit_option()
