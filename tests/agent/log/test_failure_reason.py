"""Test which line of a task's log is reported as the reason of its failure. Also test the
prediction that the next start would fail in the same way. The logs are from real programs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.agent.log import failure_reason
from tfdeploy.agent.log.format import LogWriter

HEAD = "Traceback (most recent call last):\n"
MAIN = '  File "/job/cwd/train.py", line 88, in <module>\n    main()\n'
LIBRARY = (
    '  File "/venv/lib/python3.11/site-packages/tensorflow/python/client/session.py", line 977, '
    "in run\n    self.x\n"
)
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
C_PLUS_PLUS = (
    "I0000 00:00:1795631634.780111   29599 mlir_graph_optimization_pass.cc:437] MLIR V1 is not "
    "enabled\n"
)
CANCELLED = (
    "tensorflow.python.framework.errors_impl.CancelledError: Function was cancelled before it "
    "was started\n"
)
UNDEFINED = "NameError: name 'tf' is not defined\n"
QUEUE = (
    "FIFOQueue '_1_batch/fifo_queue' is closed and has insufficient elements (requested 4, "
    "current size 0)"
)
# What torchrun of PyTorch 2.13 prints after its processes have ended.
CHILD_FAILED = (
    HEAD + '  File "/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    '  File "/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in '
    "launch_agent\n    raise ChildFailedError(\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "============================================================\n"
    "train.py FAILED\n"
    "------------------------------------------------------------\n"
    "Failures:\n[1]:\n  time      : 2026-11-29_17:20:48\n  host      : localhost\n"
    "  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 1399)  (SIGTERM)\n"
    "  error_file: /tmp/error.json\n  traceback : {trace}\n"
    "------------------------------------------------------------\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_17:20:48\n"
    "  host      : localhost\n  rank      : 1 (local_rank: 1)\n  exitcode  : {how}\n"
    "  error_file: <N/A>\n"
    "============================================================\n"
)
# What a rank prints if another rank has gone.
PEER_GONE = "RuntimeError: [../third_party/gloo/tcp/pair.cc:553] Connection closed by peer\n"
ROOT = "/job/cwd"


def as_rank(rank: int, printed: str) -> str:
    """Return the text with PyTorch's prefix before each line."""
    return "".join(f"[rank{rank}]: {line}\n" for line in printed.splitlines())


def child_failed(how: str, trace: str = "Signal 15 (SIGTERM) received by PID 1399") -> str:
    """Return torchrun's message. `trace`: what rank 0 recorded, which is not the one that failed
    first."""
    return CHILD_FAILED.format(how=how, trace=trace)


