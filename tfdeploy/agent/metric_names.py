"""Interpret metrics by their names: sort them by importance, and find step, loss and accuracy among
the scalars in event files. Pure.

The order matters because programs of TensorFlow 1 write up to twenty scalars for each layer, such
as `layer1/weights/summaries/mean_1`.
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

RATE = "/sec"  # the suffix of rates, for example in global_step/sec
LOSS, ACCURACY = "loss", "accuracy"
# While a program trains, TensorFlow 1 by default writes its tags every 120 s. So if a tag was not
# written for this many seconds, an earlier attempt has written it.
STALE_AFTER_S = 300.0
_LOSS = re.compile(
    r"(?i)(?:(?:train|training|total|avg|average|mean|batch|epoch)_)?(loss|cost|cross_entropy"
    r"|xentropy)(?:_\d{1,2})?\Z"
)
_ACCURACY = re.compile(
    r"(?i)(?:(?:train|training|batch|epoch)_)?(?:(?:sparse_)?categorical_|binary_)?(accuracy"
    r"|acc)(?:_\d{1,2})?\Z"
)
_IMPORTANT = re.compile(r"(?i)loss|cost|acc(?:uracy)?(?:_\d{1,2})?\Z")
# Matches names of statistics that programs and TensorFlow's queues write for each variable.
_PER_VARIABLE = re.compile(
    r"(?i)(?:.*/)?(?:mean|stddev|std|max|min|sparsity|norm|zero_fraction|fraction_of_\w+"
    r"|fraction_over_\w+)(?:_\d{1,2})?\Z"
)
_EVALUATION = re.compile(
    r"(?i)(?:\A|[\W_])(?:eval|evaluation|valid|validation|val|test|testing|dev)(?:\Z|[\W_\d])"
)
# Keras writes tags with this prefix; their step is the number of an epoch.
_EPOCH_PREFIX = "epoch_"


class Scalar(NamedTuple):
    """The newest value of one tag in the event files of one folder. `time`: when the value was
    written, in UTC seconds."""

    folder: str
    tag: str
    value: float
    step: int
    time: float


class EventProgress(NamedTuple):
    """The progress of a task, as its event files show it. `values`: step, loss and accuracy; a
    value that is ambiguous is left out. `step_time`: when the step was written, in UTC seconds, or
    0.0 if there is no step."""

    values: Dict[str, float]
    step_time: float = 0.0


def display_rank(name: str) -> int:
    """Return the rank of a metric in lists: 0 for a loss or an accuracy, 2 for a statistic of a
    single variable, 1 for any other metric."""
    if "/summaries/" in name or _PER_VARIABLE.match(name):
        return 2
    return 0 if name.count("/") <= 2 and _IMPORTANT.search(name.rpartition("/")[2]) else 1


def sort_metrics(names: Iterable[str], job_metrics: Collection[str]) -> List[str]:
    """Return the names sorted by importance, the most important first. `job_metrics`: metrics that
    the job defines; they come first, in this order."""
    order = list(job_metrics)
    return sorted(
        names,
        key=lambda name: (order.index(name) if name in order else len(order), display_rank(name)),
    )


def select_progress(scalars: Scalars) -> EventProgress:
    """Return step, loss and accuracy from the event files of the folder to which the training
    writes. If it writes to several folders, the one with the highest step is used. The folder of an
    evaluation is used only if there is no other folder. If there are several such folders and no
    other folder, the result has no values."""
    folders = {each.folder for each in scalars.values()}
    trains = [folder for folder in folders if not _EVALUATION.search(folder)]
    if not trains and len(folders) != 1:
        return EventProgress({})
    candidates = trains or list(folders)
    counted = [
        each for each in scalars.values() if _counts_steps(each) and each.folder in candidates
    ]
    until = max((each.time for each in counted), default=0.0) - STALE_AFTER_S
    newest = max(
        (each for each in counted if each.time >= until),
        key=lambda each: (each.step, each.time),
        default=None,
    )
    main = newest.folder if newest else min(candidates)
    of_main = [each for each in scalars.values() if each.folder == main]
    values = {
        "step": newest and float(newest.step),
        LOSS: _value_of_best_matching_tag(of_main, _LOSS),
        ACCURACY: _value_of_best_matching_tag(of_main, _ACCURACY),
    }
    return EventProgress(
        {name: value for name, value in values.items() if value is not None},
        newest.time if newest else 0.0,
    )


def _counts_steps(scalar: Scalar) -> bool:
    """Return True if the step of this scalar counts training steps. Return False if the program has
    given no step, or if the step is the number of an epoch."""
    return scalar.step > 0 and not scalar.tag.rpartition("/")[2].startswith(_EPOCH_PREFIX)


def _value_of_best_matching_tag(scalars: List[Scalar], pattern: re.Pattern[str]) -> Optional[float]:
    """Return the value of the tag whose last part (the text after the last "/") matches the
    pattern. If several tags match, use the tag with the fewest parts; among these, the tag with the
    shortest last part. Return None if no tag matches, or if two tags are equally good."""
    values = []
    for each in scalars:
        parts = each.tag.split("/")
        # In a tag such as `Loss/train`, which the examples of PyTorch write, the name of the metric
        # is the part before the last.
        last = parts[-2] if len(parts) > 1 and parts[-1] == "train" else parts[-1]
        if pattern.match(last) and not _EVALUATION.search(each.tag):
            values.append(((len(parts), len(last)), each.value))
    values.sort()
    return values[0][1] if values and [key for key, _ in values].count(values[0][0]) == 1 else None
