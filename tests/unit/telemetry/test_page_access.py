"""Operations pages that only some may read: bearer tokens, TLS and client certificates."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quafka_telemetry.operations import Operations, PageReply, PageRequest
from quafka_telemetry.page_access import PageAccess
from quafka_telemetry.page_files import PageFiles
from quafka_telemetry.startup import StartupError
from tests.support.certificates import Authority

TOKEN, NEXT = "first-token-0123456789", "second-token-0123456789"


def token_file(folder: Path, *tokens: str) -> Path:
    path = folder / f"tokens-{len(tokens)}"
    path.write_text("\n".join(tokens) + "\n")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def serving(files: PageFiles) -> AsyncIterator[int]:
    async def page(_asked: PageRequest) -> PageReply:
        return PageReply(b"secret figures")

    operations = Operations(lambda: {"log": "full"})
    operations.add("/metrics", page)
    _, port = await operations.start("127.0.0.1", 0, files)
    try:
        yield port
    finally:
        await operations.close()


async def get(
    port: int, path: str, token: str = "", tls: ssl.SSLContext | None = None
) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    header = f"Authorization: {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (b"www-authenticate: Bearer" in head) == (b" 401 " in head)
    return int(head.split()[1]), body


async def test_a_token(tmp_path: Path) -> None:
    path = token_file(tmp_path, TOKEN)
    async with serving(PageFiles(path)) as port:
        for header in ("", "Basic x", f"Bearer {TOKEN}x", "Bearer", "Bearer ", TOKEN, "Bearer ü"):
            assert (await get(port, "/metrics", header))[0] == 401, header
            assert (await get(port, "/unknown", header))[0] == 401
        assert await get(port, "/metrics", f"bearer  {TOKEN}") == (200, b"secret figures")
        # Probes need no token, and get no details.
        assert await get(port, "/livez") == (200, b"ok\n")
        assert await get(port, "/readyz") == (503, b'{"ready": false}\n')
        status, body = await get(port, "/readyz", f"Bearer {TOKEN}")
        assert (status, json.loads(body)["problems"]) == (503, {"log": "full"})
        path.write_text(f"{TOKEN}\n\n{NEXT}\n")
        for token in (TOKEN, NEXT):
            assert (await get(port, "/metrics", f"Bearer {token}"))[0] == 200
        path.write_text(NEXT)
        assert (await get(port, "/metrics", f"Bearer {TOKEN}"))[0] == 401
        path.unlink()
        assert (await get(port, "/metrics", f"Bearer {NEXT}"))[0] == 200, "the last valid one"


async def test_certificates(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "other CA")
    server = authority.issue("localhost", ("localhost",))
    files = PageFiles(token_file(tmp_path, TOKEN), server, None, authority.file)

    def client(issuer: Authority | None, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(authority.file))
        if issuer is not None:
            context.load_cert_chain(issuer.issue(name))
        return context

    async with serving(files) as port:
        nobody = client(None, "")
        assert (await get(port, "/metrics", tls=nobody))[0] == 401
        assert (await get(port, "/livez", tls=nobody))[0] == 200
        assert (await get(port, "/metrics", f"Bearer {TOKEN}", nobody))[0] == 200
        assert (await get(port, "/metrics", tls=client(authority, "scraper")))[0] == 200
        with pytest.raises((OSError, IndexError)):  # an alert, or nothing
            await get(port, "/livez", tls=client(stranger, "impostor"))
        server.write_bytes(authority.issue("renewed", ("renewed",)).read_bytes())
        await get(port, "/livez", tls=nobody)
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(port, "/livez", tls=nobody)


async def test_an_authority_that_is_removed_is_not_trusted_any_more(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old CA"), Authority(tmp_path, "new CA")
    server = old.issue("localhost", ("localhost",))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.file.read_bytes())
    clients = [ssl.create_default_context(cafile=str(old.file)) for _ in range(2)]
    for client, issuer in zip(clients, (old, new), strict=True):
        client.load_cert_chain(issuer.issue("scraper"))
    of_old, of_new = clients

    async with serving(PageFiles(certificate=server, authorities=trusted)) as port:
        assert (await get(port, "/metrics", tls=of_old))[0] == 200
        trusted.write_bytes(b"not a certificate")
        assert (await get(port, "/metrics", tls=of_old))[0] == 200, "the last valid one"
        trusted.write_bytes(new.file.read_bytes())
        # The old authority has verified this connection, but counts no more.
        assert (await get(port, "/metrics", tls=of_old))[0] == 401
        assert (await get(port, "/metrics", tls=of_new))[0] == 200
        with pytest.raises((OSError, IndexError)):  # an alert, or nothing
            await get(port, "/livez", tls=of_old)
        # A renewed server's certificate leaves the authorities as they are.
        server.write_bytes(old.issue("localhost", ("localhost",)).read_bytes())
        assert (await get(port, "/metrics", tls=of_new))[0] == 200
        # A key of another certificate is refused, and harms nothing.
        server.write_bytes(
            server.read_bytes().partition(b"-----BEGIN CERT")[0] + old.file.read_bytes()
        )
        for _ in range(2):
            assert (await get(port, "/metrics", tls=of_new))[0] == 200


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not PEM, but a long enough token")
    for files, why in (
        (PageFiles(tmp_path / "none"), "No such file"),
        (PageFiles(token_file(tmp_path)), "1 to 8 tokens"),
        (PageFiles(token_file(tmp_path, "short")), "shorter than 16"),
        (PageFiles(certificate=text), "not a certificate and its key"),
        (PageFiles(authorities=text), "needs ops.ssl.certfile"),
    ):
        with pytest.raises(StartupError, match=why):
            PageAccess(files)


async def test_what_others_could_do_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for files, warning in (
        (PageFiles(), "everyone who reaches 0.0.0.0 can read the operations pages"),
        (PageFiles(token_file(tmp_path, TOKEN)), "travels unencrypted"),
    ):
        caplog.clear()
        operations = Operations(dict)
        await operations.start("0.0.0.0", 0, files)
        await operations.close()
        assert warning in caplog.text
    caplog.clear()
    async with serving(PageFiles()):
        assert not caplog.text
