"""`release.state`: whether a release is there. Apart from the other verbs of releases: mostly it is all that is asked."""

from __future__ import annotations

import os
from typing import Any, Dict

from tfdeploy.agent import layout
from tfdeploy.agent.call import Call


def is_present(workdir: str, job: str, release: str) -> bool:
    folder = layout.release_dir(workdir, job, release)
    return os.path.isdir(folder) and os.path.exists(folder + ".json")


def state(call: Call) -> Dict[str, Any]:
    return {"present": is_present(call.context.workdir, call.name("job"), call.name("release"))}


VERBS = {"release.state": state}
