"""Whatever frames a client sends, it is let in by a handshake and a valid proof, and never else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.security.sasl.authenticator import (
    Authenticator,
    LoginOffer,
    LoginState,
    Previous,
)
from quafka_gateway.security.sasl.plain import PlainServer
from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.metadata import MetadataRequest
from quafka_proto.schema.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.suites import examples
from tests.unit.gateway.sasl.users import accounts_of, credential, plain, user

RIGHT, WRONG = plain("alice", "secret"), plain("alice", "wrong")
ACCOUNTS = accounts_of(user("alice", credential("secret")), user("bob", credential("secret")))
S = LoginState


def _frame(request: Any, version: int) -> bytes:
    return b"".join(encode_request(1, "app", request, version))[4:]


async def _versions(header: object, request: object) -> Message:
    return ApiVersionsResponse()


async def _here(check: Callable[[], bool]) -> bool:
    return check()


OFFER = LoginOffer(
    {
        "PLAIN": partial(PlainServer, ACCOUNTS, _here),
        "OTHER": partial(PlainServer, ACCOUNTS, _here),
    },
    _versions,
    lambda account: None,
)
FRAMES = {
    "versions": _frame(ApiVersionsRequest(), 3),
    "handshake 0": _frame(SaslHandshakeRequest(mechanism="PLAIN"), 0),
    "handshake 1": _frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    "other mechanism": _frame(SaslHandshakeRequest(mechanism="OTHER"), 1),
    "unknown mechanism": _frame(SaslHandshakeRequest(mechanism="GSSAPI"), 1),
    "proof": _frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 2),
    "bob's proof": _frame(SaslAuthenticateRequest(auth_bytes=plain("bob", "secret")), 2),
    "wrong proof": _frame(SaslAuthenticateRequest(auth_bytes=WRONG), 0),
    "bare proof": RIGHT,
    "wrong bare proof": WRONG,
    "metadata": _frame(MetadataRequest(topics=None), 12),
    "cut short": _frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)[:-2],
    "nothing": b"",
}
GOES_ON = {
    (S.VERSIONS_OR_HANDSHAKE, "versions"): S.HANDSHAKE,
    (S.TOKENS, "proof"): S.COMPLETE,
    (S.TOKENS, "bob's proof"): S.COMPLETE,
    (S.BARE_TOKENS, "bare proof"): S.COMPLETE,
    **{
        (state, frame): after
        for state in (S.VERSIONS_OR_HANDSHAKE, S.HANDSHAKE)
        for frame, after in [
            ("handshake 0", S.BARE_TOKENS), ("handshake 1", S.TOKENS), ("other mechanism", S.TOKENS)
        ]
    },
}  # fmt: skip
"""What a state and a frame lead to; every other pair leads to the end."""


@examples(150)
@given(names=st.lists(st.sampled_from(sorted(FRAMES)), max_size=6), again=st.booleans())
def test_any_sequence_of_frames(names: list[str], again: bool) -> None:
    """`again`: a re-authentication of alice by PLAIN."""

    async def run() -> None:
        authenticator = Authenticator(OFFER, Previous("PLAIN", 1, "alice") if again else None)
        state = authenticator.state
        assert state is (S.HANDSHAKE if again else S.VERSIONS_OR_HANDSHAKE)
        mechanism = ""
        for name in names:
            expected = GOES_ON.get((state, name), S.FAILED)
            if expected in (S.TOKENS, S.BARE_TOKENS):
                mechanism = "OTHER" if name == "other mechanism" else "PLAIN"
            elif expected is S.COMPLETE and again:
                valid = mechanism == "PLAIN" and name in ("proof", "bare proof")
                expected = S.COMPLETE if valid else S.FAILED
            step = await authenticator.receive(FRAMES[name])
            assert authenticator.state is expected, (state, name)
            assert bool(step.failure) == (expected is S.FAILED)
            assert (step.account is not None) == (expected is S.COMPLETE)
            assert step.failure or step.response
            assert b"secret" not in step.failure.encode()
            state = expected

    asyncio.run(run())


@examples(100)
@given(frames=st.lists(st.binary(max_size=200), max_size=4), shaken=st.sampled_from(sorted(FRAMES)))
def test_noise_lets_nobody_in(frames: list[bytes], shaken: str) -> None:
    async def run() -> None:
        authenticator = Authenticator(OFFER)
        for frame in (FRAMES[shaken], *frames):
            step = await authenticator.receive(frame)
            assert step.account is None

    asyncio.run(run())
