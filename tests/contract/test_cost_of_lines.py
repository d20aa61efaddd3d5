"""Test that the time to read a line of a program's output grows linearly with the line's length.

This must hold for any text, on the hosts and on the operator's machine.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfdeploy.agent.log import silent_tasks, tf_messages
from tfdeploy.agent.log.redact import SecretMask
from tfdeploy.agent.metric_lines import find_standard_metrics, parse_number, strip_cpp_message
from tfdeploy.agent.metric_patterns import OTHER_STEPS
from tfdeploy.agent.metric_reader import compile_patterns
from tfdeploy.model.job import DEFAULT_METRICS
from tfdeploy.operations.tasklogs.split_lines import LineSplitter
from tfdeploy.text.row_values import short_error
from tfdeploy.transport.rsync import messages
from tfdeploy.ui.sanitise import clean_line

LENGTHS = (2048, 4096, 8192)
# A time below this (in seconds) is too noisy to be compared.
LITTLE_S = 0.001
HEADS = (
    "", "1/1 ", "1/1 - a: ", "1/1 1us/step ", "] ",
        "] I0000 "
        "00:00:0.0 1 ", "] 2026-11-22 10:00:00.1: I ", "Epoch 1/1",
    "step ", "loss: ", "global_step/sec: ", "local_step ", "\x1b[", "\x1b]",
        "still waiting for response "
        "from worker: /job:",
    "unhealthy (stopped sending heartbeats): ", "read errors mapping ",
)  # fmt: skip
REPEATED = (
    "1", "a", "_", ".", "-", " ", "\t", ":", "/", "=", ",", "1.", "1,", "0 ", "e1", " - ", " - a: ",
    " - a a: 1 ", "a/", "1/1 ", "\x1b[", "\x1b[0;", "\x9b", "\x1b]", "A.", "step ", "step 1 ",
    "step=", "loss ", "global step ", "local_step ", "us/step ", "global_step/sec ", "] ",
    "I0000 00:00:0.0 1 a.cc", "/job:a/replica:0/task:1 ", "read errors mapping ", "(61",
)  # fmt: skip
SECRETS = ("a" * 40, "1" * 39 + "x", "-----BEGIN KEY-----")
TEXTS = st.tuples(
    st.sampled_from(HEADS),
    st.sampled_from(REPEATED) | st.text("1a.,-_ :/=\t[e", min_size=1, max_size=4),
    st.sampled_from(("", "x", "!", " 1", " global step 1")),
)


def messages_of_tensorflow(text: str) -> object:
    line = text.encode()
    return tf_messages.parse_wait_messages(line + b"\n"), silent_tasks.find_tasks_without_heartbeat(
        text
    )


READERS: dict[str, Callable[[str], object]] = {
    "prefixes of TensorFlow": strip_cpp_message,
    "numbers": parse_number,
    "Keras and rates": lambda text: find_standard_metrics([text]),
    "messages of TensorFlow": messages_of_tensorflow,
    "the sanitiser": clean_line,
    "errors in short": short_error,
    "masks of secrets": lambda text: SecretMask(SECRETS).mask_chunk(0, text.encode()),
    "what rsync says": lambda text: messages.has_only_shrunk(23, text.encode()),
    **{
        name: pattern.search
        for name, pattern in compile_patterns({**DEFAULT_METRICS, **OTHER_STEPS}).items()
    },
}


def measure_s(read: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    read(text)
    return time.thread_time() - began


def fill_shape(shape: tuple[str, str, str], size: int) -> str:
    head, repeated, end = shape
    room = size - len(head) - len(end)
    return head + (repeated * room)[:room] + end


@settings(max_examples=150, deadline=None)
@example(("1/1 - a: ", "1", "x"))
@example(("", "1", "x"))
@example(("", "step ", "x"))
@example(("", "read errors mapping ", "x"))
@given(TEXTS)
def test_doubled_length_takes_at_most_three_times_as_long(
    shape: tuple[str, str, str],
) -> None:
    """Test that the time grows at most linearly.

    The length is doubled twice. After one of the two doublings, the time may be longer: for a few
    texts, the time jumps at one certain length.
    """
    texts = [fill_shape(shape, size) for size in LENGTHS]
    for name, read in READERS.items():
        if measure_s(read, texts[1]) < LITTLE_S:
            continue
        best = [min(measure_s(read, text) for _ in range(5)) for text in texts]
        exceeded = [
            longer > max(LITTLE_S, 3 * shorter) for shorter, longer in itertools.pairwise(best)
        ]
        assert not all(exceeded), (name, shape, best)


def test_time_for_chunk_does_not_depend_on_length_of_line() -> None:
    def split(length: int) -> float:
        splitter = LineSplitter("worker:0", "n1")
        records = [[offset, 1.0, 0, 1] for offset in range(4000)]
        assert not [*splitter.feed(0, [[0, 1.0, 0, 1]], b"x" * length)]
        return measure_s(lambda text: [*splitter.feed(length, records, text.encode())], "." * 4000)

    assert min(split(1 << 19) for _ in range(3)) < 5 * min(split(1) for _ in range(3)) + LITTLE_S


def test_endless_numbers_are_neither_tasks_nor_steps() -> None:
    long = b"1" * 5000
    assert tf_messages.parse_wait_messages(
        b"Still waiting for response from worker: /job:worker/task:" + long + b"\n"
    )[0]
    assert (
        silent_tasks.find_tasks_without_heartbeat(
            "unhealthy (stopped sending heartbeats): /job:worker/replica:0/task:" + "1" * 5000
        )
        is not None
    )
    assert (
        messages.parse_progress(long + b" 5%") is None
        and messages.parse_totals(b"sent " + long + b" bytes  received 1 bytes") is None
    )
