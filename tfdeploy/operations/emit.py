"""Emit each kind of event that operations use: one function per kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tfdeploy.model.events import (
    BroadcastFields,
    Emit,
    Event,
    HostFields,
    NoteFields,
    StepFields,
    TransferFields,
)


def emit_note(
    emit: Emit, text: str, *, level: str = "info", host: str | None = None, run: str | None = None
) -> None:
    data: NoteFields = {"level": level, "text": text}
    emit(Event("note", time.time(), run=run, host=host, data=data))


# This function has the parameters of emit_note except `level`.
emit_warning = partial(emit_note, level="warning")


def make_wait_warner(emit: Emit) -> Callable[[str, str], None]:
    """Return a function that takes a host and a text, and emits the text as a warning.

    A fleet calls it with the reason why a host must wait.
    """
    return lambda host, text: emit_warning(emit, text, host=host)


def emit_host_state(
    emit: Emit, host: str, state: str, text: str | None = None, *, run: str | None = None
) -> None:
    data: HostFields = {"state": state}
    if text:
        data["text"] = text
    emit(Event("host", time.time(), run=run, host=host, data=data))


def emit_transfer(
    emit: Emit,
    host: str,
    subject: str,
    state: str,
    sent_bytes: int,
    total_bytes: int,
    *,
    end_word: str | None = None,
) -> None:
    """Emit the progress, in bytes, of the transfer of `subject` to or from one host.

    `end_word` replaces "sent" in the line that is shown when the transfer is done.
    """
    data: TransferFields = {
        "what": subject,
        "state": state,
        "sent_bytes": sent_bytes,
        "total_bytes": total_bytes,
    }
    if end_word is not None:
        data["done"] = end_word
    emit(Event("transfer", time.time(), host=host, data=data))


def transfer_events(
    emit: Emit, host: str, subject: str, total_bytes: int
) -> AbstractContextManager[None]:
    """Return a context manager for a transfer to a host.

    It emits "begin" when it is entered, and "done" or "failed" when it is left.
    """
    return _emit_begin_and_end(
        lambda state: emit_transfer(
            emit, host, subject, state, total_bytes if state == "done" else 0, total_bytes
        )
    )


def emit_broadcast(emit: Emit, fields: BroadcastFields) -> None:
    emit(Event("broadcast", time.time(), data=fields))


def step_events(emit: Emit, name: str, run: str | None = None) -> AbstractContextManager[None]:
    """Return a context manager for a step of a verb.

    It emits "begin" when it is entered, and "done" or "failed" when it is left.
    """

    def emit_state(state: str) -> None:
        data: StepFields = {"step": name, "state": state}
        emit(Event("step", time.time(), run=run, data=data))

    return _emit_begin_and_end(emit_state)


@contextmanager
def _emit_begin_and_end(emit_state: Callable[[str], None]) -> Iterator[None]:
    emit_state("begin")
    try:
        yield
    except BaseException:
        emit_state("failed")
        raise
    emit_state("done")