TYPE_ERROR = "TypeError: only 0-dimensional arrays can be converted to Python scalars"
OUTPUTS: dict[str, tuple[str, str, str]] = {
    "one exception": (HEAD + MAIN + TYPE_ERROR, TYPE_ERROR + " (train.py:88)",
        "TypeError "
        "(train.py:88)"),
    "inside a library": (HEAD + MAIN + LIBRARY + TYPE_ERROR, TYPE_ERROR + " (train.py:88)",
        "TypeError "
        "(train.py:88)"),
    "in a module of the program": (
        HEAD + MAIN + '  File "/job/cwd/models/net.py", line 3, in build\n    x\n' + UNDEFINED,
        "NameError: name 'tf' is not defined (models/net.py:3)",
        "NameError (models/net.py:3)",
    ),
    "with messages of C++ in it and behind it": (
        HEAD + MAIN + C_PLUS_PLUS + UNDEFINED + C_PLUS_PLUS,
        "NameError: name 'tf' is not defined (train.py:88)",
        "NameError (train.py:88)",
    ),
    "of a chain the last one": (
        HEAD + MAIN + "KeyError: 'a'\n" + HANDLING + HEAD + MAIN + "ValueError: bad shard 3\n",
        "ValueError: bad shard 3 (train.py:88)",
        "ValueError (train.py:88)",
    ),
    "a finaliser's is none": (
        HEAD + MAIN + UNDEFINED +
            "Exception ignored in: "
            "<function A.__del__>\n" + HEAD + MAIN + "TypeError: late\n",
        "NameError: name 'tf' is not defined (train.py:88)",
        "NameError (train.py:88)",
    ),
    "a thread's where the program's own follows from it": (
        "Exception in thread Thread-1 (read):\n" + HEAD + MAIN + "RuntimeError: reader broke\n"
        + HEAD + '  File "/job/cwd/train.py", line 9, in <module>\n    q.get()\n_queue.Empty\n',
        "RuntimeError: reader broke (train.py:88)",
        "RuntimeError (train.py:88)",
    ),
    "what a coordinator was told": (
        "INFO:tensorflow:Error reported to Coordinator: <class 'ValueError'>, cannot decode "
        "record 7\n"
        + HEAD + MAIN + CANCELLED,
        "ValueError: cannot decode record 7",
        "",
    ),
    "what a queue runner met": (
        "W0000 00:00:1795631634.957562    2627 local_rendezvous.cc:412] Local rendezvous is "
        "aborting with status:"
        " NOT_FOUND: /data/a.csv; No such file or directory\n" + HEAD + MAIN
        + f"tensorflow.python.framework.errors_impl.OutOfRangeError: {QUEUE}\n",
        "NOT_FOUND: /data/a.csv; No such file or directory (train.py:88)",
        "NOT_FOUND (train.py:88)",
    ),
    "input that ran out": (
        "/venv/lib/python3.11/site-packages/keras/src/trainers/epoch_iterator.py:116: "
        "UserWarning: Your input ran out of data;"
        " interrupting training. Make sure that your dataset can generate enough batches.\n"
        + HEAD + MAIN + CANCELLED,
        "Your input ran out of data; interrupting training (train.py:88)",
        "Your input ran out of data; interrupting training (train.py:88)",
    ),
    "an operation's error": (
        HEAD + MAIN + LIBRARY +
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution "
            "error:\n\n"
        'Detected at node add defined at (most recent call last):\n  File "/job/cwd/net.py", '
        'line 3, in <module>\n\n'
        "Incompatible shapes: [3] vs. [2]\n\t [[{{node add}}]]\n\nOriginal stack trace for "
        "'add':\n" + MAIN,
        "InvalidArgumentError: Incompatible shapes: [3] vs. [2] (train.py:88)",
        "InvalidArgumentError (train.py:88)",
    ),
    "several root errors": (
        HEAD + MAIN +
            "InvalidArgumentError: 2 root error(s) found.\n  (0) INVALID_ARGUMENT: no such "
            "label\n\t [[x]]\n",
        "InvalidArgumentError: no such label (train.py:88)",
        "InvalidArgumentError (train.py:88)",
    ),
    "another task's": (
        HEAD + MAIN +
            "tensorflow.python.framework.errors_impl.UnavailableError: From "
            "/job:ps/replica:0/task:0:\n"
        'Connection reset by peer\nAdditional GRPC error information from remote target '
        '/job:ps:\n:{"created":"@1"}\n',
        "UnavailableError: Connection reset by peer (train.py:88)",
        "",
    ),
    "traced by AutoGraph": (
        HEAD + MAIN +
            'ValueError: in user code:\n\n    File "/job/cwd/train.py", line 7, in step  *\n     '
            '   y = f(x)\n\n'
        "    ValueError: Dimensions must be equal\n",
        "ValueError: Dimensions must be equal (train.py:7)",
        "ValueError (train.py:7)",
    ),
    "a layer of Keras": (
        HEAD + MAIN + "ValueError: Exception encountered when calling Sequential.call().\n\n"
        "\x1b[1mInvalid input shape\x1b[0m\n\nArguments received by Sequential.call():\n",
        "ValueError: Invalid input shape (train.py:88)",
        "ValueError (train.py:88)",
    ),
    "a rank of torchrun": (
        as_rank(1, HEAD + MAIN + UNDEFINED),
        "NameError: name 'tf' is not defined (train.py:88)",
        "NameError (train.py:88)",
    ),
    "a process that torchrun has started": (
        HEAD + MAIN + UNDEFINED + child_failed("1 (pid: 30404) "),
        "NameError: name 'tf' is not defined (train.py:88)",
        "NameError (train.py:88)",
    ),
    "the process of torchrun that failed first": (
        as_rank(1, HEAD + MAIN + UNDEFINED) + as_rank(0, HEAD + MAIN + PEER_GONE)
            + child_failed("1 (pid: 30404) "),
        "NameError: name 'tf' is not defined (train.py:88)",
        "NameError (train.py:88)",
    ),
    "a process of torchrun that was killed while another failed": (
        as_rank(0, HEAD + MAIN + PEER_GONE)
            + child_failed("-9 (pid: 1400)  (SIGKILL)", HEAD + MAIN + "  " + PEER_GONE),
        "rank 1 ended with exit code -9 (SIGKILL)",
        "",
    ),
    "a process of torchrun that was killed": (
        child_failed("-9 (pid: 1400)  (SIGKILL)"),
        "rank 1 ended with exit code -9 (SIGKILL)",
        "",
    ),
    "a peer that is gone": (
        HEAD + MAIN +
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
            "closed by peer\n",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
        "peer (train.py:88)",
        "",
    ),
    "a worker of a DataLoader": (
        HEAD + MAIN +
            "KeyError: Caught KeyError in "
            "DataLoader worker.\nOriginal " + HEAD + MAIN + "KeyError: 'label'\n",
        "KeyError: 'label' (train.py:88)",
        "KeyError (train.py:88)",
    ),
    "a message of two lines": (
        HEAD + MAIN +
            "RuntimeError: Error(s) in loading state_dict "
            "for Net:\n\tMissing key(s): bias.\n",
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): bias. (train.py:88)",
        "RuntimeError (train.py:88)",
    ),
    "not Python 3": (
        '  File "/job/cwd/train.py", line 1\n    print "x"\n    ^^^^^^^^^\nSyntaxError: Missing '
        'parentheses\n',
        "SyntaxError: Missing parentheses (train.py:1)",
        "SyntaxError (train.py:1)",
    ),
    "a wrong flag": (
        "usage: train.py [-h] --n N\ntrain.py: error: the following arguments are required: --n\n",
        "train.py: error: the following arguments are required: --n",
        "train.py: error: the following arguments are required: --n",
    ),
    "a wrong flag of absl": (
        "FATAL Flags parsing error:\n  Unknown command line flag 'n'\nPass --helpshort or "
        "--helpfull to see help on flags.\n",
        "FATAL Flags parsing error: Unknown command line flag 'n'",
        "FATAL Flags parsing error: Unknown command line flag 'n'",
    ),
    "a wrong flag of absl, started by make": (
        "FATAL Flags parsing error: flag --job_name=: value should be one of <ps|worker>\nPass "
        "--helpshort or --helpfull to see help on flags.\nmake: *** [Makefile:6: train] Error 1\n",
        "FATAL Flags parsing error: flag --job_name=: value should be one of <ps|worker>",
        "FATAL Flags parsing error: flag --job_name=: value should be one of <ps|worker>",
    ),
    "sys.exit below make": (
        "no such data\nmake[1]: *** [train] Error 1\nmake: *** [all] Error 2\n",
        "no such data",
        "",
    ),
    "recipes side by side": (
        "boom\nmake: *** [a] Error 1\nmake: *** Waiting for unfinished jobs....\n"
        "make: *** [b] Error 1\n",
        "boom",
        "",
    ),
    "a recipe that printed nothing": (
        "make: *** [Makefile:2: train] Error 137\n",
        "make: *** [Makefile:2: train] Error 137",
        "",
    ),
    "make without a rule": (
        "make: *** No rule to make target 'train'.  Stop.\n",
        "make: *** No rule to make target 'train'.  Stop.",
        "",
    ),
    "sys.exit": (C_PLUS_PLUS +
        "Must specify an explicit "
        "`ps_hosts`\n", "Must specify an explicit `ps_hosts`", ""),
    "a mistake that names a device": (
        HEAD + MAIN + "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'\n",
        "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice' (train.py:88)",
        "AttributeError (train.py:88)",
    ),
    "a device that is busy": (
        HEAD + MAIN +
            "RuntimeError: CUDA error: all CUDA-capable "
            "devices are busy or unavailable\n",
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable (train.py:88)",
        "",
    ),
    "no disk": (
        HEAD + MAIN + "OSError: [Errno 28] No space left on device\n",
        "OSError: [Errno 28] No space left on device (train.py:88)",
        "",
    ),
}  # fmt: skip


