"""Masks the values of a run's secrets in the output of its program, before that is written anywhere.

A secret may come in pieces: bytes that could begin one are held back until the next piece or the end of the stream. What is
held is never longer than the longest form. `secret_forms` says in which forms a secret is looked for.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import Dict, Iterable, List, Tuple
from tfdeploy.agent.log.secret_forms import forms

MASK = b"***"
_BEGINNING = 4  # bytes by which the beginning of a form is found, except at the very end

Span = Tuple[int, int]


class Mask:
    """For the streams of one task. Overlapping secrets get one mask, however the stream is cut."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._forms = forms(texts)
        self._longest = len(self._forms[0]) if self._forms else 0
        self._endings = {form[:size] for form in self._forms for size in range(1, min(_BEGINNING, len(form)))}
        self._beginnings: Dict[bytes, List[bytes]] = {}
        for form in self._forms:
            self._beginnings.setdefault(form[:_BEGINNING], []).append(form)
        self._held: Dict[int, Tuple[bytes, int]] = {}  # stream -> (bytes, how many of them a written mask stands for)

    def feed(self, stream: int, chunk: bytes) -> bytes:
        """What may be written now."""
        if not self._forms:
            return chunk
        held, masked = self._held.pop(stream, (b"", 0))
        whole = held + chunk if held else chunk
        return self._written(stream, whole, masked, self._cut(whole))

    def rest(self, stream: int) -> bytes:
        """What was held back, at the end of the stream."""
        held, masked = self._held.pop(stream, (b"", 0))
        return self._written(stream, held, masked, len(held))

    def _written(self, stream: int, whole: bytes, masked: int, cut: int) -> bytes:
        """`whole` up to `cut`, masked; the rest is held."""
        spans = self._spans(whole, masked)
        pieces, at = [], 0
        for begin, end in spans:
            has_mask = masked > 0 and begin == 0
            if begin >= cut and not has_mask:
                break
            pieces += [whole[at:begin], b"" if has_mask else MASK]
            at = end
        if cut < len(whole):
            self._held[stream] = (whole[cut:], max(0, at - cut))
        return b"".join(pieces + [whole[at:cut]]) if pieces else whole[:cut]

    def _spans(self, whole: bytes, masked: int) -> List[Span]:
        """Where secrets are, in order; overlapping ones are joined. The first `masked` bytes are one of them."""
        found: List[Span] = [(0, masked)] if masked else []
        for form in self._forms:
            at = whole.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = whole.find(form, at + 1)
        if len(found) < 2:
            return found
        found.sort()
        joined = found[:1]
        for begin, end in found[1:]:
            if begin < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((begin, end))
        return joined

    def _cut(self, whole: bytes) -> int:
        """Where the earliest incomplete secret may begin."""
        size = len(whole)
        cut = next((size - n for n in range(min(_BEGINNING - 1, size), 0, -1) if whole[size - n :] in self._endings), size)
        tail = whole[-self._longest :]
        for beginning, begun in self._beginnings.items():
            at = tail.find(beginning)
            while at >= 0 and size - len(tail) + at < cut:
                rest = tail[at:]
                if any(len(form) > len(rest) and form.startswith(rest) for form in begun):
                    cut = size - len(tail) + at
                at = tail.find(beginning, at + 1)
        return cut
