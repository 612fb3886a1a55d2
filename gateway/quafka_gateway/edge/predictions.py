"""The requests that one connection is expected to send next (`handlers/prediction.py`)."""

from __future__ import annotations

from typing import Any

from quafka_gateway.context import Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.handlers.prediction import AnyPrediction
from quafka_gateway.security.authorizer import ClientAccess
from quafka_gateway.security.session import ClientSession

_KIND = 4
"""Bytes of a frame that are its API key and version."""


class Predictions:
    """One prediction of each API and version; it is the `Caller` of all of them."""

    def __init__(self, services: Services, session: ClientSession, client: ConnectedClient) -> None:
        self.lane = client.serial
        self._services = services
        self.session = session
        self._host = client.host
        self._of_kind: dict[bytes, AnyPrediction] = {}

    def has_quotas(self) -> bool:
        """See Caller."""
        return self._services.quotas.of(self.session.tenant) is not None

    def access(self) -> ClientAccess | None:
        """See Caller."""
        authorizer = self._services.authorizer
        return None if authorizer is None else self.session.access_by(authorizer, self._host)

    def expect(self, prediction: AnyPrediction) -> None:
        """Expect this instead of another request of its API and version."""
        self._of_kind[prediction.kind] = prediction

    def find(self, frame: bytes) -> tuple[AnyPrediction, Any] | None:
        """The prediction that has come true, and the request's news."""
        prediction = self._of_kind.get(frame[:_KIND])
        news = None if prediction is None else prediction.read(frame, self)
        return None if prediction is None or news is None else (prediction, news)
