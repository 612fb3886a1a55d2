"""A plain Kafka client on a blocking socket: for what no real client would send."""

from __future__ import annotations

import socket
import ssl
from itertools import count
from typing import Self, TypeVar, cast

from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.message import Message

M = TypeVar("M", bound=Message)


class RawClient:
    """One connection. Requests can be sent without waiting for their answers."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout: float = 30.0,
        client_id: str = "raw-client",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._client_id = client_id
        self.socket = socket.create_connection(address, timeout)
        if tls is not None:
            try:
                self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
            except OSError:
                self.socket.close()
                raise
        self._correlation_ids = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.socket.close()

    def send(self, request: Message, version: int) -> int:
        """Send a request; return its correlation id."""
        return self.send_together((request, version))[0]

    def send_together(self, *requests: tuple[Message, int]) -> list[int]:
        """Send requests and their versions by one system call; return their correlation ids."""
        ids = [next(self._correlation_ids) for _ in requests]
        frames = [
            b"".join(encode_request(number, self._client_id, request, version))
            for number, (request, version) in zip(ids, requests, strict=True)
        ]
        self.socket.sendall(b"".join(frames))
        return ids

    def receive(self, response_type: type[M], version: int) -> tuple[int, M]:
        """The next answer: its correlation id and its message."""
        frame = self.receive_frame()
        correlation_id, at = decode_response_header(response_type, version, frame)
        return correlation_id, cast(M, decode(response_type, version, frame, at))

    def receive_frame(self) -> bytes:
        """The next answer's bytes, without their length."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def call(self, request: Message, response_type: type[M], version: int) -> M:
        """Send a request and wait for its answer."""
        sent = self.send(request, version)
        correlation_id, response = self.receive(response_type, version)
        assert correlation_id == sent
        return response

    def closed_by_peer(self) -> bool:
        """Wait until the other side closes; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(min(size - len(received), 1 << 20))
            if not chunk:
                raise ConnectionError("closed by the gateway")
            received += chunk
        return bytes(received)
