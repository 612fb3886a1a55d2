"""First packets of unknown peers: their cost, and the proof of a sender's address."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from aioquic._buffer import Buffer
from aioquic.buffer import encode_uint_var
from aioquic.quic.packet import QuicPacketType, encode_quic_retry, pull_quic_header
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.transport.admission import (
    ANSWERS_AT_ONCE,
    KNOWN_SECONDS,
    MAX_KNOWN,
    MAX_PROVEN,
    MAX_PROVEN_OF_ADDRESS,
    MAX_UNPROVEN,
    UNPROVEN_A_SECOND,
    UNPROVEN_AT_ONCE,
    Bucket,
    SlotAdmission,
    SlotKind,
    host_of,
)
from quafka_mesh_ops.transport.initial import (
    Initial,
    OtherVersion,
    destination_of,
    read_initial,
)
from quafka_mesh_ops.transport.retry import KEY_SECONDS, TOKEN_SECONDS, RetryTokens
from quafka_mesh_ops.transport.strangers import Strangers, Welcome
from tests.support.quic_flood import client_hello, garbage

HERE, THERE = ("192.0.2.1", 5), ("192.0.2.2", 5)
NOW = 1_000_000_000.0 // KEY_SECONDS * KEY_SECONDS  # a key begins
ORIGINAL, SOURCE = b"original", b"source--"


@dataclass(frozen=True)
class Retried:
    """The fields of a Retry that a client reads."""

    cid: bytes
    token: bytes


def read_retry(packet: bytes) -> Retried:
    header = pull_quic_header(Buffer(data=packet), host_cid_length=8)
    assert header.packet_type == QuicPacketType.RETRY
    assert header.destination_cid == SOURCE
    return Retried(header.source_cid, header.token)


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [HERE, ("2001:db8::1", 9, 0, 0), ("fe80::1%lo", 9, 0, 1)])
def test_a_retry_is_what_stock_quic_makes_of_the_same_token(address: tuple[object, ...]) -> None:
    tokens = RetryTokens(b"secret")
    packet = tokens.retry(address, ORIGINAL, SOURCE, NOW)
    got = read_retry(packet)
    expected = encode_quic_retry(1, got.cid, SOURCE, ORIGINAL, got.token)
    assert packet[1:-16] == expected[1:-16]  # but for the unused bits, which the tag covers
    assert expected[0] >> 4 == packet[0] >> 4
    assert tokens.original_cid(got.token, address, got.cid, NOW) == ORIGINAL


def test_a_token_is_for_one_address_one_connection_and_a_short_time() -> None:
    tokens = RetryTokens(b"secret")
    got = read_retry(tokens.retry(HERE, ORIGINAL, SOURCE, NOW))

    def check(
        token: bytes = got.token,
        address: tuple[str, int] = HERE,
        cid: bytes = got.cid,
        now: float = NOW,
        by: RetryTokens = tokens,
    ) -> bytes | None:
        return by.original_cid(token, address, cid, now)

    assert check() == check(now=NOW + TOKEN_SECONDS) == ORIGINAL
    assert check(by=RetryTokens(b"secret")) == ORIGINAL  # the broker was restarted
    assert check(by=RetryTokens(b"other")) is None
    assert check(address=THERE) is None
    assert check(address=(HERE[0], 6)) is None
    assert check(cid=got.cid[::-1]) is None
    assert check(now=NOW + TOKEN_SECONDS + 1) is None
    assert check(now=NOW - TOKEN_SECONDS - 1) is None
    for at in range(len(got.token)):
        assert check(got.token[:at]) is None
        flipped = bytearray(got.token)
        flipped[at] ^= 1
        assert check(bytes(flipped)) is None
    assert check(got.token + b"\0") is None


def test_keys_change_and_a_token_outlives_the_change() -> None:
    tokens = RetryTokens(b"secret")
    last = NOW + KEY_SECONDS - 1
    got = [read_retry(tokens.retry(HERE, ORIGINAL, SOURCE, at)) for at in (last, last + 2)]
    assert all(tokens.original_cid(one.token, HERE, one.cid, last + 3) for one in got)
    assert len(tokens._keys) == 2
    for later in range(10):
        tokens.retry(HERE, ORIGINAL, SOURCE, NOW + later * KEY_SECONDS)
    assert len(tokens._keys) <= 3


# --- headers ------------------------------------------------------------------------------------


def initial(dcid: bytes, scid: bytes, token: bytes, version: int = 1, size: int = 1200) -> bytes:
    head = b"\xc0" + version.to_bytes(4, "big") + bytes([len(dcid)]) + dcid
    head += bytes([len(scid)]) + scid + encode_uint_var(len(token)) + token
    length = size - len(head) - 2
    return head + (length | 0x4000).to_bytes(2, "big") + bytes(length)


@given(st.binary(min_size=8, max_size=20), st.binary(max_size=20), st.binary(max_size=200))
def test_headers_are_read_as_stock_quic_reads_them(dcid: bytes, scid: bytes, token: bytes) -> None:
    data = initial(dcid, scid, token)
    header = pull_quic_header(Buffer(data=data), host_cid_length=8)
    assert read_initial(data) == Initial(dcid, scid, token)
    assert (header.destination_cid, header.source_cid, header.token) == (dcid, scid, token)
    assert destination_of(data) == dcid


@given(st.binary(max_size=60), st.sampled_from([0, 1140, 1300]))
def test_no_bytes_make_the_reader_fail(head: bytes, more: int) -> None:
    for first in (head, b"\xc0\x00\x00\x00\x01" + head, b"\xc0\x00\x00\x00\x01\x08" + head):
        data = first + bytes(more)
        if data:
            destination_of(data)
        found = read_initial(data)
        if isinstance(found, Initial):
            header = pull_quic_header(Buffer(data=data), host_cid_length=8)
            assert header.packet_type == QuicPacketType.INITIAL
            assert tuple(found) == (header.destination_cid, header.source_cid, header.token)


def test_what_may_not_be_answered() -> None:
    good = initial(ORIGINAL, SOURCE, b"")
    assert read_initial(good)
    assert read_initial(good[:1199]) is None
    assert read_initial(initial(ORIGINAL, SOURCE, b"", version=0)) is None
    assert read_initial(initial(b"7 bytes", SOURCE, b"")) is None
    assert read_initial(b"\xd0" + good[1:]) is None  # 0-RTT
    assert read_initial(b"\x80" + good[1:]) is None  # without the fixed bit
    assert isinstance(read_initial(initial(ORIGINAL, SOURCE, b"", version=2)), OtherVersion)


# --- slots --------------------------------------------------------------------------------------


def test_a_bucket_gives_so_many_at_once_and_so_many_a_second() -> None:
    bucket = Bucket(2.0, 5.0)
    assert [bucket.spend(10.0) for _ in range(6)] == [True] * 5 + [False]
    assert [bucket.spend(11.0) for _ in range(3)] == [True, True, False]
    assert [bucket.spend(99.0) for _ in range(6)] == [True] * 5 + [False]


def test_senders_that_prove_nothing_have_few_slots_and_so_many_a_second() -> None:
    slots = SlotAdmission()
    held = [slots.admit(b"a", proven=False, now=0.0) for _ in range(MAX_UNPROVEN + 1)]
    assert held == [SlotKind.UNPROVEN] * MAX_UNPROVEN + [None]
    turns = 0
    slots.release(SlotKind.UNPROVEN, b"a")
    while slots.admit(b"a", proven=False, now=0.0):
        slots.release(SlotKind.UNPROVEN, b"a")
        turns += 1
    assert turns == UNPROVEN_AT_ONCE - MAX_UNPROVEN
    assert slots.admit(b"a", proven=False, now=2 / UNPROVEN_A_SECOND)


def test_no_kind_of_sender_takes_the_slots_of_another() -> None:
    slots = SlotAdmission()
    slots.remember(b"gateway", 0.0)
    while slots.admit(b"forged", proven=False, now=0.0):
        pass
    many = [slots.admit(b"one", proven=True, now=0.0) for _ in range(MAX_PROVEN_OF_ADDRESS + 1)]
    assert many == [SlotKind.PROVEN] * MAX_PROVEN_OF_ADDRESS + [None]
    others = 0
    while slots.admit(b"host %d" % others, proven=True, now=0.0):
        others += 1
    assert others == MAX_PROVEN - MAX_PROVEN_OF_ADDRESS
    assert slots.admit(b"new", proven=True, now=0.0) is None
    known = [slots.admit(b"gateway", proven=True, now=0.0) for _ in range(MAX_KNOWN + 1)]
    assert known == [SlotKind.KNOWN] * MAX_KNOWN + [None]
    assert slots.handshakes == MAX_UNPROVEN + MAX_PROVEN + MAX_KNOWN
    slots.release(SlotKind.PROVEN, b"one")
    assert slots.admit(b"one", proven=True, now=0.0) is SlotKind.PROVEN
    assert slots.admit(b"gateway", proven=False, now=0.0) is None  # possibly forged


def test_a_sender_has_not_as_many_addresses_as_its_network_has() -> None:
    assert host_of(("192.0.2.1", 5)) == host_of(("::ffff:192.0.2.1", 5, 0, 0))
    assert host_of(("192.0.2.1", 5)) != host_of(("::ffff:192.0.2.2", 5, 0, 0))
    assert host_of(("2001:db8::1", 5, 0, 0)) == host_of(("2001:db8::ffff:2", 5, 0, 0))
    assert host_of(("2001:db8::1", 5, 0, 0)) != host_of(("2001:db8:0:1::1", 5, 0, 0))
    assert host_of(("fe80::1%lo", 5, 0, 1)) == host_of(("fe80::2", 5, 0, 1))


def test_an_address_is_known_for_a_while_and_so_many_are() -> None:
    slots = SlotAdmission()
    slots.remember(b"gateway", 0.0)
    assert slots.admit(b"gateway", proven=True, now=KNOWN_SECONDS - 1) is SlotKind.KNOWN
    assert slots.admit(b"gateway", proven=True, now=KNOWN_SECONDS) is SlotKind.PROVEN
    for number in range(2_000):
        slots.remember(b"%d" % number, KNOWN_SECONDS)
    assert len(slots._known) == 1_024
    assert slots.admit(b"1999", proven=True, now=KNOWN_SECONDS) is SlotKind.KNOWN


# --- all of it ----------------------------------------------------------------------------------


def test_under_pressure_a_sender_gets_a_retry_and_then_a_slot() -> None:
    strangers = Strangers(b"secret")

    def arrive(data: bytes, address: tuple[str, int] = HERE, now: float = 0.0) -> object:
        return strangers.arrived(data, address, now, NOW + now)

    first = arrive(client_hello())
    assert isinstance(first, Welcome)
    assert first.retry_cid is None
    assert first.cid == first.original_cid
    while isinstance(arrive(garbage()), Welcome):
        pass
    retry = arrive(initial(ORIGINAL, SOURCE, b""))
    assert isinstance(retry, bytes)
    assert len(retry) < 200  # of 1,200 received: a forged sender gains no amplification
    got = read_retry(retry)
    again = initial(got.cid, SOURCE, got.token)
    assert arrive(again) == Welcome(got.cid, ORIGINAL, got.cid, SlotKind.PROVEN)
    strangers.admission.remember(host_of(HERE), 0.0)
    assert arrive(again) == Welcome(got.cid, ORIGINAL, got.cid, SlotKind.KNOWN)
    assert arrive(again, THERE) is None
    assert arrive(again, now=TOKEN_SECONDS + 2) is None
    assert strangers.outcomes["bad_token"] == 2
    from_elsewhere = initial(ORIGINAL, SOURCE, b"\xff" * 40)
    assert isinstance(arrive(from_elsewhere), bytes)  # as without a token


def test_answers_are_bounded_but_for_known_addresses() -> None:
    strangers = Strangers(b"secret")
    strangers.admission.remember(host_of(HERE), 0.0)
    answered = 0
    for _ in range(int(ANSWERS_AT_ONCE) + 100):
        answered += strangers.arrived(garbage(), THERE, 0.0, NOW) is not None
    assert answered == ANSWERS_AT_ONCE + MAX_UNPROVEN
    assert strangers.outcomes["dropped"] == 100 - MAX_UNPROVEN
    assert isinstance(strangers.arrived(garbage(), HERE, 0.0, NOW), bytes)
    other = initial(ORIGINAL, SOURCE, b"", version=0x6B3343CF)
    assert strangers.arrived(other, THERE, 0.0, NOW) is None
    negotiation = strangers.arrived(other, HERE, 0.0, NOW)
    assert isinstance(negotiation, bytes)
    header = pull_quic_header(Buffer(data=negotiation), host_cid_length=8)
    assert (header.packet_type, header.supported_versions) == (
        QuicPacketType.VERSION_NEGOTIATION, [1],
    )  # fmt: skip
