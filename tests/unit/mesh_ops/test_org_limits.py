"""The limits of an org: names, numbers, and what each may be."""

from __future__ import annotations

from math import inf, nan

import pytest

from quafka_mesh_ops.ops.codec import from_wire, to_wire
from quafka_mesh_ops.org_limits import LimitName, limit_of, limit_problem
from quafka_proto.schema.quafka import OrgLimit


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("max.partitions", 0, ""),
        ("max.partitions", 1.5, "whole"),
        ("max.partitions", -1, "0 or more"),
        ("max.stored.bytes", float(1 << 50), ""),
        ("producer.byte.rate", 0.5, ""),
        ("producer.byte.rate", 0.0, "above 0"),
        ("producer.byte.rate", inf, "finite"),
        ("request.percentage", nan, "finite"),
        ("max.cats", 1, "no limit"),
    ],
)
def test_what_a_limit_may_be(name: str, value: float, problem: str) -> None:
    found = limit_problem([OrgLimit(name, value)])
    assert problem in found
    assert bool(problem) == bool(found)


def test_a_limit_occurs_once_and_is_found_by_name() -> None:
    once = [OrgLimit(LimitName.TOPICS, 3), OrgLimit(LimitName.GROUPS, 4)]
    assert "twice" in limit_problem(once * 2)
    assert limit_of(once, LimitName.GROUPS) == 4
    assert limit_of(once, LimitName.CONNECTIONS) is None


def test_a_whole_number_arrives_as_a_float() -> None:
    found = from_wire(OrgLimit, to_wire(OrgLimit("max.topics", 3)))
    assert found == OrgLimit("max.topics", 3.0)
    assert type(found.value) is float
