"""Define the regular expressions that find step and loss if a job does not define its own. The
hosts and the control machine use the same expressions.

A wrong number is worse than no number, so an expression matches only if the line is unambiguous. It
does not match a part of another number (`step 1.5`, `2026-11-23`), a time (`step 250 ms`), a
setting (`max step 1000`, `--step=5`), or a loss of other data (`validation loss 0.3`). But
`step 100.0` is a step, because `get_variable("global_step", [])` makes a float. If a line contains
a step and a global step, the global step is used.

No expression can match the same text in two ways (see metric_lines.py), and each expression has one
group. Each expression begins with a fixed word and then looks back at the text before this word,
because Python searches faster for an expression that begins with a fixed word.
"""

from __future__ import annotations

import re
import warnings

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Mapping, Optional, Tuple

if TYPE_CHECKING:
    Pattern = re.Pattern[str]

# Limits the length of a job's expression, because re.compile takes seconds for a megabyte.
MOST_CHARS = 1000
_ANY_CASE = "(?i)"
# Matches the text between a word and its number.
_IS = r"""\b["']?(?: is)?[\s=:#]+"""
# Matches a count such as 1200, 1_200, 1,200, 100.0 or 1e+05.
_COUNT = r"(\d{1,3}(?:,\d{3})+(?:\.0*)?|\d\.?\d*e\+\d\d|\d[\d_]*(?:\.0*)?)"
_TIME = r"\s(?:m?s|us|µs|secs?|seconds?|minutes?)\b"
# Rejects a count if the text after it shows that it is part of a word, a number, a date or a time.
_COUNT_ENDS = rf"(?![\w%'\"]|[.,]\d|-\d|:\d\d\b|\s%|{_TIME})"
# Matches the beginning of a count in brackets, as in `Step [100/600]` or `step tf.Tensor(100`.
_BRACKET = r"(?:[\[(]\s*|tf\.tensor\()?"
_NO_STEP = (
    "final ",
    "max ",
    "num ",
    "total ",
    "time ",
    "per ",
    "decay ",
    "warmup ",
    "display ",
    "save ",
    "eval ",
    "test ",
    # These two reject `--step=5` and `49ms/step`.
    "-",
    "s/",
)
_NO_ITERATION = ("max ", "num ", "total ", "per ", "-")
_NO_LOSS = (
    "validation ",
    "valid ",
    "val ",
    "test ",
    "testing ",
    "eval ",
    "dev ",
    "best ",
    "target ",
    "packet ",
    "-",
    # PyTorch's examples print these words before the loss of a test.
    "test set ",
    "test set: average ",
    "test set: avg ",
    "test_set: avg_",
    "validation set ",
)


def _word(word: str, after: Tuple[str, ...] = (), not_after: Tuple[str, ...] = ()) -> str:
    """Return an expression that matches `word` at the beginning of a word or after one of the texts
    `after`, but not after one of the texts `not_after`."""
    begins = "|".join([rf"(?<!\w{word})", *(rf"(?<=\b{part}{word})" for part in after)])
    return f"{word}(?:{begins})" + "".join(f"(?<!{each}{word})" for each in not_after)


_GLOBAL = rf"{_word('global')}[ _]?step{_IS}"
# Matches the beginning of `After 100 training steps (300 global steps)`.
_AFTER = _word("after") + r" (?=\d+ (?:train\w* )?steps? \(\d+ global step)"
STEP = (
    rf"{_ANY_CASE}(?:{_AFTER}\d+ (?:train\w* )?steps? \("
    rf"|{_word('after')} (?=\d[\d,]* (?:train\w*|global) step)"
    r"|after(?<=^after) (?=\d[\d,]* steps?,)"
    rf"|{_word('step', ('global_', 'global', 'train_', 'training_', 'current_'), _NO_STEP)}"
    rf"{_IS}{_BRACKET}(?!\d[\d,.]*\b.{{0,96}}{_GLOBAL}\d)"
    rf"|{_word('iter', not_after=_NO_ITERATION)}(?:ation)?"
    rf"{_IS}{_BRACKET}(?!\d[\d,.]*\b.{{0,96}}step{_IS}\d)){_COUNT}{_COUNT_ENDS}"
)
LOSS = (
    rf"{_ANY_CASE}(?:"
    rf"{_word('loss', ('total_', 'train_', 'training_', 'avg_', 'mean_', 'batch_'), _NO_LOSS)}"
    r"(?: for final step| on training batch| value| at (?:step\s+)?\d+)?"
    rf"|{_word('cost', not_after=('time ', *_NO_LOSS))}(?=[\"']?\s*[=:]))"
    rf"{_IS}(?:\[\s*(?=[^\s,\]]+\s*\])|(?:tf\.)?tensor\()?"
    r"([-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?!\d|,\d)\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan"
    rf"|[-+]?inf(?:inity)?)(?![\w%]|\.\d|{_TIME})"
)
GLOBAL_STEP = f"{_ANY_CASE}{_GLOBAL}{_BRACKET}{_COUNT}{_COUNT_ENDS}"
LOCAL_STEP = (
    rf"{_ANY_CASE}(?:{_word('local')}[ _]?step{_IS}|{_AFTER}"
    rf"|{_word('step')}(?<!global step){_IS}(?=\d+\b.{{0,64}}{_GLOBAL}))(\d+)"
)

# Some programs print two steps: the step of one worker, and the step that all workers share.
OTHER_STEPS = {"local_step": LOCAL_STEP, "global_step": GLOBAL_STEP}
STEP_COUNTERS = ("step", *OTHER_STEPS)

# A line that contains none of these words cannot match. The words are searched first (in the line
# in lower case), because this is much faster than to match the expression.
_WORDS: Dict[str, Tuple[str, ...]] = {
    STEP: ("step", "iter"),
    LOSS: ("loss", "cost"),
    GLOBAL_STEP: ("step",),
    LOCAL_STEP: ("step",),
}
_WORDS_OF_COMPILED = {text[len(_ANY_CASE) :]: words for text, words in _WORDS.items()}


def is_builtin_pattern(pattern: Pattern) -> bool:
    """Return whether the pattern is one of this module. Such a pattern needs time in proportion to
    the length of a line."""
    return pattern.pattern in _WORDS_OF_COMPILED


def compile_metrics(regex_by_metric: Mapping[str, str]) -> Dict[str, Pattern]:
    """Compile the expressions of a plan. Expressions that do not compile or have no group are left
    out, and so are expressions of a job that are longer than MOST_CHARS."""
    patterns = {}
    with warnings.catch_warnings():
        # Python warns about some expressions, for example about `[[a`. The warnings are ignored,
        # because they would be printed into the middle of the output.
        warnings.simplefilter("ignore")
        for name, text in regex_by_metric.items():
            if text in _WORDS:
                # Remove (?i), because matching then takes half the time. `search` converts the text
                # to lower case instead.
                text = text[len(_ANY_CASE) :]
            elif len(text) > MOST_CHARS:
                continue
            try:
                pattern = re.compile(text)
            except (re.error, OverflowError, RecursionError):
                continue
            if pattern.groups:
                patterns[name] = pattern
    return patterns


def search(pattern: Pattern, text: str) -> Optional[str]:
    """Return the first group of the first match of a pattern from `compile_metrics`, or None."""
    words = _WORDS_OF_COMPILED.get(pattern.pattern)
    if words is not None:
        text = text.lower()
        for word in words:
            if word in text:
                break
        else:
            return None
    match = pattern.search(text)
    return match.group(1) if match else None
