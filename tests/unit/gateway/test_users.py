"""Users of an org, by Kafka's requests."""

from __future__ import annotations

import pytest

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import alter_user_scram_credentials, describe_user_scram_credentials
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.unit.gateway.sasl.users import credential, learn, user
from tests.unit.gateway.test_declared_order import served


def set_(
    name: str, mechanism: int = 1, iterations: int = 4_096, salt: bytes = b"salt", size: int = 32
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=bytes(size),
    )


def remove(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def altered(
    context: RequestContext, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    response = await alter_user_scram_credentials.handle(request, context)
    return {each.user: each.error_code for each in response.results}


NONE, TWICE, MISSING = ErrorCode.NONE, ErrorCode.DUPLICATE_RESOURCE, ErrorCode.RESOURCE_NOT_FOUND
BAD, UNKNOWN = ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ([set_("a", 2, 16_384, size=64), set_("b")], {"a": NONE, "b": NONE}),
        ([set_("a"), set_("a", 2, size=64), set_("b")], {"a": TWICE, "b": NONE}),
        ([set_("a"), set_("a")], {"a": TWICE}),
        ([remove("old"), set_("old")], {"old": TWICE}),
        ([remove("old"), set_("old", 2, size=64)], {"old": TWICE}),
        ([remove("old"), remove("a"), remove("old", 2)], {"old": TWICE, "a": MISSING}),
        ([remove("a"), set_("a")], {"a": MISSING}),
        ([set_(""), set_("a", 0), set_("b", 3)], {"": BAD, "a": UNKNOWN, "b": UNKNOWN}),
        ([set_("a", 1, 4_095), set_("b", 1, 16_385), set_("c")], {"a": BAD, "b": BAD, "c": NONE}),
        ([set_("a", salt=b""), set_("b", size=31), set_("c", 2)], {"a": BAD, "b": BAD, "c": BAD}),
        ([set_("a", 3), set_("a")], {"a": UNKNOWN}),
    ],
)
async def test_changes(
    changes: list[ScramCredentialUpsertion | ScramCredentialDeletion], codes: dict[str, int]
) -> None:
    async with served() as (client, context):
        org = context.tenant.org_id
        learn(context.services.directory, user("old", credential("x"), org=org), restart=True)
        await altered(context, set_("old"))
        client.called.clear()
        assert await altered(context, *changes) == codes
        assert bool(client.called) == (NONE in codes.values())


async def test_users_are_described() -> None:
    async with served() as (_, context):
        org = context.tenant.org_id
        directory = context.services.directory
        both = user(
            "a", credential("x", "SCRAM-SHA-512"), credential("x", iterations=5_000), org=org
        )
        other = user("b", credential("x"), org=org + 1)
        learn(directory, both, other, restart=True)

        async def described(*names: str) -> dict[str, object]:
            request = DescribeUserScramCredentialsRequest(users=[UserName(name=n) for n in names])
            response = await describe_user_scram_credentials.handle(request, context)
            return {
                each.user: each.error_code
                or [(info.mechanism, info.iterations) for info in each.credential_infos]
                for each in response.results
            }

        known = [(1, 5_000), (2, 4_096)]
        assert await described() == {"a": known}
        assert await described("a", "b") == {"a": known, "b": MISSING}
        assert await described("a", "a") == {"a": TWICE}
