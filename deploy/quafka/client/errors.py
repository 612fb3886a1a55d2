"""What can go wrong, each as one sentence that says what to do about it."""

from __future__ import annotations

from quafka_proto.errors import ErrorCode

E = ErrorCode


class ClientError(Exception):
    """What was asked for cannot be had; the message is one sentence."""


class UnreachableError(ClientError):
    """No connection, or no answer."""


class NotKafkaError(ClientError):
    """Something answers, but not as Kafka does."""


class UnsupportedError(ClientError):
    """The server does not have an API."""


class RefusedError(ClientError):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


_SENTENCES: dict[int, str] = {
    E.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition (`quafka topics list`)",
    E.UNKNOWN_TOPIC_ID: "there is no such topic (`quafka topics list`)",
    E.TOPIC_ALREADY_EXISTS: "a topic of that name exists already",
    E.INVALID_TOPIC_EXCEPTION: (
        "topic names have up to 249 letters, digits, dots, underscores and hyphens"
    ),
    E.GROUP_ID_NOT_FOUND: "there is no such group (`quafka groups list`)",
    E.INVALID_GROUP_ID: "that is no name for a group",
    E.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    E.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    E.REBALANCE_IN_PROGRESS: "the group is rebalancing; stop its consumers first",
    E.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read that topic; stop them first",
    E.OFFSET_OUT_OF_RANGE: "the partition does not have that offset",
    E.POLICY_VIOLATION: "the server's policy does not allow it",
    E.NOT_COORDINATOR: "the broker behind the gateway is away; try again, or `quafka doctor`",
    E.COORDINATOR_NOT_AVAILABLE: "no broker answers for the group now; try again in a moment",
    E.NOT_LEADER_OR_FOLLOWER: "the partition's broker is away; try again, or `quafka doctor`",
    E.REQUEST_TIMED_OUT: "the broker did not answer in time; look whether it was done, try again",
    E.KAFKA_STORAGE_ERROR: "the broker cannot use its disk; its log says why",
    E.TOPIC_AUTHORIZATION_FAILED: "not allowed for this client",
    E.GROUP_AUTHORIZATION_FAILED: "not allowed for this client",
    E.CLUSTER_AUTHORIZATION_FAILED: "not allowed for this client",
}


def sentence(code: int, message: str | None = None) -> str:
    """An error of the server in words: its own, where it has said any."""
    return message or _SENTENCES.get(code) or f"the server answers {E.name_of(code)}"


def about(what: str, text: str) -> str:
    """The text, with what it is about in front unless it says so."""
    return text if what.casefold() in text.casefold() else f"{what}: {text}"


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise RefusedError for an error code; `what` it concerns stands in front."""
    if code:
        raise RefusedError(code, about(what, sentence(code, message)))
