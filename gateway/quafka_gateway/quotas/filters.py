"""Which entities a DescribeClientQuotas request asks for (KIP-546). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_gateway.quotas.kinds import CLIENT_ID, IP, USER
from quafka_gateway.security.directory import QuotaKey
from quafka_proto.errors import ErrorCode

EXACT, DEFAULT, ANY = 0, 1, 2
"""Kafka's match types: one name, the default, any name and the default."""


class FilterError(ValueError):
    """The filter has no meaning; the message and the code are for the client."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


class EntityFilter:
    """Matches entities that have all the wanted parts; strictly: and no others."""

    def __init__(self, parts: Sequence[tuple[str, int, str | None]], *, strict: bool) -> None:
        """`parts`: entity type, match type and name. Raises FilterError."""
        self._strict = strict
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        for kind, match_type, name in parts:
            self._add(kind, match_type, name)
        wanted = {*self._exact, *self._any}
        if IP in wanted and wanted & {USER, CLIENT_ID}:
            raise FilterError(
                "Invalid entity filter component combination. IP filter component should not be "
                "used with user or clientId filter component."
            )

    def matches(self, entity: QuotaKey) -> bool:
        """Whether an entity is asked for."""
        parts = dict(entity)
        if self._strict and len(parts) != len(self._exact) + len(self._any):
            return False
        if any(kind not in parts for kind in self._any):
            return False
        return all(kind in parts and parts[kind] == name for kind, name in self._exact.items())

    def _add(self, kind: str, match_type: int, name: str | None) -> None:
        if not kind:
            raise FilterError("Invalid empty entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            message = f"Custom entity type '{kind[:64]}' not supported"
            raise FilterError(message, ErrorCode.UNSUPPORTED_VERSION)
        if kind in self._exact or kind in self._any:
            raise FilterError(
                f"Entity type {kind[:64]} cannot appear more than once in the filter."
            )
        if match_type == EXACT:
            if name is None:
                raise FilterError(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            self._exact[kind] = name
        elif match_type in (DEFAULT, ANY):
            if name is not None:
                word = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
                raise FilterError(
                    f"Request specified MATCH_TYPE_{word}, but also specified a match string."
                )
            if match_type == DEFAULT:
                self._exact[kind] = None
            else:
                self._any.add(kind)
        else:
            raise FilterError(f"Unknown match type {match_type}")
