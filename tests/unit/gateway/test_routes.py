"""The route table: how rules are written, and which broker serves a topic."""

from __future__ import annotations

import pytest

from quafka_gateway.cluster.routes import OrgRoutes, parse, to_one

TABLE = parse("2/* = b:9192, logs.*=c:9192,  7/log?=[::1]:9, x = b:9192, * = a:9192")


@pytest.mark.parametrize(
    ("org", "topic", "broker"),
    [
        (1, "orders", "a:9192"),
        (1, "logs.web", "c:9192"),
        (1, "logs", "a:9192"),
        (1, "logsXweb", "a:9192"),
        (1, "x", "b:9192"),
        (1, "xx", "a:9192"),
        (1, "log1", "a:9192"),
        (7, "log1", "[::1]:9"),
        (7, "log12", "a:9192"),
        (7, "log\n", "[::1]:9"),
        (2, "logs.web", "b:9192"),
        (2, "x\ny", "b:9192"),
    ],
)
def test_the_first_rule_that_matches_counts(org: int, topic: str, broker: str) -> None:
    routes = OrgRoutes(TABLE, org)
    for _ in range(2):
        assert routes.brokers[routes.broker_of(topic)] == broker


def test_an_org_has_only_the_brokers_that_its_rules_name() -> None:
    assert OrgRoutes(TABLE, 1).brokers == ("c:9192", "b:9192", "a:9192")
    assert OrgRoutes(TABLE, 2).brokers == ("b:9192",)
    assert OrgRoutes(TABLE, 2).home == 0
    assert OrgRoutes(TABLE, 1).home == 2


def test_one_broker_is_a_table_of_one_rule() -> None:
    routes = OrgRoutes(to_one("a:1"), 3)
    assert (routes.brokers, routes.home, routes.broker_of("any")) == (("a:1",), 0, 0)


def test_an_empty_text_has_no_rules() -> None:
    assert parse("") == ()


def test_a_table_is_written_as_it_is_read() -> None:
    assert parse(",".join(map(str, TABLE))) == TABLE


@pytest.mark.parametrize(
    "text",
    [
        "a:9192",
        "*",
        "logs.*=c:9192",
        "*=a:1, logs.*=c:9192",
        "*=a:1, *=b:1",
        "1/*=a:1",
        "0/x=a:1, *=a:1",
        "4294967296/x=a:1, *=a:1",
        "a/x=a:1, *=a:1",
        "a b=a:1, *=a:1",
        "[x]=a:1, *=a:1",
        "*=a",
        "*=a:99999",
        "=a:1, *=a:1",
    ],
)
def test_a_text_that_is_not_a_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)
