"""A super user who grants and revokes users' rights on topics (KIP-140)."""

from __future__ import annotations

import asyncio
from itertools import product

from quafka_proto.acl_kinds import WILDCARD, Operation, Pattern, Permission, ResourceKind
from quafka_proto.schema.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from quafka_proto.schema.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from tests.sim.clients.answers import is_certain, name_of
from tests.sim.clients.job import Job, TopicPlan
from tests.sim.clients.wire import Link, LostError
from tests.support.sasl_users import upsertion

_OPERATIONS = {"read": Operation.READ, "write": Operation.WRITE}


class RightsAdministrator:
    """Changes one right after the other."""

    def __init__(self, job: Job, users: list[str], topics: list[TopicPlan]) -> None:
        self._job = job
        self._link = Link(job)
        self._rights = list(product(users, (topic.name for topic in topics), _OPERATIONS))

    async def run(self) -> None:
        """Work until cancelled: first revoke everything, so that the history knows all rights."""
        self._job.note("client", phase="start")
        random = self._job.random
        try:
            for user, topic, right in self._rights:
                while not await self._change(user, topic, right, allowed=random.random() < 0.5):
                    await self._link.back_off()
            while True:
                await asyncio.sleep(self._job.pause())
                user, topic, right = random.choice(self._rights)
                await self._change(user, topic, right, allowed=random.random() < 0.5)
        finally:
            self._job.note("client", phase="stop")
            self._link.leave()

    async def _change(self, user: str, topic: str, right: str, *, allowed: bool) -> bool:
        """Grant or revoke; whether it is done."""
        wire = await self._link.ready()
        call = self._job.call(
            "rights",
            principal=user,
            resource=f"topic:{topic}",
            right=right,
            allowed=allowed,
            gateway=wire.gateway,
        )
        try:
            if allowed:
                granted = await wire.call(_grant(user, topic, right), CreateAclsResponse)
                code = granted.results[0].error_code
            else:
                revoked = await wire.call(_revoke(user, topic, right), DeleteAclsResponse)
                code = revoked.filter_results[0].error_code
        except LostError as e:
            self._job.history.unknown(call, str(e))
            return False
        if not code:
            self._job.history.ok(call)
        elif is_certain(code):
            self._job.history.fail(call, name_of(code))
        else:
            self._job.history.unknown(call, name_of(code))
        return not code


def _grant(user: str, topic: str, right: str) -> CreateAclsRequest:
    rule = AclCreation(
        resource_type=ResourceKind.TOPIC,
        resource_name=topic,
        resource_pattern_type=Pattern.LITERAL,
        principal=f"User:{user}",
        host=WILDCARD,
        operation=_OPERATIONS[right],
        permission_type=Permission.ALLOW,
    )
    return CreateAclsRequest(creations=[rule])


def _revoke(user: str, topic: str, right: str) -> DeleteAclsRequest:
    rules = DeleteAclsFilter(
        resource_type_filter=ResourceKind.TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=Pattern.LITERAL,
        principal_filter=f"User:{user}",
        host_filter=WILDCARD,
        operation=_OPERATIONS[right],
        permission_type=Permission.ALLOW,
    )
    return DeleteAclsRequest(filters=[rules])


async def create_users(link: Link, users: dict[str, str]) -> int:
    """Give users their passwords; the first error. Raises LostError."""
    request = AlterUserScramCredentialsRequest(
        upsertions=[upsertion(name, password) for name, password in users.items()]
    )
    answer = await link.call(request, AlterUserScramCredentialsResponse)
    return next((each.error_code for each in answer.results if each.error_code), 0)
