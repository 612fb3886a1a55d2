"""The topic config `quafka.source` of a Redis stream, and the secret that it names.

    redis://host:port[,host:port]/db?stream=NAME

Several addresses belong to one replicated server, whose master is used. A topic config is visible
to all users that may describe the topic, so it has no secret: `auth` names a file or a variable of
the broker. `grants.py` decides what the topics of an org may name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from quafka_broker.config.redis_grants import (
    LONGEST_NAME,
    VARIABLE_PREFIX,
    is_db,
    is_secret,
    is_stream,
)
from quafka_broker.sources.redis.entry_ids import SEQUENCE_BITS
from quafka_broker.sources.redis.fields import Format
from quafka_broker.sources.source import BadSourceError
from quafka_mesh_ops.settings import join_address, split_address

SCHEMES = ("redis", "rediss")
_PORT = 6379
_NUMBER = "{p}"
_MOST_ADDRESSES = 8
_LONGEST_SECRET = 4_096
ALLOWED = (
    "redis://host:port/db?stream=NAME, or rediss:// for TLS; several host:port with commas; "
    "stream=NAME:{p} for several partitions; auth=file:NAME or env:QUAFKA_REDIS_NAME; "
    "format=auto, json, raw; bits=10 to 20; replicas=0 to 16"
)


@dataclass(frozen=True, slots=True)
class Server:
    """One Redis server: topics with equal values share its connections.

    Attributes:
        addresses: "host:port" each.
        auth: the reference to user and password; "" for none.
    """

    addresses: tuple[str, ...]
    db: int = 0
    tls: bool = False
    auth: str = ""

    @property
    def name(self) -> str:
        """The server's name for logs, metrics and pages."""
        scheme = "rediss" if self.tls else "redis"
        reference = f"?auth={self.auth}" if self.auth else ""
        return f"{scheme}://{','.join(self.addresses)}/{self.db}{reference}"


@dataclass(frozen=True, slots=True)
class RedisSource:
    """The source of a topic's partitions.

    Attributes:
        stream: the name of the stream, with {p} for the partition's number.
        bits: the number of an offset's bits for the sequence.
        replicas: the number of replicas that must confirm a produce.
    """

    server: Server
    stream: str
    format: Format = Format.AUTO
    bits: int = SEQUENCE_BITS
    replicas: int = 0

    def key(self, partition: int) -> bytes:
        """The key of a partition's stream."""
        return self.stream.replace(_NUMBER, str(partition)).encode()

    def check_partitions(self, partitions: int) -> None:
        """Raise BadSourceError unless each partition has its own stream."""
        if partitions > 1 and _NUMBER not in self.stream:
            raise BadSourceError(
                f"{partitions} partitions of one stream: write stream={self.stream}:{_NUMBER}, "
                f"then each partition has a stream of its own"
            )


def is_redis(text: str) -> bool:
    """Whether a source is a Redis stream."""
    return text.partition("://")[0] in SCHEMES


@lru_cache(maxsize=1_024)
def parse_source(text: str) -> RedisSource:
    """The source that a topic config names.

    Raises:
        BadSourceError: the first error.
    """
    try:
        url = urlsplit(text)
    except ValueError as e:
        raise BadSourceError("it is no URL") from e
    if url.scheme not in SCHEMES:
        raise BadSourceError("it does not begin with redis:// or rediss://")
    if "@" in url.netloc:
        raise BadSourceError(
            "a topic config is not secret: put user:password into a file or a variable of the "
            "broker, and write auth=file:NAME or auth=env:QUAFKA_REDIS_NAME"
        )
    if url.fragment:
        raise BadSourceError("it has a fragment (#)")
    options = _options(url.query)
    server = Server(
        _addresses(url.netloc),
        _db(url.path),
        url.scheme == "rediss",
        _auth(options.pop("auth", "")),
    )
    source = RedisSource(
        server,
        _stream(options.pop("stream", "")),
        _format(options.pop("format", Format.AUTO)),
        _whole("bits", options.pop("bits", str(SEQUENCE_BITS)), SEQUENCE_BITS, 20),
        _whole("replicas", options.pop("replicas", "0"), 0, 16),
    )
    if options:
        raise BadSourceError(f"unknown option {sorted(options)[0][:64]!r}")
    return source


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=16
        )
    except ValueError as e:
        raise BadSourceError("its options are not NAME=VALUE, separated by &") from e
    options = dict(pairs)
    if len(options) < len(pairs):
        raise BadSourceError("an option is there twice")
    return options


def _addresses(netloc: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in netloc.split(","):
        has_port = re.search(r":[0-9]+\Z", part, re.ASCII) is not None
        try:
            host, port = split_address(part if has_port else f"{part}:{_PORT}")
        except ValueError as e:
            raise BadSourceError("its address is not host:port") from e
        if not port or re.search(r"[\s/\\%]", host):
            raise BadSourceError("its address is not host:port")
        found.append(join_address(host.lower(), port))
    if len(found) > _MOST_ADDRESSES:
        raise BadSourceError(f"it has more than {_MOST_ADDRESSES} addresses")
    return tuple(dict.fromkeys(found))


def _db(path: str) -> int:
    text = path.removeprefix("/")
    if not text:
        return 0
    if not is_db(text):
        raise BadSourceError("its database is not a number")
    return int(text)


def _stream(name: str) -> str:
    if not name:
        raise BadSourceError("it names no stream: add ?stream=NAME")
    if not is_stream(name):
        raise BadSourceError(f"its stream is not 1 to {LONGEST_NAME} printable characters")
    return name


def _format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError as e:
        raise BadSourceError("its format is not auto, json or raw") from e


def _whole(name: str, text: str, low: int, high: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 4 and low <= int(text) <= high:
        return int(text)
    raise BadSourceError(f"{name} is not {low} to {high}")


def _auth(text: str) -> str:
    if not text or is_secret(text):
        return text
    raise BadSourceError(
        f"auth is not file:NAME, of a file in the broker's sources.redis.secrets, or "
        f"env:{VARIABLE_PREFIX}NAME"
    )


def read_auth(
    reference: str, folder: Path | None, variables: Mapping[str, str] = os.environ
) -> tuple[str | None, str | None]:
    """Read user and password of a reference, from "user:password" or "password".

    Raises:
        BadSourceError: there is no such file or variable.
    """
    if not reference:
        return None, None
    kind, _, name = reference.partition(":")
    if kind == "env":
        secret = variables.get(name)
        if not secret:
            raise BadSourceError(f"the broker has no variable {name}")
    else:
        if folder is None:
            raise BadSourceError("the broker has no folder of secrets: sources.redis.secrets")
        try:
            with (folder / name).open(encoding="utf-8") as file:
                secret = file.read(_LONGEST_SECRET).strip()
        except (OSError, UnicodeDecodeError) as e:
            raise BadSourceError(f"the secret {name!r} cannot be read: {type(e).__name__}") from e
    user, colon, password = secret.partition(":")
    return (user or None, password) if colon else (None, secret)
