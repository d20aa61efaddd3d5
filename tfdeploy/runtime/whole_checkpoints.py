"""Make one process write the whole of each checkpoint, so that no shared disk is needed.

The problem: a sharded Saver places its save operations on the parameter servers. So each parameter
server writes its shard to its own disk, into a folder that exists only on the chief:
`NotFoundError: From /job:ps/...: model.ckpt-0_temp`. The default saver of MonitoredTrainingSession
is sharded (`_get_saver_or_default` in tensorflow/python/training/saver.py, `Scaffold.finalize` in
monitored_session.py).

The patch: no Saver is sharded. The values are sent over gRPC, and one process writes them. Old
sharded checkpoints can still be restored.
"""

from __future__ import annotations

import threading
from typing import Any

from . import task
from .wrapping import wrap_function

NOTICE = (
    "Saver(sharded=True) would leave each shard on the disk of its own parameter server, where "
    "nobody can put them "
    "together: the chief saves the whole checkpoint instead"
)


def patch_module(saver_module: Any) -> None:
    """Patch the module tensorflow.python.training.saver, so that no Saver is sharded."""
    # `ours.default` is True while TensorFlow creates its default saver. The program did not choose
    # the sharding of this saver, so there is no message about it.
    ours = threading.local()

    @wrap_function(saver_module.Saver, "_build")
    def build_whole(build: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        # If the Saver has a saver_def, its operations are already in the graph, so it is too late
        # to change them.
        if not self._sharded or self.saver_def is not None:
            return build(self, *args, **kwargs)
        self._sharded = False
        if task.index() == 0 and not getattr(ours, "default", False):
            task.print_once(NOTICE)
        # A sharded Saver ignores the device scope of the program, which may be a GPU. So the
        # unsharded Saver, which replaces it, must ignore the device scope too.
        with saver_module.ops.device(None):
            return build(self, *args, **kwargs)

    @wrap_function(saver_module, "_get_saver_or_default")
    def whole_default(default: Any) -> Any:
        ours.default = True
        try:
            return default()
        finally:
            ours.default = False
