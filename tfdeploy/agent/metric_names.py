"""Interpret metrics by their names: sort them by importance, and find step, loss and accuracy among
the scalars of event files. Pure.

Programs of TensorFlow 1 write twenty scalars for each layer (`layer1/weights/summaries/mean_1`).
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
)
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    Scalars = Mapping[str, "Scalar"]

RATE = "/sec"  # suffix of rates: global_step/sec, images/sec
LOSS, ACCURACY = "loss", "accuracy"
# A tag that was not written for this time belongs to an earlier attempt. TensorFlow 1 writes tags
# every 120 s.
SILENT_S = 300.0
_LOSS = re.compile(
    r"(?i)(?:(?:train|training|total|avg|average|mean|batch|epoch)_)?(loss|cost|cross_entropy|xentropy)(?:_\d{1,2})?\Z"
)
_ACCURACY = re.compile(
    r"(?i)(?:(?:train|training|batch|epoch)_)?(?:(?:sparse_)?categorical_|binary_)?(accuracy|acc)(?:_\d{1,2})?\Z"
)
_WANTED = re.compile(r"(?i)loss|cost|acc(?:uracy)?(?:_\d{1,2})?\Z")
# Statistics that programs and TensorFlow's queues write for each variable.
_PER_VARIABLE = re.compile(
    r"(?i)(?:.*/)?(?:mean|stddev|std|max|min|sparsity|norm|zero_fraction|fraction_of_\w+|fraction_over_\w+)(?:_\d{1,2})?\Z"
)
_OF_OTHER_DATA = re.compile(
    r"(?i)(?:\A|[\W_])(?:eval|evaluation|valid|validation|val|test|testing|dev)(?:\Z|[\W_\d])"
)
_OF_AN_EPOCH = "epoch_"  # prefix of Keras's tags whose step is the epoch


class Scalar(NamedTuple):
    """The newest value of a tag in the event files of a folder. `time`: UTC seconds, when it was
    written."""

    folder: str
    tag: str
    value: float
    step: int
    time: float


class Figures(NamedTuple):
    """The progress of a task, as its event files show it. `values`: step, loss and accuracy,
    without those that are ambiguous. `step_time`: when the step was written, in UTC seconds; 0.0:
    there is no step."""

    values: Dict[str, float]
    step_time: float = 0.0


def priority(name: str) -> int:
    """Return the rank of a metric: 0 for a loss or an accuracy, 2 for a statistic of a single
    variable, 1 for any other metric."""
    if "/summaries/" in name or _PER_VARIABLE.match(name):
        return 2
    return 0 if name.count("/") <= 2 and _WANTED.search(name.rpartition("/")[2]) else 1


def sort_metrics(names: Iterable[str], job_metrics: Collection[str] = ()) -> List[str]:
    """Return the names, the most important first. `job_metrics`: the metrics of the job, which come
    first, in their own order."""
    given = list(job_metrics)
    return sorted(
        names, key=lambda name: (given.index(name) if name in given else len(given), priority(name))
    )


def figures(scalars: Scalars) -> Figures:
    """Return the figures of the folder that trains. Of several such folders, the one with the
    highest step is used."""
    folders = {each.folder for each in scalars.values()}
    trains = [folder for folder in folders if not _OF_OTHER_DATA.search(folder)]
    if not folders or (len(folders) > 1 and not trains):
        return Figures({})
    counted = [
        each
        for each in scalars.values()
        if _counts_steps(each) and each.folder in (trains or folders)
    ]
    until = max((each.time for each in counted), default=0.0) - SILENT_S
    newest = max(
        (each for each in counted if each.time >= until),
        key=lambda each: (each.step, each.time),
        default=None,
    )
    main = newest.folder if newest else min(trains or folders)
    own = [each for each in scalars.values() if each.folder == main]
    values = {
        "step": newest and float(newest.step),
        LOSS: _only(own, _LOSS),
        ACCURACY: _only(own, _ACCURACY),
    }
    return Figures(
        {name: value for name, value in values.items() if value is not None},
        newest.time if newest else 0.0,
    )


def _counts_steps(scalar: Scalar) -> bool:
    """Return False if the program gave no step, or the step is an epoch."""
    return scalar.step > 0 and not scalar.tag.rpartition("/")[2].startswith(_OF_AN_EPOCH)


def _only(scalars: List[Scalar], pattern: re.Pattern[str]) -> Optional[float]:
    """Return the value of the matching tag with the fewest folders and, among these, the shortest
    last name. Return None if no tag matches, or if several tags match equally well."""
    values = []
    for each in scalars:
        parts = each.tag.split("/")
        # PyTorch's programs write `Loss/train`.
        last = parts[-2] if len(parts) > 1 and parts[-1] == "train" else parts[-1]
        if pattern.match(last) and not _OF_OTHER_DATA.search(each.tag):
            values.append(((len(parts), len(last)), each.value))
    values.sort()
    return values[0][1] if values and [key for key, _ in values].count(values[0][0]) == 1 else None
