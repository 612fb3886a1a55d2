"""The error tree of the mesh."""

from __future__ import annotations


class MeshError(Exception):
    """The base of all errors between gateway and broker."""


class PeerUnavailableError(MeshError):
    """The op was never sent: it was not executed, and a retry is safe."""


class ShardLeftError(PeerUnavailableError):
    """The op was not sent: its shard has left the broker."""


class OutcomeUnknownError(MeshError):
    """The op was sent, but its answer will not arrive (peer lost, deadline): it may have run."""


class OpFailedError(MeshError):
    """The peer answered the op with a Kafka error code."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the peer answered error {error_code}")
        self.error_code = error_code


class OpTooLargeError(OpFailedError):
    """An op or its answer is larger than the mesh carries. It was not sent.

    `error_code` is Kafka's MESSAGE_TOO_LARGE.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(10)
        self.args = (reason,)


class DisplacedError(OpFailedError):
    """The op was parked at the peer, and was given up for an op of another org.

    `error_code` is a Kafka error after which clients ask again.
    """


class ProtocolError(MeshError):
    """The peer violated the protocol. Its connection is closed.

    Exception: if only the body of an op or an answer cannot be decoded, only that op fails.
    """


class PeerRefusedError(MeshError):
    """The peer's identity is missing, wrong, expired or not on the allow-list."""
