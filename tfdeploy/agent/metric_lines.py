"""Read metrics from the output of a program. Metrics are found by the regular expressions of the
job, and in the forms that Keras prints. Pure.

Messages of TensorFlow's C++ code are recognised by their prefix and ignored, because a line such as
"Step 65783289095256262 cancelled" contains a random id. Messages of Python's logging belong to the
program. (The library absl writes them with the same prefix, but with the name of a .py file.)
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
)
from tfdeploy.agent.metric_patterns import search

if TYPE_CHECKING:
    # metric -> (number of the line, source, value). `source` is 0 if a pattern of the job has found
    # the value, and 1 if the value is from a line of Keras or of TensorFlow's hooks.
    Found = Dict[str, Tuple[int, int, float]]

LARGEST = 1e308  # The largest value of a metric. Processes that read samples reject larger numbers.
MOST_STEPS = 10**13  # the largest possible step: a million steps per second for four months
# The largest possible increase of a step in one second. It is large because a resumed program may
# jump ahead.
MOST_STEPS_PER_S = 10**9
MATCHED_CHARS = 512  # how many characters of a line are read; the rest is ignored
MOST_NAMES = 32  # at most this many metrics are read from one line that Keras prints
# Names of metrics for the progress that Keras's `fit` prints: epochs from `Epoch 3/40`, batches
# from `12/938`.
EPOCH, EPOCHS, BATCH, BATCHES = "epoch", "epochs", "batch", "batches"

CPP_PREFIX = re.compile(
    # the prefix of absl and glog: I0000 00:00:1795343518.7
    r"[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ [^\s:\]]+\.(?:cc|cpp|c|cu|h|hpp|inc):\d+\] "
    # the prefix of TensorFlow up to 2.17
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] (?!\S+\.py:)[^\s:\]]+:\d+\] "
    r"|^[IWEF] (?:tensorflow|external)/[^\s:\]]+:\d+\] "  # the prefix of TensorFlow before 1.0
)
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# If a pattern could match the same text in two ways, the time of a search would grow with the
# square of the line's length. No pattern in this module can do so.
_NUMBER = re.compile(r"[-+]?(?:\d[\d,_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_EPOCH = re.compile(r"\s*Epoch (\d{1,9})/(\d{1,9})\s*$")
_BAR = re.compile(r"\s*(\d{1,12})/(\d{1,12}|Unknown|\?)(?=[ \t])")
_NAMED = re.compile(
    r" - ([A-Za-z_][\w/.]{0,63}(?: [\w/.]{1,64})?): "
    r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?=\s|$)"
)
_PER_STEP = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)(us|µs|ms|s)/(?:step|batch)\b")
_RATES = re.compile(
    r"(?i)\b(global_step|steps|images|examples|samples)/sec(?:ond)?\b[\s=:]+((?:\d+(?:\.\d*)?"
    r"|\.\d+)(?:e[-+]?\d+)?)"
)
# Matches a line that tf_cnn_benchmarks prints, such as `10 images/sec: 12.3 +/- 0.0`.
_BENCHMARK_STEP = re.compile(r"\s*(\d{1,12})\s+images/sec:")
_NUMBER_CHARS = "0123456789.,_+-eE"
_MS = {"us": 0.001, "µs": 0.001, "ms": 1.0, "s": 1000.0}


def strip_cpp_message(line: str) -> str:
    """Return the line. If it ends with a message of TensorFlow's C++ code, this message is cut
    off."""
    if "] " not in line:
        return line
    match = CPP_PREFIX.search(line)
    return line if match is None else line[: match.start()]


def last_progress_state(line: str) -> str:
    """Return the last state of a progress bar that a program redraws with carriage returns. Return
    any other line unchanged."""
    if "\r" not in line:
        return line
    line = line.rstrip("\r\x08")
    return line[line.rfind("\r") + 1 :]


def parse_number(text: Optional[str]) -> Optional[float]:
    """Return the number in a text that a program has printed, such as 1200, 1,200, 1_200 or 3e-4.
    Return None if the text is not a finite number."""
    if not text or not _NUMBER.fullmatch(text.strip()):
        return None
    value = float(text.replace(",", "").replace("_", ""))
    return value if abs(value) <= LARGEST else None


def _parse_number_or_nan(text: Optional[str]) -> Optional[float]:
    """Return the same as `parse_number`, except that the texts NaN and infinity are returned as
    numbers too. So users see when a loss has become NaN."""
    value = parse_number(text)
    if value is None and text and text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    return value


def texts_to_match(lines: Iterable[str]) -> List[str]:
    """Return, for each line, the text in which metrics are searched: only what the program itself
    has printed, and at most MATCHED_CHARS characters. If the cut would fall within a number, the
    whole number is left out."""
    return [strip_cpp_message(_shortened(last_progress_state(line))) for line in lines]


def _shortened(text: str) -> str:
    first = text[:MATCHED_CHARS]
    is_in_number = len(text) > MATCHED_CHARS and text[MATCHED_CHARS] in _NUMBER_CHARS
    return first.rstrip(_NUMBER_CHARS) if is_in_number else first


def find_metric(
    texts: List[str],
    name: str,
    pattern: re.Pattern[str],
    is_possible: Callable[[str, float], bool],
    metrics: Found,
) -> None:
    """Add the newest number that the pattern finds to `metrics`. `texts`: the newest line first.
    `is_possible(metric, number)` returns False if the number cannot be a value of the metric.

    `metrics` may already contain a number that Keras printed for this metric. The newer of the two
    numbers is kept; if both are from one line, the pattern's number is kept.
    """
    for line, text in enumerate(texts):
        value = _parse_number_or_nan(search(pattern, text)) if text else None
        if value is not None and is_possible(name, value):
            metrics[name] = min((line, 0, value), metrics.get(name, (line, 1, value)))
            return


def find_standard_metrics(texts: List[str]) -> Found:
    """Return the newest metrics from the lines that Keras and TensorFlow's hooks print."""
    metrics: Found = {}
    for line, text in enumerate(texts):
        if "/" in text:
            for name, value in {**_parse_rates(text), **parse_keras_line(text)}.items():
                if abs(value) <= LARGEST:
                    metrics.setdefault(name, (line, 1, value))
    return metrics


