"""The client's errors. Each message is one sentence; after "; " it names a remedy."""

from __future__ import annotations

from quafka_proto.errors import ErrorCode

E = ErrorCode


class ClientError(Exception):
    """A request failed; the message is one sentence."""


class UnreachableError(ClientError):
    """No connection, or no answer."""


class NotKafkaError(ClientError):
    """The server answers, but not in Kafka's protocol."""


class UnsupportedError(ClientError):
    """The server does not have an API."""


class LoginError(ClientError):
    """The login failed: a wrong password, token, certificate or mechanism."""


class RequestRefusedError(ClientError):
    """The server answered with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


_SENTENCES: dict[int, str] = {
    E.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition (`quafka topics list`)",
    E.UNKNOWN_TOPIC_ID: "no such topic (`quafka topics list`)",
    E.TOPIC_ALREADY_EXISTS: "a topic of that name exists already",
    E.INVALID_TOPIC_EXCEPTION: (
        "topic names have up to 249 letters, digits, dots, underscores and hyphens"
    ),
    E.GROUP_ID_NOT_FOUND: "no such group (`quafka groups list`)",
    E.INVALID_GROUP_ID: "not a valid group name",
    E.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    E.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    E.REBALANCE_IN_PROGRESS: "the group is rebalancing; stop its consumers first",
    E.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read that topic; stop them first",
    E.OFFSET_OUT_OF_RANGE: "the partition does not have that offset",
    E.POLICY_VIOLATION: "the server's policy forbids it",
    E.NOT_COORDINATOR: "its broker is unavailable; try again, or run `quafka doctor`",
    E.COORDINATOR_NOT_AVAILABLE: "its broker is unavailable; try again in a moment",
    E.TRANSACTIONAL_ID_NOT_FOUND: "no such transactional id (`quafka transactions list`)",
    E.CONCURRENT_TRANSACTIONS: "its transaction is still ending; try again in a moment",
    E.INVALID_PRODUCER_EPOCH: "the producer has moved on: the transaction has ended meanwhile",
    E.INVALID_TXN_STATE: "its transaction is in another state",
    E.NOT_LEADER_OR_FOLLOWER: (
        "the partition's broker is unavailable; try again, or run `quafka doctor`"
    ),
    E.REQUEST_TIMED_OUT: (
        "the broker did not answer in time, so the outcome is unknown; check it, then try again"
    ),
    E.KAFKA_STORAGE_ERROR: "the broker cannot write to its disk; read the broker's log",
    E.TOPIC_AUTHORIZATION_FAILED: "not allowed for this client",
    E.GROUP_AUTHORIZATION_FAILED: "not allowed for this client",
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed for this client",
    E.CLUSTER_AUTHORIZATION_FAILED: "not allowed for this client",
}


def sentence(code: int, message: str | None = None) -> str:
    """A server's error in words: the server's own message if it has sent one."""
    return message or _SENTENCES.get(code) or f"the server answered {E.name_of(code)}"


def about(what: str, text: str) -> str:
    """The text, preceded by its subject unless the text contains the subject."""
    return text if what.casefold() in text.casefold() else f"{what}: {text}"


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise RequestRefusedError for an error code; the message begins with its subject, `what`."""
    if code:
        raise RequestRefusedError(code, about(what, sentence(code, message)))
