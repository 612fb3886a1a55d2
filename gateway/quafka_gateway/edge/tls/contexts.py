"""A listener's certificate, key and authorities: read at the start and again when they change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import datetime
from pathlib import Path

from cryptography import x509

from quafka_gateway.listeners import KafkaListener, TlsSettings
from quafka_gateway.principal_rules import principal_name
from quafka_gateway.security.certificate_names import distinguished_name
from quafka_loop import clock
from quafka_telemetry.startup import StartupError

log = logging.getLogger("quafka.gateway.tls")

RELOAD_SECONDS = 2.0
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_Seen = tuple[tuple[int, int, int] | None, ...]


class TlsContext:
    """The TLS of one listener, for new connections.

    Attributes:
        name: the listener's.
        context: OpenSSL's; replaced when the files change.
        expires: when the certificate ends, in UTC.
    """

    def __init__(self, listener: KafkaListener, settings: TlsSettings) -> None:
        """Read the files.

        Raises:
            StartupError: they cannot be used.
        """
        self.name = listener.name
        self._settings = settings
        self._seen = _look_at(settings)
        try:
            self.context, self.expires = _load(settings)
        except (OSError, ValueError) as e:
            raise StartupError(f"listener {self.name}: {e}") from e
        self._warn_of_its_end()

    def peer_name(self, tls: ssl.SSLObject) -> str:
        """Return the principal's name of a client after its handshake; "": it has no certificate.

        Raises:
            NoRuleError: no mapping rule matches.
            ValueError: the certificate has no readable subject.
        """
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return ""
        return principal_name(self._settings.rules, distinguished_name(certificate))

    async def watch(self) -> None:
        """Replace the context whenever the files change to ones that can be used. Never returns."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Read the files again if they have changed since the last time."""
        seen = await asyncio.to_thread(_look_at, self._settings)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.context, self.expires = await asyncio.to_thread(_load, self._settings)
        except (OSError, ValueError) as e:
            log.error("listener %s keeps its certificate: %s", self.name, e)  # noqa: TRY400
        else:
            log.info(
                "listener %s has a new certificate, which expires at %s", self.name, self.expires
            )
            self._warn_of_its_end()

    def _warn_of_its_end(self) -> None:
        if self.expires <= clock.utc_now():
            log.warning(
                "clients refuse the certificate of listener %s: it has expired at %s",
                self.name, self.expires,
            )  # fmt: skip


def _files(settings: TlsSettings) -> tuple[Path, ...]:
    found = settings.certificate, settings.key, settings.authorities
    return tuple(each for each in found if each is not None)


def _look_at(settings: TlsSettings) -> _Seen:
    """What distinguishes the versions of a file; None: the file does not exist."""
    seen: list[tuple[int, int, int] | None] = []
    for path in _files(settings):
        try:
            found = path.stat()
            seen.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            seen.append(None)
    return tuple(seen)


def _load(settings: TlsSettings) -> tuple[ssl.SSLContext, datetime]:
    """Read the files. Raises OSError, ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # No resumption in TLS 1.3: a resumed session would not prove its certificate again, and
    # Kafka's connections are long. The tickets of TLS 1.2 end with the context.
    context.num_tickets = 0
    try:
        context.set_ciphers(settings.ciphers)
    except ssl.SSLError as e:
        raise ValueError(f"ssl.ciphers = {settings.ciphers!r}: no such cipher") from e
    certificate = settings.certificate.read_bytes()
    try:
        # Without a password function, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(settings.certificate, settings.key, password=_no_password)
    except (ssl.SSLError, ValueError) as e:
        reason = getattr(e, "reason", None) or e
        raise ValueError(f"{settings.certificate} with {settings.key}: {reason}") from e
    if settings.authorities is not None:
        try:
            context.load_verify_locations(settings.authorities)
        except ssl.SSLError as e:
            raise ValueError(f"{settings.authorities}: {e.reason or e}") from e
    context.verify_mode = _VERIFY[settings.client_auth]
    return context, x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _no_password() -> str:
    raise ValueError("the key is encrypted")
