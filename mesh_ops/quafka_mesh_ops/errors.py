"""The error tree of the mesh."""

from __future__ import annotations


class MeshError(Exception):
    """Anything that went wrong between gateway and broker."""


class PeerUnavailableError(MeshError):
    """The op never left this node: nothing happened, and a retry is safe."""


class OutcomeUnknownError(MeshError):
    """The op left, but its answer will not come (peer lost, deadline): it may have happened."""


class OpFailedError(MeshError):
    """The peer answered the whole op with a Kafka error code."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the peer answered error {error_code}")
        self.error_code = error_code


class OpTooLargeError(OpFailedError):
    """An op, or the answer to one, is larger than the mesh carries. It was not sent.

    `error_code` is Kafka's MESSAGE_TOO_LARGE.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(10)
        self.args = (reason,)


class ProtocolError(MeshError):
    """The peer sent bytes that are not this protocol. Its connection is closed.

    The exception is the body of an op or of an answer, in an envelope that can be read: then only
    that op fails.
    """


class PeerRefusedError(MeshError):
    """The peer's identity is missing, wrong, expired or not on the allow-list."""
