"""How a connection is protected: TLS, and the client's credentials."""

from __future__ import annotations

import os
import ssl
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from quafka_client.errors import ClientError
from quafka_client.sasl import Credentials


class ClientProtocol(StrEnum):
    """Kafka's security.protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypted(self) -> bool:
        """Whether it is TLS."""
        return self in (ClientProtocol.SSL, ClientProtocol.SASL_SSL)

    @property
    def logs_in(self) -> bool:
        """Whether the client logs in."""
        return self in (ClientProtocol.SASL_PLAINTEXT, ClientProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key: the path of a file, or the text itself."""

    path: str = ""
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server is verified, and the client's certificate.

    Attributes:
        authorities: trusted to sign the server's certificate; None: those of this machine.
        certificate, key: the client's; the certificate's file may also contain the key.
        checks_name: whether the server's certificate must match the host name.
        least, most: TLS versions.
    """

    authorities: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str = field(default="", repr=False)
    checks_name: bool = True
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    def context(self) -> ssl.SSLContext:
        """The SSL context for asyncio.

        Raises:
            ClientError: a file cannot be read, or is not PEM.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version, context.maximum_version = self.least, self.most
        context.check_hostname = self.checks_name
        self._load_authorities(context)
        if self.certificate is not None:
            self._load_certificate(context, self.certificate)
        return context

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        if self.authorities is None:
            context.load_default_certs()
            return
        try:
            if self.authorities.text:
                context.load_verify_locations(cadata=self.authorities.text)
            else:
                context.load_verify_locations(self.authorities.path)
        except (OSError, ValueError) as e:  # ssl.SSLError is an OSError
            what = self.authorities.path or "in the configuration"
            raise ClientError(f"the certificate authorities {what}: {_reason(e)}") from e

    def _load_certificate(self, context: ssl.SSLContext, certificate: Pem) -> None:
        with ExitStack() as files:
            try:
                chain = _as_file(certificate, files)
                key = None if self.key is None else _as_file(self.key, files)
                # Without a password OpenSSL would ask on the terminal.
                context.load_cert_chain(chain, key, lambda: self.key_password)
            except (OSError, ValueError) as e:
                what = (self.key or certificate).path or "in the configuration"
                raise ClientError(
                    f"the client's certificate or key {what}: {_reason(e)}; both must be PEM, and "
                    "ssl.key.password opens an encrypted key"
                ) from e


def _as_file(pem: Pem, files: ExitStack) -> str:
    """A path to the PEM; a text is put into a file in memory."""
    if not pem.text:
        return pem.path
    fd = os.memfd_create("pem", os.MFD_CLOEXEC)
    files.callback(os.close, fd)
    os.write(fd, pem.text.encode())
    return f"/proc/self/fd/{fd}"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "not PEM, or not of one pair" if error.reason else "not PEM"
    return getattr(error, "strerror", None) or str(error)


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """TLS and credentials: `credentials` if the protocol logs in, `tls` if it is encrypted."""

    protocol: ClientProtocol = ClientProtocol.PLAINTEXT
    tls: Tls | None = None
    credentials: Credentials | None = None
    context: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, protocol: ClientProtocol, tls: Tls | None, credentials: Credentials | None
    ) -> ClientSecurity:
        """Load what TLS needs, once. Raises ClientError."""
        tls = (tls or Tls()) if protocol.encrypted else None
        return cls(
            protocol,
            tls,
            credentials if protocol.logs_in else None,
            None if tls is None else tls.context(),
        )


NONE = ClientSecurity()
"""No TLS and no credentials: PLAINTEXT."""
