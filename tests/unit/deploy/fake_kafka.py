"""A Kafka server with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from quafka_client.connection import ClientConnection
from quafka_proto.codec import decode
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import decode_request_header, encode_response
from quafka_proto.message import Response
from quafka_proto.schema.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

HOST = "127.0.0.1"
SECONDS = 5.0


class Fake:
    """A server with scripted answers. `software`: the client's name in its ApiVersions."""

    def __init__(self, apis: Mapping[int, tuple[int, int]], oldest: bool = False) -> None:
        self._apis = apis
        self._oldest = oldest
        self.answers: dict[int, Response | bytes | None] = {}
        self.asked: list[tuple[int, int]] = []
        self.client_ids: set[str | None] = set()
        self.software = ""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, at = decode_request_header(frame)
                self.asked.append((header.api_key, header.api_version))
                self.client_ids.add(header.client_id)
                if header.api_key == ApiVersionsRequest.api_key:
                    request = decode(ApiVersionsRequest, header.api_version, frame, at)
                    self.software = request.client_software_name
                    answer: Response | bytes | None = self._versions()
                    version = 0 if self._oldest else header.api_version
                else:
                    answer, version = self.answers[header.api_key], header.api_version
                if answer is None:
                    return
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    writer.writelines(encode_response(header.correlation_id, answer, version))
        except EOFError:
            pass
        finally:
            writer.close()

    def _versions(self) -> ApiVersionsResponse:
        code = ErrorCode.UNSUPPORTED_VERSION if self._oldest else ErrorCode.NONE
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self._apis.items()
        ]
        return ApiVersionsResponse(error_code=code, api_keys=keys)


@asynccontextmanager
async def connected(fake: Fake, timeout: float = SECONDS) -> AsyncIterator[ClientConnection]:
    async with serving(fake):
        connection = ClientConnection(HOST, fake.port, timeout)
        try:
            await connection.open()
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def serving(fake: Fake) -> AsyncIterator[None]:
    server = await asyncio.start_server(fake.serve, HOST, 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
