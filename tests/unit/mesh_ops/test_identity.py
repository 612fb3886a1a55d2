"""Node keys on disk, certificates, and the check of peers."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from quafka_mesh_ops.errors import PeerRefusedError
from quafka_mesh_ops.identity import (
    CERTIFICATE_LIFETIME,
    CLOCK_SKEW,
    Identity,
    make_certificate,
    verify_peer,
)
from quafka_mesh_ops.node_ids import parse_node_id
from quafka_telemetry.startup import StartupError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "node.key"
    made = Identity.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load_or_create(path).node_id == made.node_id
    assert [p.name for p in path.parent.iterdir()] == ["node.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(StartupError, match=rf"mode {mode:04o}"):
        Identity.load_or_create(path)


def test_what_is_not_an_ed25519_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    other = ec.generate_private_key(ec.SECP256R1())
    for content, message in (
        (b"", "not an unencrypted PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not an unencrypted"),
        (other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), "not an Ed25519"),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(StartupError, match=message):
            Identity.load_or_create(path)


def test_a_folder_that_cannot_be_made_is_a_startup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartupError, match="node key"):
        Identity.load_or_create(tmp_path / "file" / "node.key")


def test_node_ids_are_read_forgivingly_but_exactly() -> None:
    node_id = Identity(Ed25519PrivateKey.generate()).node_id
    assert parse_node_id(f" {node_id.upper()}\n") == node_id
    for wrong in ("", node_id[:-1], node_id + "0", "g" * 64, "٣" * 64):
        with pytest.raises(ValueError, match="64 hex digits"):
            parse_node_id(wrong)


def test_a_certificate_is_renewed_at_half_its_life() -> None:
    identity = Identity(Ed25519PrivateKey.generate())
    first, _ = identity.certificate(NOW)
    before_half, _ = identity.certificate(NOW + CERTIFICATE_LIFETIME / 2 - HOUR)
    after_half, _ = identity.certificate(NOW + CERTIFICATE_LIFETIME / 2 + HOUR)
    assert before_half is first
    assert after_half.not_valid_after_utc > first.not_valid_after_utc


def test_a_node_whose_clock_was_set_back_makes_a_new_certificate() -> None:
    """A machine may start with a clock that is years ahead, until it has asked another one."""
    identity = Identity(Ed25519PrivateKey.generate())
    ahead, _ = identity.certificate(NOW)
    little_back, _ = identity.certificate(NOW - CLOCK_SKEW / 2 + HOUR)
    assert little_back is ahead
    for back in (CLOCK_SKEW / 2 + HOUR, 365 * 24 * HOUR):
        certificate, _ = identity.certificate(NOW - back)
        assert verify_peer(certificate, NOW - back, {identity.node_id}) == identity.node_id
        assert certificate.not_valid_before_utc == NOW - back - CLOCK_SKEW


def test_an_allowed_peer_is_known_by_its_key() -> None:
    identity = Identity(Ed25519PrivateKey.generate())
    certificate, _ = identity.certificate(NOW)
    assert verify_peer(certificate, NOW, {identity.node_id}) == identity.node_id


@pytest.mark.parametrize("hours", [-12, 12])
def test_clocks_may_differ_by_half_a_day(hours: int) -> None:
    """A broker of an object store serves with any clock: its peers must not refuse it."""
    identity = Identity(Ed25519PrivateKey.generate())
    certificate, _ = identity.certificate(NOW)
    assert verify_peer(certificate, NOW + hours * HOUR, {identity.node_id}) == identity.node_id


def test_peers_that_are_refused() -> None:
    key = Ed25519PrivateKey.generate()
    allowed = {Identity(key).node_id}
    good = make_certificate(key, NOW - HOUR, NOW + HOUR)
    stranger = make_certificate(Ed25519PrivateKey.generate(), NOW - HOUR, NOW + HOUR)
    cases: list[tuple[x509.Certificate | None, datetime, str]] = [
        (None, NOW, "presented no certificate"),
        (good, NOW + 2 * HOUR, "has expired"),
        (good, NOW - 2 * HOUR, "not valid yet"),
        (stranger, NOW, "not on the allow-list"),
        (_certificate_with_ec_key(), NOW, "not an Ed25519 key"),
        (_certificate_from_authority(key), NOW, "not signed by its own key"),
    ]
    for certificate, now, message in cases:
        with pytest.raises(PeerRefusedError, match=message):
            verify_peer(certificate, now, allowed)


def _builder() -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rogue")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .serial_number(1)
        .not_valid_before(NOW - HOUR)
        .not_valid_after(NOW + HOUR)
    )


def _certificate_with_ec_key() -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    return _builder().public_key(key.public_key()).sign(key, SHA256())


def _certificate_from_authority(key: Ed25519PrivateKey) -> x509.Certificate:
    return _builder().public_key(key.public_key()).sign(Ed25519PrivateKey.generate(), None)
