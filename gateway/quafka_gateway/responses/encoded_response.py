"""A response that its handler has encoded itself."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_proto.message import Buffer, Message


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response's body. It may be shared between clients and must not be changed.

    Attributes:
        kind: the schema that the body is encoded by.
        body: as `codec.encode` returns it.
        errors: the error codes in the response.
        shared: bytes of the body that another owner has counted: a cache, or a block of partitions.
    """

    kind: type[Message]
    body: list[Buffer]
    errors: frozenset[int] = frozenset()
    shared: int = 0

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.body))
