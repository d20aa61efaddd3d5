"""Masks the values of a run's secrets in the output of its program, before that is written anywhere.

A secret may come in pieces: bytes that could begin one are held back until the next piece or the end of the stream.
"""

from __future__ import annotations

import re

from tfdeploy.agent.annotations import Dict, Iterable, List

MASK = b"***"
SHORTEST = 4  # characters; masking less would make the log unreadable and hide nothing


class Mask:
    """For the streams of one task. Secrets shorter than SHORTEST are not masked."""

    def __init__(self, texts: Iterable[str]) -> None:
        found = {piece.strip() for text in texts for piece in [text] + text.splitlines()}
        self._secrets = sorted(
            (one.encode("utf-8", "surrogateescape") for one in found if len(one) >= SHORTEST), key=len, reverse=True
        )
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held: Dict[int, bytes] = {}

    def feed(self, stream: int, chunk: bytes) -> bytes:
        """What may be written now."""
        if not self._secrets:
            return chunk
        whole = self._held.pop(stream, b"") + chunk
        cut = self._cut(whole)
        if cut < len(whole):
            self._held[stream] = whole[cut:]
        return self._pattern.sub(MASK, whole[:cut])

    def rest(self, stream: int) -> bytes:
        """What was held back, at the end of the stream."""
        held = self._held.pop(stream, b"")
        return self._pattern.sub(MASK, held) if held else b""

    def _cut(self, whole: bytes) -> int:
        """Where an incomplete secret may begin; never inside a complete one."""
        cut = len(whole)
        for secret in self._secrets:
            at = whole.find(secret[:1], max(0, len(whole) - len(secret) + 1))
            while 0 <= at < cut:
                if secret.startswith(whole[at:]):
                    cut = at
                at = whole.find(secret[:1], at + 1)
        begins: List[int] = [found.start() for found in self._pattern.finditer(whole) if found.start() < cut < found.end()]
        return begins[0] if begins else cut