def metric_values(metrics: Found) -> Dict[str, float]:
    """Return metric -> value. Metrics that were found by patterns of the job come first, because
    readers keep only a limited number of metrics and drop the last ones."""
    of_the_job_first = sorted(metrics.items(), key=lambda item: item[1][1])
    return {name: value for name, (_, _, value) in of_the_job_first}


def _parse_rates(text: str) -> Dict[str, float]:
    """Read rates in forms such as `global_step/sec: 102.3` or `images/sec: 1234.5 +/- 0.1`."""
    if "/sec" not in text:
        return {}
    rates = {name.lower() + "/sec": float(value) for name, value in _RATES.findall(text)}
    step = _BENCHMARK_STEP.match(text)
    if step:
        rates["step"] = float(step.group(1))
    return rates


def parse_keras_line(line: str) -> Dict[str, float]:
    """Read a line that `fit` or `evaluate` of Keras has printed. It is either `Epoch 3/40`, or a
    progress bar with a batch number, a time per step and metrics."""
    text = ESCAPE.sub("", line)
    epoch = _EPOCH.match(text)
    if epoch:
        return {EPOCH: float(epoch.group(1)), EPOCHS: float(epoch.group(2)), BATCH: 0.0}
    bar = _BAR.match(text)
    if not bar:
        return {}
    named, per_step = _NAMED.findall(text)[:MOST_NAMES], _PER_STEP.search(text)
    if not (named or per_step):
        return {}
    metrics = {BATCH: float(bar.group(1))}
    if bar.group(2).isdigit():
        metrics[BATCHES] = float(bar.group(2))
    if per_step:
        metrics["ms/step"] = float(per_step.group(1)) * _MS[per_step.group(2)]
    for name, text in named:
        value = parse_number(text)
        if value is not None:
            metrics[name] = value
    return metrics


def is_possible_step(step: float, last: Optional[float], passed_s: float) -> bool:
    """Return whether `step` can be the next step that a task prints. The step that it printed last
    is `last`, which was `passed_s` seconds ago. `last` is None if it has printed no step.

    A program may go back to an earlier step, begin at any step, or resume from a checkpoint with a
    much larger step.
    """
    most = MOST_STEPS if last is None else last + MOST_STEPS_PER_S * max(1.0, passed_s)
    return abs(step) <= MOST_STEPS and step <= most


def keras_step(value_by_metric: Mapping[str, float]) -> Optional[float]:
    """Return the step that Keras's `fit` has reached, counted over all epochs. Return None if Keras
    has not printed its progress."""
    batch, batches = value_by_metric.get(BATCH), value_by_metric.get(BATCHES)
    if batch is None or batches is None:
        return None
    return (max(1.0, value_by_metric.get(EPOCH, 1.0)) - 1) * batches + batch
