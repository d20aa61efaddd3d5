"""Mask the values of a run's secrets in the output of its program, before the output is written to
the log.

A program may print a secret in several forms, such as base64 (secret_forms.py). All forms are
searched for, both in the raw bytes and in the text that a terminal would show (unseen.py).

A secret may arrive in several pieces. So bytes that could be the beginning of a form are held back
until the next piece arrives or the stream ends. The number of such bytes is limited: to MOST_HELD,
or to the length of the longest form if that is larger.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import Dict, Iterable, List, Optional, Tuple
from tfdeploy.agent.log import unseen
from tfdeploy.agent.log.secret_forms import SHORTEST, printed_forms
from tfdeploy.agent.log.unseen import VisibleText

MASK = b"***"
# At most this many bytes of output are held back because they may be the beginning of a secret. If
# one of the forms of a secret (see below) is longer, the limit is the length of that form.
MOST_HELD = 64 << 10
# A secret has several forms (plain, base64, ...). To find a form, the search first looks for its
# first bytes, which are this many, or fewer at the end of a text.
_BEGINNING = 4
# This many bytes of a form are compared first. Only if they are equal, all bytes of the form are
# compared. This saves time.
_HEAD = 32

Span = Tuple[int, int]


class SecretMask:
    """Masks the secrets in the output streams of one task. Secrets that overlap get one common
    mask. The result does not depend on how a stream is divided into chunks."""

    def __init__(self, texts: Iterable[str]) -> None:
        plain = printed_forms(texts)
        visible = {form for form in map(unseen.strip_invisible, plain) if len(form) >= SHORTEST}
        self._forms = sorted(visible.union(plain), key=lambda form: (-len(form), form))
        self._longest = len(self._forms[0]) if self._forms else 0
        self._endings = {
            form[:size] for form in self._forms for size in range(1, min(_BEGINNING, len(form)))
        }
        self._beginnings: Dict[bytes, List[bytes]] = {}
        for form in self._forms:
            self._beginnings.setdefault(form[:_BEGINNING], []).append(form)
        # Stream -> (held, n). `held`: the bytes that are held back. The first n of them belong to a
        # secret for which MASK was already returned.
        self._held: Dict[int, Tuple[bytes, int]] = {}

    def mask_chunk(self, stream: int, chunk: bytes) -> bytes:
        """Return the bytes that may be written now, with secrets masked. The rest is held back."""
        if not self._forms:
            return chunk
        held, masked = self._held.pop(stream, (b"", 0))
        text = held + chunk if held else chunk
        visible = unseen.strip_invisible_bytes(text)
        return self._mask_until(
            stream, text, masked, self._incomplete_secret_start(text, visible), visible
        )

    def mask_held_back(self, stream: int) -> bytes:
        """Return the bytes that were held back, with secrets masked. Called at the end of the
        stream."""
        held, masked = self._held.pop(stream, (b"", 0))
        return self._mask_until(stream, held, masked, len(held), unseen.strip_invisible_bytes(held))

    def _mask_until(
        self, stream: int, text: bytes, masked: int, cut: int, visible: Optional[VisibleText]
    ) -> bytes:
        """Return `text` up to the position `cut`, with secrets masked, and hold back the rest.

        `masked`: this many bytes at the beginning of `text` belong to a secret for which MASK was
        already returned.
        `visible`: the part of `text` that a terminal would show. None if a terminal shows all of
        it.
        """
        spans = self._joined_secret_spans(text, masked, visible)
        pieces, at = [], 0
        for begin, end in spans:
            has_mask = masked > 0 and begin == 0
            if begin >= cut and not has_mask:
                break
            pieces += [text[at:begin], b"" if has_mask else MASK]
            at = end
        if cut < len(text):
            self._held[stream] = (text[cut:], max(0, at - cut))
        return b"".join(pieces + [text[at:cut]]) if pieces else text[:cut]

    def _joined_secret_spans(
        self, text: bytes, masked_prefix_bytes: int, visible: Optional[VisibleText]
    ) -> List[Span]:
        """Return (begin, end) of each secret in `text`, in order. Secrets that overlap are joined
        to one. The first `masked_prefix_bytes` bytes of `text` belong to a secret for which MASK
        was already returned."""
        covered: List[Span] = [(0, masked_prefix_bytes)] if masked_prefix_bytes else []
        covered += self._find_forms(text)
        if visible is not None:
            for begin, end in self._find_forms(visible.text):
                covered.append((visible.original_start(begin), visible.original_end(end)))
        joined: List[Span] = []
        for begin, end in sorted(covered):
            if joined and begin < joined[-1][1]:
                begin, before = joined.pop()
                end = max(end, before)
            joined.append((begin, end))
        return joined

    def _find_forms(self, text: bytes) -> List[Span]:
        """Return (begin, end) of each place in `text` at which a form of a secret occurs.

        If several occurrences of the same form overlap, they are returned as one. In a long row of
        `a`, for example, the form `aaaa` begins at almost every `a`.
        """
        occurrences: List[Span] = []
        for form in self._forms:
            at, size = text.find(form), len(form)
            while at >= 0:
                last = at
                while last >= 0:
                    end = last + size
                    last = text.rfind(form, last + 1, end - 1 + size)
                occurrences.append((at, end))
                at = text.find(form, end)
        return occurrences

    def _incomplete_secret_start(self, text: bytes, visible: Optional[VisibleText]) -> int:
        """Return the position from which `text` may be the beginning of a secret whose end has not
        arrived yet. If there are several, return the first. If there is none, return the length of
        `text`."""
        cut = self._incomplete_form_start(text)
        if visible is not None:
            begin = self._incomplete_form_start(visible.text)
            if begin < len(visible.text):
                cut = min(cut, visible.original_start(begin))
        return max(cut, len(text) - max(MOST_HELD, self._longest))

    def _incomplete_form_start(self, text: bytes) -> int:
        """Return the first position from which the rest of `text` equals the beginning of a form of
        a secret (plain, base64, ...). The end of this form may follow in the next chunk. Return the
        length of `text` if there is no such position."""
        size = len(text)
        cuts = range(max(0, size - _BEGINNING + 1), size)
        cut = next((cut for cut in cuts if text[cut:] in self._endings), size)
        tail = text[-self._longest :]
        for beginning, forms in self._beginnings.items():
            at, heads = tail.find(beginning), {form[:_HEAD] for form in forms}
            while at >= 0 and size - len(tail) + at < cut:
                head = tail[at : at + _HEAD]
                if len(head) < _HEAD or head in heads:
                    ending = tail[at:]
                    if any(len(form) > len(ending) and form.startswith(ending) for form in forms):
                        cut = size - len(tail) + at
                at = tail.find(beginning, at + 1)
        return cut
