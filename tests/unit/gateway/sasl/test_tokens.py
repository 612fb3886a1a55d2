"""Tokens, their keys, and the messages that carry them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey
from joserfc.jws import JWSRegistry

from quafka_gateway.sasl_settings import parse_keys_url
from quafka_gateway.security.sasl import key_set, tokens
from quafka_gateway.security.sasl.key_set import KeySetError, KeySetSource, parse_keys, read_keys
from quafka_gateway.security.sasl.mechanism import Account, AuthenticationError
from quafka_gateway.security.sasl.oauthbearer import OAuthBearerServer, parse_message
from quafka_gateway.security.sasl.token_rules import TokenRules, UnknownKeyError
from quafka_loop import clock
from quafka_telemetry.startup import StartupError
from tests.support.virtual.hub import EPOCH
from tests.unit.gateway.sasl.tokens import Issuer

ISSUER = Issuer()
DAY = 86_400
"""Seconds: parameters are made when the tests are collected, minutes before they run."""
RULES = TokenRules(("kafka", "logs"), "us", org_claim="org")


def check(token: str, rules: TokenRules = RULES) -> tuple[str, str]:
    found = tokens.check(rules, token, ISSUER.keys, clock.time())
    return found.name, found.org


def test_a_valid_token() -> None:
    assert check(ISSUER.token(org="acme")) == ("alice", "acme")
    assert check(ISSUER.token(org="acme", aud=["x", "logs"])) == ("alice", "acme")
    assert check(ISSUER.token(name="al"), TokenRules(("kafka",), name_claim="name")) == ("al", "")


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "PS512"])
def test_algorithms_with_public_keys(algorithm: str) -> None:
    assert check(ISSUER.token({"alg": algorithm}, org="acme")) == ("alice", "acme")


def test_elliptic_curves() -> None:
    issuer = Issuer("two", "EC")
    token = issuer.token()
    assert tokens.check(TokenRules(("kafka",)), token, issuer.keys, clock.time()).name == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None}, {"exp": EPOCH - 60}, {"exp": "soon"}, {"exp": float("inf")},
        {"exp": True}, {"nbf": EPOCH + DAY}, {"iat": EPOCH + DAY}, {"aud": None},
        {"aud": "other"}, {"aud": {"kafka": 1}}, {"aud": [1]}, {"iss": None}, {"iss": "them"},
        {"iss": ["us"]}, {"sub": None}, {"sub": ""}, {"sub": 5}, {"sub": "a" * 256},
        {"sub": "a\0b"}, {"org": None}, {"org": 7},
    ],
)  # fmt: skip
def test_claims_that_do_not_do(claims: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError):
        check(ISSUER.token(**{"org": "acme", **claims}))


def test_clocks_may_differ() -> None:
    assert check(ISSUER.token(org="acme", exp=clock.time() - 20, iat=clock.time() + 20))


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _forged() -> dict[str, str]:
    claims = {"sub": "alice", "aud": "kafka", "iss": "us", "org": "acme", "exp": clock.time() + 60}
    public = json.dumps(ISSUER.public)
    # HS256 with the public key as its secret, of which the library rightly warns.
    key = OctKey.import_key(public)
    header = {"alg": "HS256", "kid": "one"}
    return {
        "none": f"{_segment({'alg': 'none'})}.{_segment(claims)}.",
        "none with a kid": f"{_segment({'alg': 'none', 'kid': 'one'})}.{_segment(claims)}.",
        "public key as secret": jwt.encode(header, claims, key, algorithms=["HS256"]),
        "signature cut": ISSUER.token(org="acme")[:-8],
        "claims swapped": ".".join(
            (ISSUER.token().split(".")[0], _segment(claims), ISSUER.token().split(".")[2])
        ),
        "key in the token": Issuer().token({"jwk": ISSUER.public}, org="acme"),
        "crit": ISSUER.token(org="acme").replace(
            ISSUER.token().split(".")[0],
            _segment({"alg": "RS256", "kid": "one", "crit": ["x"], "x": 1}),
        ),
        "nested": base64.urlsafe_b64encode(b"[" * 40_000).decode() + ".e30.AA",
        "alg a list": f"{_segment({'alg': ['RS256'], 'kid': 'one'})}.{_segment(claims)}.AA",
        "kid a map": f"{_segment({'alg': 'RS256', 'kid': {}})}.{_segment(claims)}.AA",
        "encrypted": "a.b.c.d.e",
        "nothing": "",
        "dots": "." * 60_000,
        "not ASCII": "ü.e30.AA",
        "claims a list": f"{_segment({'alg': 'RS256', 'kid': 'one'})}.{_segment([1])}.AA",
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_forged_tokens() -> None:
    for name, token in _forged().items():
        with pytest.raises(AuthenticationError):
            assert check(token) is None, name


def test_an_unknown_key_is_an_error_of_its_own() -> None:
    new = Issuer("new")
    for header in ({"kid": "new"}, {}):
        with pytest.raises(UnknownKeyError):
            check(_signed(new, header))


def test_a_header_may_have_parameters_of_the_issuer() -> None:
    header = {"pi.atm": "5", "nonce": "n", "x5c": ["MII" * 800], "typ": "at+jwt"}
    assert check(_signed(ISSUER, header | {"kid": "one"})) == ("alice", "acme")


def _signed(issuer: Issuer, header: dict[str, Any]) -> str:
    claims = {"sub": "alice", "aud": "kafka", "iss": "us", "org": "acme", "exp": clock.time() + 60}
    registry = JWSRegistry(algorithms=[issuer.algorithm], strict_check_header=False)
    registry.max_header_length = 1 << 20
    return jwt.encode({"alg": issuer.algorithm, **header}, claims, issuer.key, registry=registry)


def test_tokens_and_keys_without_a_kid() -> None:
    issuers = [Issuer("a"), Issuer("b"), Issuer("c", "EC")]
    every = KeySet([key for issuer in issuers for key in issuer.keys])
    unnamed = parse_keys("file:/x", json.dumps({"keys": [
        {name: value for name, value in issuer.public.items() if name != "kid"}
        for issuer in issuers
    ]}).encode())  # fmt: skip
    now = clock.time()
    for issuer in issuers:
        assert tokens.check(RULES, _signed(issuer, {}), every, now).name == "alice"
        for header in ({}, {"kid": issuer.kid}):
            assert tokens.check(RULES, _signed(issuer, header), unnamed, now).name == "alice"
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        tokens.check(RULES, _signed(issuers[0], {"kid": "b"}), every, now)
    encrypting = parse_keys("file:/x", json.dumps({"keys": [
        issuers[0].public | {"use": "enc"}, issuers[1].public | {"alg": "PS256"},
    ]}).encode())  # fmt: skip
    for issuer in issuers[:2]:
        with pytest.raises(AuthenticationError):
            tokens.check(RULES, _signed(issuer, {}), encrypting, now)


# --- keys -----------------------------------------------------------------------------------


def test_only_public_keys_for_signatures_are_taken() -> None:
    private = dict(ISSUER.key.as_dict(private=True))
    shared = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "shared"}
    told = {"keys": [shared, {"kty": "RSA"}, 5, private]}
    found = parse_keys("file:/x", json.dumps(told).encode())
    assert [each.kid for each in found.keys] == ["one"]
    assert not found.keys[0].is_private


@pytest.mark.parametrize("data", [b"", b"[]", b'{"keys":[]}', b'{"keys":5}', b"[" * 100_000])
def test_what_is_no_set_of_keys(data: bytes) -> None:
    with pytest.raises(KeySetError):
        parse_keys("file:/x", data)


@pytest.mark.parametrize(
    "url", ["http://h/k", "ftp://h/k", "https:///k", "https://u:p@h/k", "file://h/k", "/k", "file:"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ValueError):
        parse_keys_url(url)


async def test_a_file_of_keys_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "_LEAST_PAUSE", 0.0)
    path = tmp_path / "keys.json"
    url = path.as_uri()
    with pytest.raises(StartupError):
        await KeySetSource(url, 60.0).start()
    path.write_bytes(ISSUER.jwks)
    source = KeySetSource(url, 60.0)
    await source.start()
    try:
        path.write_bytes(Issuer("next").jwks)
        assert await source.wait_newer(5.0)
        assert [each.kid for each in source.keys.keys] == ["next"]
        path.write_bytes(b"garbage")
        assert not await source.wait_newer(5.0)
        assert [each.kid for each in source.keys.keys] == ["next"]
        path.write_bytes(Issuer("last").jwks)
        assert await source.refresh()
        assert [each.kid for each in source.keys.keys] == ["last"]
    finally:
        await source.close()


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b" " * (2 << 20))
    with pytest.raises(KeySetError, match="more than"):
        read_keys(path.as_uri())


# --- messages -------------------------------------------------------------------------------


def test_the_clients_message() -> None:
    message = b"n,a=a=2Cb,\x01auth=Bearer abc.d-e_f~g+h/i==\x01traceId=12 3\x01\x01"
    assert parse_message(message) == ("a,b", "abc.d-e_f~g+h/i==", {"traceId": "12 3"})


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n,,", b"n,,\x01", b"n,,\x01\x01", b"n,,\x01auth=Bearer a\x01", b"y,,\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01x=1\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", b"n,,\x01auth=Bearer a\x011=1\x01\x01",
        b"n,,\x01auth=Bearer a\x01x=\x00\x01\x01", b"n,,\x01auth=Bearer a\x01\x01\x01",
        b"n,,\xff\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01%s\x01" % b"".join(b"x" * n + b"=1\x01" for n in range(1, 40)),
    ],
)  # fmt: skip
def test_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        parse_message(message)


def _checks(valid: str) -> Callable[[str], Any]:
    async def account_of(token: str) -> Account:
        if token != valid:
            raise AuthenticationError("the token has expired")
        return Account(1, "alice", expires_at=9e9)

    return account_of


async def test_an_exchange() -> None:
    for scheme in (b"BEARER", b"Bearer"):  # in any case, as in Kafka
        message = b"n,,\x01auth=%s good\x01\x01" % scheme
        reply = await OAuthBearerServer(_checks("good")).evaluate(message)
        assert reply.account == Account(1, "alice", expires_at=9e9)


@pytest.mark.parametrize(
    "message", [b"n,,\x01auth=Bearer bad\x01\x01", b"n,a=bob,\x01auth=Bearer good\x01\x01"]
)
async def test_a_refusal_has_two_steps(message: bytes) -> None:
    server = OAuthBearerServer(_checks("good"))
    reply = await server.evaluate(message)
    assert json.loads(reply.token) == {"status": "invalid_token"}
    assert reply.account is None
    with pytest.raises(AuthenticationError) as refused:
        await server.evaluate(b"\x01")
    assert "invalid_token" in refused.value.told
    with pytest.raises(AuthenticationError):
        await server.evaluate(b"n,,\x01auth=Bearer good\x01\x01")
