"""Logins as a client: SCRAM by RFC 7677's example, hostile servers, PLAIN, OAUTHBEARER."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_client.sasl import Credentials, Login, SaslError, Token
from quafka_client.scram import ScramClient, ScramError, salted_password

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_example_of_the_rfc() -> None:
    scram = client()
    assert scram.first() == FIRST
    assert scram.final(SERVER_FIRST) == FINAL
    scram.verify(SERVER_FINAL)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"v=" + b"A" * 43 + b"=", "signature is wrong"),
        (b"", "malformed"),
        (b"v=", "signature is wrong"),
        (b"e=invalid-proof", "refuses the login: invalid-proof"),
        (b"v=!", "malformed"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_found_out(message: bytes, why: str) -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    with pytest.raises(ScramError, match=why):
        scram.verify(message)


def test_a_server_that_skips_the_proof_is_found_out() -> None:
    with pytest.raises(ScramError, match="signature is wrong"):
        client().verify(b"v=")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not belong"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not belong"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096", "does not belong"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=1", "asks for 1 SCRAM iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4000000", "asks for 4000000"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=" + b"9" * 5000, "iterations is malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=-1", "iterations is malformed"),
        (b"m=x,r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4096", "unknown SCRAM extension"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,r=y,s=AAAA,i=4096", "malformed"),
        (b"\xff", "not UTF-8"),
        (b"x", "malformed"),
    ],
)
def test_hostile_first_messages_cost_nothing(message: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        client().final(message)


@given(st.binary(max_size=200))
def test_any_message_is_refused_in_words(message: bytes) -> None:
    for step in (client().final, client().verify):
        with pytest.raises(ScramError):
            step(message)


def test_names_are_escaped_and_passwords_are_not_shown() -> None:
    scram = ScramClient("SCRAM-SHA-512", "a,b=c", "hidden", "n")
    assert scram.first() == b"n,,n=a=2Cb=3Dc,r=n"
    assert "hidden" not in repr(scram)
    assert "hidden" not in repr(Credentials("PLAIN", "u", "hidden"))
    assert len(salted_password("SCRAM-SHA-512", "ü", b"salt", 4096)) == 64


def drive(login: Login, *answers: bytes) -> list[bytes]:
    sent = [next(login)]
    for answer in answers:
        try:
            sent.append(login.send(answer))
        except StopIteration:
            break
    return sent


def test_plain() -> None:
    assert drive(Credentials("PLAIN", "ü", "p w").login(), b"") == ["\0ü\0p w".encode()]
    with pytest.raises(SaslError, match="NUL"):
        drive(Credentials("PLAIN", "u\0v", "p").login())


def bearer(value: str) -> Login:
    return Credentials("OAUTHBEARER", token=lambda: Token(value, 0)).login()


def test_bearer() -> None:
    first = b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert drive(bearer("a.b.c"), b"") == [first]
    refused = bearer("a.b.c")
    assert drive(refused, b'{"status":"invalid_token"}') == [first, b"\x01"]
    with pytest.raises(SaslError, match="refuses the token: invalid_token"):
        refused.send(b"")
    for value in ("", "a b", "a\x01b", "ü"):
        with pytest.raises(SaslError, match="malformed"):
            next(bearer(value))
