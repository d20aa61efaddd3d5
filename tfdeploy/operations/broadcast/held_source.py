"""Use the files of one host as the source of a broadcast.

That host computes the checksums and sends the pieces to other hosts. Pieces pass through this
machine only on the way to a host that no other host can reach.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tfdeploy.agent import pieces
from tfdeploy.agent.listing import Listing
from tfdeploy.agent.pieces import Piece
from tfdeploy.errors import AgentError, BadAnswer
from tfdeploy.model.answers.files import BROADCAST_READ, BROADCAST_SUMS
from tfdeploy.operations.broadcast.source import BroadcastSource, SourceChanged
from tfdeploy.transport.protocols import Session

BEGIN_S = 30.0  # the host must join the broadcast within this many seconds
SUM_S = 600.0  # the host must send a segment's checksums, or a piece, within this many seconds
_AGAIN_S = 0.02  # pause before the host is asked again whether it has joined


class HostBroadcastSource(BroadcastSource):
    """The source of a broadcast whose files come from a host.

    The host must be a member of the broadcast with the id `id_`. `rows`: the row numbers, in
    `listing`, of the files to send.
    """

    def __init__(self, session: Session, id_: str, listing: Listing, rows: Sequence[int]) -> None:
        super().__init__("", listing, rows)
        self.source_host = session.host.name
        self._session, self._id = session, id_
        self._begin_by = time.monotonic() + BEGIN_S

    def _read_checksums(self, segment: int) -> bytes:
        args = {"id": self._id, "segment": segment}
        while True:
            try:
                answer = self._session.agent().call(BROADCAST_SUMS, args, timeout_s=SUM_S)
                break
            except AgentError as error:
                if error.code == "changed":
                    raise self._source_changed_error(error.what) from error
                if error.code != "not_begun" or time.monotonic() > self._begin_by:
                    raise
                time.sleep(_AGAIN_S)
        leaves = bytes.fromhex(answer.leaves)
        if len(leaves) != self.cut.count_pieces(segment) * pieces.LEAF_BYTES:
            raise BadAnswer(
                f"the host's checksums of segment {segment} do not cover all pieces",
                where=self.source_host,
            )
        return leaves

    def _read_piece(self, segment: int, index: int, piece: Piece) -> bytes:
        args = {"id": self._id, "segment": segment, "index": index}
        stream = self._session.agent().stream(BROADCAST_READ, args, silence_s=SUM_S)
        try:
            for _, content in stream:
                return content
        except AgentError as error:
            raise self._source_changed_error(error.what) from error
        finally:
            stream.close()
        raise BadAnswer("the host did not send the requested piece", where=self.source_host)

    def _piece_changed_error(self, piece: Piece) -> SourceChanged:
        return self._source_changed_error(f"{self._path_of_piece(piece)} changed while it was sent")

    def _source_changed_error(self, what: str) -> SourceChanged:
        return SourceChanged(
            what, where=self.source_host, next="wait until no program writes to the files"
        )