def test_torchrun_without_a_cause_gives_way_to_what_stands_elsewhere() -> None:
    cut_off = CHILD_FAILED[: CHILD_FAILED.index("=====")]
    reason = failure_reason.explain_exit(HEAD + MAIN + UNDEFINED, cut_off, [ROOT])
    assert reason is not None and reason.text.startswith("NameError: name 'tf' is not defined")


@pytest.mark.parametrize(("printed", "words", "error"), OUTPUTS.values(), ids=OUTPUTS)
def test_the_line_that_a_person_would_quote(printed: str, words: str, error: str) -> None:
    assert failure_reason.explain_exit("", printed, (ROOT,)) == failure_reason.FailureReason(
        words, error
    )


@pytest.mark.parametrize(
    "printed",
    ["", C_PLUS_PLUS, "WARNING:tensorflow:old\n", "Instructions for updating:\nUse tf.data.\n"],
)
def test_what_a_library_says_is_no_cause(printed: str) -> None:
    assert failure_reason.explain_exit("", printed) is None


def test_a_traceback_on_standard_output_is_found_and_a_long_message_is_cut() -> None:
    reason = failure_reason.explain_exit(
        HEAD + MAIN + "ValueError: " + "x" * 1000 + " write it so", C_PLUS_PLUS, (ROOT,)
    )
    assert reason is not None and len(reason.text) < 250
    assert reason.text.startswith("ValueError: xxx") and " ... xxx" in reason.text
    assert reason.text.endswith("xxx write it so (train.py:88)")


