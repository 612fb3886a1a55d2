"""The op that asks for a TLS connection for bulk answers, 0x33. The mesh itself answers it.

A broker that does not know the op answers UNSUPPORTED_VERSION, and bulk answers stay on QUIC.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class OpenBulkResp(WireStruct):
    """An offer: one TLS connection for this QUIC connection, within a few seconds.

    Attributes:
        name: identifies the offer in clear text; empty: the broker offers none.
        token: proves, inside TLS, that the peer has received this answer.
        certificate: the certificate that the broker will present, DER.
        port: the TCP port; 0: the number of the UDP port that the gateway connected to.
    """

    name: bytes
    token: bytes
    certificate: bytes
    port: int = 0


@wire_struct
class OpenBulk(Op[OpenBulkResp]):
    """Ask for an offer. `certificate`: the certificate that the gateway will present, DER."""

    code = OpCode.OPEN_BULK
    certificate: bytes


ALL: tuple[type[AnyOp], ...] = (OpenBulk,)
