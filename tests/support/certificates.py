"""A certificate authority for tests, and the certificates of servers and clients."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quafka_loop import clock

_DAY = timedelta(days=1)


class Authority:
    """Signs certificates. `file`: its own certificate, as PEM."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key(), 365 * _DAY)
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        own = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: tuple[str, ...] = (),
        days: float = 30,
        password: str = "",
        attributes: tuple[tuple[x509.ObjectIdentifier, str], ...] = (),
    ) -> Path:
        """A PEM file with a key and its certificate: of a server, or of a client without hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        parts += [x509.NameAttribute(kind, value) for kind, value in attributes]
        builder = _builder(x509.Name(parts), self._name, key.public_key(), days * _DAY)
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        # Python 3.13 requires it, as RFC 5280 does.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        sealed: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            sealed = serialization.BestAvailableEncryption(password.encode())
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        path.chmod(0o600)
        return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = clock.utc_now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
