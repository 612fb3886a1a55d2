"""What error codes mean for the history: certainly not done, or unknown."""

from __future__ import annotations

from typing import Any

from quafka_proto.errors import ErrorCode as E
from tests.sim.clients.job import Job

DENIED = frozenset(
    {
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
MOVED = frozenset(
    {
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.REQUEST_TIMED_OUT,
        E.NOT_LEADER_OR_FOLLOWER,
        E.LEADER_NOT_AVAILABLE,
        E.KAFKA_STORAGE_ERROR,
        E.NETWORK_EXCEPTION,
        E.UNKNOWN_SERVER_ERROR,
        E.NOT_CONTROLLER,
        E.BROKER_NOT_AVAILABLE,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""The request may be carried out in spite of these; the client tries again."""
UNKNOWN_TOPIC = frozenset(
    {E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID}
)
NO_MEMBER = frozenset({E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.FENCED_INSTANCE_ID})


def name_of(code: int) -> str:
    """An error as the history has it."""
    return "denied" if code in DENIED else E.name_of(code)


def is_certain(code: int) -> bool:
    """Whether an error says that the request was not carried out and will not be."""
    return bool(code) and code not in MOVED


def refused(job: Job, call: int, code: int, **fields: Any) -> None:
    """End a call that was answered with an error."""
    end = job.history.fail if is_certain(code) else job.history.unknown
    end(call, name_of(code), **fields)
