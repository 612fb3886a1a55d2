"""The op after which a gateway may send large ops in pieces, 0x38. The mesh itself answers it.

A broker that does not know the op answers UNSUPPORTED_VERSION, and ops travel whole.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class OpenPiecesResp(WireStruct):
    """The broker takes PIECE frames on this connection."""


@wire_struct
class OpenPieces(Op[OpenPiecesResp]):
    """Ask whether the broker takes PIECE frames."""

    code = OpCode.OPEN_PIECES


ALL: tuple[type[AnyOp], ...] = (OpenPieces,)
