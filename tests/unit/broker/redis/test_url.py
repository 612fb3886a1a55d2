"""The topic config `quafka.source`: what it may name, and what is never in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.sources.redis.fields import Format
from quafka_broker.sources.redis.url import (
    RedisSource,
    Server,
    parse_source,
    read_auth,
)
from quafka_broker.sources.source import BadSourceError


def test_a_source_names_server_database_and_stream() -> None:
    source = parse_source("redis://cache.example:7000/3?stream=orders")
    assert source == RedisSource(Server(("cache.example:7000",), 3), "orders")
    assert source.key(0) == b"orders"


def test_defaults_are_port_6379_and_database_0() -> None:
    assert parse_source("redis://Cache?stream=a").server == Server(("cache:6379",), 0)
    assert parse_source("rediss://[::1]/?stream=a").server == Server(("[::1]:6379",), 0, tls=True)


def test_each_partition_has_a_stream_of_its_own() -> None:
    source = parse_source("redis://a?stream=orders:{p}&bits=14&format=raw&replicas=1")
    assert (source.key(0), source.key(12)) == (b"orders:0", b"orders:12")
    assert (source.bits, source.format, source.replicas) == (14, Format.RAW, 1)
    source.check_partitions(10)
    with pytest.raises(BadSourceError, match=r"stream=orders:\{p\}"):
        parse_source("redis://a?stream=orders").check_partitions(2)


def test_replicated_servers_have_several_addresses() -> None:
    assert parse_source("redis://a:1,b,a:1/?stream=s").server.addresses == ("a:1", "b:6379")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://a?stream=s", "does not begin"),
        ("redis://a", "names no stream"),
        ("redis://a?stream=", "names no stream"),
        ("redis://a?stream=s%0a", "printable"),
        ("redis://a?stream=" + "s" * 600, "printable"),
        ("redis://?stream=s", "host:port"),
        ("redis://a:0?stream=s", "host:port"),
        ("redis://a:99999?stream=s", "host:port"),
        ("redis://a b?stream=s", "host:port"),
        ("redis://a,?stream=s", "host:port"),
        ("redis://" + ",".join(f"h{i}" for i in range(9)) + "?stream=s", "more than 8"),
        ("redis://[::1?stream=s", "no URL"),
        ("redis://a/x?stream=s", "database"),
        ("redis://a/-1?stream=s", "database"),
        ("redis://a/99999?stream=s", "database"),
        ("redis://a?stream=s&stream=t", "twice"),
        ("redis://a?stream=s&max=1", "unknown option 'max'"),
        ("redis://a?stream", "NAME=VALUE"),
        ("redis://a?stream=s#x", "fragment"),
        ("redis://a?stream=s&format=xml", "auto, json or raw"),
        ("redis://a?stream=s&bits=9", "10 to 20"),
        ("redis://a?stream=s&bits=21", "10 to 20"),
        ("redis://a?stream=s&replicas=x", "0 to 16"),
        ("redis://a?stream=s&auth=hunter2", "auth is not"),
        ("redis://a?stream=s&auth=file:../../etc/shadow", "auth is not"),
        ("redis://a?stream=s&auth=file:/etc/shadow", "auth is not"),
        ("redis://a?stream=s&auth=file:..", "auth is not"),
        ("redis://a?stream=s&auth=env:AWS_SECRET_ACCESS_KEY", "auth is not"),
        ("redis://user:hunter2@a?stream=s", "not secret"),
        ("redis://:hunter2@a?stream=s", "not secret"),
    ],
)
def test_bad_sources_are_refused_without_a_secret(text: str, reason: str) -> None:
    with pytest.raises(BadSourceError, match=reason) as error:
        parse_source(text)
    assert "hunter2" not in str(error.value)


def test_user_and_password_come_from_a_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "both").write_text("reader:pass:word\n")
    (tmp_path / "password").write_text("secret")
    assert read_auth("", None) == (None, None)
    assert read_auth("file:both", tmp_path) == ("reader", "pass:word")
    assert read_auth("file:password", tmp_path) == (None, "secret")
    assert read_auth("env:QUAFKA_REDIS_A", None, {"QUAFKA_REDIS_A": ":x"}) == (None, "x")
    for reference, folder in (("file:missing", tmp_path), ("file:both", None), ("env:X", None)):
        with pytest.raises(BadSourceError):
            read_auth(reference, folder, {})
