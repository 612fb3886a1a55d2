"""The identity of a node: an Ed25519 key, whose public half peers know.

A node id is the raw public key in hex. The certificate for TLS is made from the key on demand. It
is short-lived and self-signed, and binds only the key. A peer is trusted because its key is on our
allow-list and TLS has proven that the peer holds the key.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from quafka_loop import file_modes
from quafka_mesh_ops.errors import PeerRefusedError
from quafka_mesh_ops.node_ids import NodeId
from quafka_telemetry.startup import StartupError

if TYPE_CHECKING:
    from cryptography import x509

CERTIFICATE_LIFETIME = timedelta(hours=24)
CLOCK_SKEW = timedelta(hours=12)
"""The most that a peer's clock may lag behind ours: certificates are backdated by this much.

A key that is known can sign any dates, so short ones would only cost a node with a wrong clock its
peers: a broker of an object store would have shards that nobody reaches.
"""

REVOKED = "this node was taken off the allow-list"
"""The reason that is sent to a revoked peer when its connection is closed."""


class Identity:
    """This node's key. The private half leaves the object only into TLS."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.node_id: NodeId = _node_id(key.public_key())
        self._certificate: x509.Certificate | None = None

    @classmethod
    def create(cls, path: Path) -> Identity:
        """Create an identity, stored in this file (mode 0600).

        Raises:
            StartupError: the file exists, or cannot be created.
        """
        try:
            if path.exists() or not _create(path):
                raise StartupError(f"{path} already holds a node key; it was not changed")
        except OSError as e:
            raise StartupError(f"cannot create the node key {path}: {e.strerror}") from e
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> Identity:
        """Load the identity in this file.

        Raises:
            StartupError: as `load_or_create`, or the file is missing.
        """
        try:
            return cls(_load(path))
        except OSError as e:
            raise StartupError(f"cannot read the node key {path}: {e.strerror}") from e

    @classmethod
    def load_or_create(cls, path: Path) -> Identity:
        """Load the identity in this file (PKCS #8, PEM); create the file (mode 0600) if missing.

        A crash while the file is created leaves either no file or a complete one.

        Raises:
            StartupError: the file cannot be read or created, other users may read it, or it is
                not an Ed25519 key.
        """
        try:
            if not path.exists():
                _create(path)
            return cls(_load(path))
        except OSError as e:
            raise StartupError(f"cannot read or create the node key {path}: {e.strerror}") from e

    def certificate(self, now: datetime) -> tuple[x509.Certificate, Ed25519PrivateKey]:
        """Return a certificate that peers accept for the next hours.

        It is valid from at least half of `CLOCK_SKEW` before `now` (UTC), also if this node's clock
        was set back, until at least half of the lifetime after it.
        """
        certificate = self._certificate
        if (
            certificate is None
            or now - CLOCK_SKEW / 2 < certificate.not_valid_before_utc
            or now + CERTIFICATE_LIFETIME / 2 > certificate.not_valid_after_utc
        ):
            certificate = self._certificate = make_certificate(
                self._key, now - CLOCK_SKEW, now + CERTIFICATE_LIFETIME
            )
        return certificate, self._key

    def secret(self, purpose: str) -> bytes:
        """Derive 32 secret bytes from the key, always the same for one purpose."""
        raw = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        return hmac.digest(raw, purpose.encode(), "sha256")


def make_certificate(
    key: Ed25519PrivateKey, not_before: datetime, not_after: datetime
) -> x509.Certificate:
    """Make a self-signed certificate that binds only the key."""
    # Imported here, because `quafka up` needs no certificates, and it delays both programs.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"quafka {_node_id(key.public_key())[:16]}")]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .sign(key, None)
    )


def verify_peer(
    certificate: x509.Certificate | None, now: datetime, allowed: Collection[NodeId]
) -> NodeId:
    """Return the node id in the certificate of an allowed peer.

    TLS proves that the peer holds the key (CertificateVerify, RFC 8446 section 4.4.3).

    Raises:
        PeerRefusedError: no certificate; not an Ed25519 key; not signed by that key; not yet or
            no longer valid; not on the allow-list. The text up to the first colon is the reason
            and does not depend on the peer.
    """
    if certificate is None:
        raise PeerRefusedError("it presented no certificate")
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as e:
        raise PeerRefusedError("its certificate's key cannot be read") from e
    if not isinstance(key, Ed25519PublicKey):
        raise PeerRefusedError("its certificate's key is not an Ed25519 key")
    node_id = _node_id(key)
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature) as e:
        raise PeerRefusedError(f"its certificate is not signed by its own key: {node_id}") from e
    if now < certificate.not_valid_before_utc:
        raise PeerRefusedError(f"its certificate is not valid yet (compare the clocks): {node_id}")
    if now > certificate.not_valid_after_utc:
        raise PeerRefusedError(f"its certificate has expired (compare the clocks): {node_id}")
    if node_id not in allowed:
        raise PeerRefusedError(f"its node id is not on the allow-list: {node_id}")
    return node_id


def _node_id(key: Ed25519PublicKey) -> NodeId:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _load(path: Path) -> Ed25519PrivateKey:
    """Read the key file. Raises OSError, StartupError."""
    with path.open("rb") as file:
        # fstat of the open file: the mode belongs to the content that is read.
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        pem = file.read(16_384)
    if file_modes.open_to_others(path, mode):
        raise StartupError(
            f"other users may read the node key {path} (mode {mode:04o}): "
            "run chmod 600 on it, or delete it to get a new node id"
        )
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise StartupError(f"the node key {path} is not an unencrypted PEM private key") from e
    if not isinstance(key, Ed25519PrivateKey):
        raise StartupError(f"the node key {path} is not an Ed25519 key")
    return key


def _create(path: Path) -> bool:
    """Write a new key; False: the file exists and was not changed."""
    file_modes.make_folders(path.parent)
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    with _written_beside(path, pem, 0o600) as temporary:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False  # another process was faster; the node uses its key
    _sync_directory(path.parent)
    return True


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file durably and atomically: no reader sees half of it.

    The file keeps its owner and group if this process may set them, as root may.

    Raises:
        OSError: it cannot be written; the old file is still there.
    """
    with _written_beside(path, content, mode) as temporary:
        with suppress(FileNotFoundError, PermissionError):
            before = path.stat()
            os.chown(temporary, before.st_uid, before.st_gid)
        temporary.rename(path)
    _sync_directory(path.parent)


@contextmanager
def _written_beside(path: Path, content: bytes, mode: int) -> Generator[Path]:
    """Write a synced file in the same folder; it is removed at the end unless it was renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    # The file must never be readable by other users, not even for a moment.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = file_modes.open_descriptor(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
