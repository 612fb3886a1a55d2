"""The op that offers shared memory for large ops, 0x37. The mesh itself answers it.

A broker that does not know the op answers UNSUPPORTED_VERSION, and all ops travel in packets.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class OpenMemoryResp(WireStruct):
    """Where the broker takes the memory's descriptor, within a few seconds.

    Attributes:
        name: the name of a unix socket in the abstract namespace of the broker's host; empty: the
            broker takes no memory.
        token: proves that the process at the socket has received this answer.
    """

    name: bytes
    token: bytes = b""


@wire_struct
class OpenMemory(Op[OpenMemoryResp]):
    """Ask for a socket for the descriptor of the memory that this connection's ops lie in."""

    code = OpCode.OPEN_MEMORY


ALL: tuple[type[AnyOp], ...] = (OpenMemory,)
