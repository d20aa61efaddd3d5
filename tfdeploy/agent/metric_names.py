"""What the name of a metric says: how much a reader wants it, and which scalars of event files are step, loss and accuracy. Pure.

Programs of TensorFlow 1 write twenty scalars a layer (`layer1/weights/summaries/mean_1`), so the few that matter come first.
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import TYPE_CHECKING, Collection, Iterable, List, Mapping, Optional
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    Scalars = Mapping[str, "Scalar"]

RATE = "/sec"  # global_step/sec, images/sec
LOSS, ACCURACY = "loss", "accuracy"
SILENT_S = 300.0  # a tag that was not written for so long has ended, as that of an earlier attempt; TensorFlow 1 writes after 120
_LOSS = re.compile(
    r"(?i)(?:(?:train|training|total|avg|average|mean|batch|epoch)_)?(loss|cost|cross_entropy|xentropy)(?:_\d{1,2})?\Z"
)
_ACCURACY = re.compile(
    r"(?i)(?:(?:train|training|batch|epoch)_)?(?:(?:sparse_)?categorical_|binary_)?(accuracy|acc)(?:_\d{1,2})?\Z"
)
_WANTED = re.compile(r"(?i)loss|cost|acc(?:uracy)?(?:_\d{1,2})?\Z")
_OF_MANY = re.compile(  # what people and TensorFlow's queues note of each variable
    r"(?i)(?:.*/)?(?:mean|stddev|std|max|min|sparsity|norm|zero_fraction|fraction_of_\w+|fraction_over_\w+)(?:_\d{1,2})?\Z"
)
_OF_OTHER_DATA = re.compile(r"(?i)(?:\A|[\W_])(?:eval|evaluation|valid|validation|val|test|testing|dev)(?:\Z|[\W_\d])")
_OF_AN_EPOCH = "epoch_"  # tags of Keras whose step is the epoch


class Scalar(NamedTuple):
    """The newest value of a tag in the event files of a folder. `time`: UTC seconds, when it was written."""

    folder: str
    tag: str
    value: float
    step: int
    time: float


class Figures(NamedTuple):
    """What a task's event files say of how far it is. None: nothing that is sure."""

    step: Optional[int] = None
    time: float = 0.0  # of the step
    loss: Optional[float] = None
    accuracy: Optional[float] = None


def rank(name: str) -> int:
    """0: a loss or an accuracy; 1; 2: one of the many that are noted for each variable."""
    if "/summaries/" in name or _OF_MANY.match(name):
        return 2
    return 0 if name.count("/") <= 2 and _WANTED.search(name.rpartition("/")[2]) else 1


def ordered(names: Iterable[str], asked: Collection[str] = ()) -> List[str]:
    """Return the names by how much a reader wants them. `asked`: those of the job, in its order."""
    given = list(asked)
    return sorted(names, key=lambda name: (given.index(name) if name in given else len(given), rank(name)))


def figures(scalars: Scalars) -> Figures:
    """Return the figures of the program's main writer: not of an evaluation, and of several the one that is furthest."""
    folders = {each.folder for each in scalars.values()}
    trains = [folder for folder in folders if not _OF_OTHER_DATA.search(folder)]
    if not folders or (len(folders) > 1 and not trains):
        return Figures()
    counted = [each for each in scalars.values() if _counts_steps(each) and each.folder in (trains or folders)]
    until = max((each.time for each in counted), default=0.0) - SILENT_S
    newest = max((each for each in counted if each.time >= until), key=lambda each: (each.step, each.time), default=None)
    main = newest.folder if newest else min(trains or folders)
    own = [each for each in scalars.values() if each.folder == main]
    loss, accuracy = _only(own, _LOSS), _only(own, _ACCURACY)
    if newest is None:
        return Figures(loss=loss, accuracy=accuracy)
    return Figures(newest.step, newest.time, loss, accuracy)


def _counts_steps(scalar: Scalar) -> bool:
    """False for a writer that was given no step, and where the step is an epoch."""
    return scalar.step > 0 and not scalar.tag.rpartition("/")[2].startswith(_OF_AN_EPOCH)


def _only(scalars: List[Scalar], pattern: re.Pattern[str]) -> Optional[float]:
    """Return the value of the one that is surely meant: the shortest way to it, and the plainest word. None: none, or several."""
    found = []
    for each in scalars:
        words = each.tag.split("/")
        last = words[-2] if len(words) > 1 and words[-1] == "train" else words[-1]  # `Loss/train`, as with PyTorch
        if pattern.match(last) and not _OF_OTHER_DATA.search(each.tag):
            found.append(((len(words), len(last)), each.value))
    found.sort()
    return found[0][1] if found and [key for key, _ in found].count(found[0][0]) == 1 else None