CRASHES = {
    "a failed check": (
        "2026-11-25 18:00:00.1: F "
        "tensorflow/core/env.cc:74] Check failed: ret == 0 (11 vs. 0)\n",
                       "Check failed: ret == 0 (11 vs. 0)"),
    "of absl": (
        "F0000 00:00:1795631634.780111   29599 "
        "device.cc:43] Check failed: ok\n", "Check failed: ok"),
    "faulthandler": (
        'Fatal Python error: Segmentation fault\n\nCurrent '
        'thread 0x1 (most recent call first):\n'
                     '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
                     '  File "/job/cwd/train.py", line 4 in go\n  File "/job/cwd/train.py", line '
                     '5 in <module>\n',
                     "Segmentation fault (train.py:4)"),
    "an exception of C++": (
        "terminate called after throwing an instance of "
        "'c10::Error'\n  what():  no kernel\n",
                            "terminate called after throwing an instance of 'c10::Error', "
                            "what():  no kernel"),
    "an exception that was handled": (HEAD + MAIN + UNDEFINED, None),
}  # fmt: skip


@pytest.mark.parametrize(("printed", "words"), CRASHES.values(), ids=CRASHES)
def test_a_crash_is_told_in_its_own_words(printed: str, words: str | None) -> None:
    reason = failure_reason.explain_crash(printed, (ROOT,))
    assert (reason and reason.text) == words


def test_only_what_the_attempt_wrote_is_read_each_stream_by_itself(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path), 1 << 20)
    log.append(b"of the attempt before\n", 1, 1, 100.0)
    began = log.end
    for number in range(3):
        log.append(b"out %d " % number, 0, 2, 101.0)
        log.append(b"err %d " % number, 1, 2, 101.0)
    assert failure_reason.read_output_end(str(tmp_path), log.end - began) == (
        "out 0 out 1 out 2 ",
        "err 0 err 1 err 2 ",
    )
