"""Every op and answer, as commit f0e293f encoded it: read and written as the same bytes today.

`recorded_ops.json` holds four frames for each op code: request and answer, each with all fields
set and with only the required ones. Later ops are there as their first version encoded them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import msgpack  # type: ignore[import-untyped]
import pytest

from quafka_mesh_ops.envelopes import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    encode_response,
)
from quafka_mesh_ops.frames import FrameReader
from quafka_mesh_ops.ops.admin import ActiveProducer, DescribeProducersOpsResp
from quafka_mesh_ops.ops.base import AnyStruct, Buffer
from quafka_mesh_ops.ops.branches import (
    FinishTransactions,
    JoinTransaction,
    ResolveTransactions,
)
from quafka_mesh_ops.ops.cluster import LookAtShards
from quafka_mesh_ops.ops.codec import from_wire
from quafka_mesh_ops.ops.forms import form_of, is_struct
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffsets,
    CommitOffsetsResp,
    CommittedOffsets,
)
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp
from quafka_mesh_ops.ops.probe import ProbeResp
from quafka_mesh_ops.ops.records import (
    AbortedByOffset,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.security import WatchSecurity, WatchSecurityResp
from quafka_mesh_ops.ops.share_groups import CreateShareGroup
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.ops.transactions import AddOffsets, AddPartitions, CommitTxnOffsets

APPENDED: dict[type[AnyStruct], dict[str, object]] = {
    FetchOps: {"places": 0, "objects": False},
    FetchOpResp: {"places": None},
    AbortedByOffset: {"last_offset": -1},
    ProduceOpResp: {"prompt": False},
    ProduceOpsResp: {"check_us": 0, "commit_us": 0},
    CommitOffsetsResp: {"commit_us": 0},
    ProduceOps: {"transactional_id": "", "implicit": False, "connection": b"", "home": ""},
    AddPartitions: {"elsewhere": None},
    Heartbeat: {"others": None},
    LookAtShards: {"offered": None},
    CreateShareGroup: {"topics": None},
    HeartbeatResp: {"others": None},
    CommitOffsets: {"knows_member_epochs": False},
    CommittedOffsets: {"require_stable": False, "member_id": None, "member_epoch": -1},
    ActiveProducer: {"transaction_start": -1},
    AddOffsets: {"elsewhere": ""},
    CommitTxnOffsets: {"home": ""},
    JoinTransaction: {"by": "", "group": ""},
    FinishTransactions: {"by": ""},
    ResolveTransactions: {"by": ""},
    WatchSecurity: {"wants_secret": False},
    WatchSecurityResp: {"secret": b""},
    ProbeResp: {
        "open_transactions": 0,
        "oldest_transaction_ms": -1,
        "overdue_transaction_ms": 0,
        "servers": None,
        "unfinished_transactions": 0,
        "unfinished_transaction_ms": 0,
    },
}
"""Fields that were appended later, with the values that older peers imply."""
RECORDED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "recorded_ops.json").read_text()
)


def full(hint: Any, numbers: Iterator[int]) -> Any:
    """The value of a type with every field set; the recorded frames were made by this rule."""
    if is_struct(hint):
        form, later = form_of(hint), APPENDED.get(hint, {})
        declared = zip(form.names, form.hints, strict=True)
        return hint(**{name: full(its, numbers) for name, its in declared if name not in later})
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return [full(item, numbers) for _ in range(2)]
    number = next(numbers)
    if hint in (Buffer, bytes):
        return b"bytes %d" % number
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return list(hint)[number % len(hint)]
    simple: dict[type, object] = {
        str: f"text {number}", bool: number % 2 == 0, int: number * 37, float: number / 2,
    }  # fmt: skip
    if hint in simple:
        return simple[hint]
    (present,) = [arg for arg in get_args(hint) if arg is not type(None)]
    return full(present, numbers)


def test_every_recorded_op_has_a_type_today() -> None:
    assert {int(code): recorded["op"] for code, recorded in RECORDED.items()}.items() <= {
        code: op.__name__ for code, op in OPS.items()
    }.items()


def as_recorded(struct: AnyStruct) -> list[Any]:
    """The wire form without the fields that were appended later, which must be at their ends."""
    values: list[Any] = []
    later = APPENDED.get(type(struct), {})
    names = form_of(type(struct)).names
    assert names[len(names) - len(later) :] == tuple(later)
    for name in names[: len(names) - len(later)]:
        value = getattr(struct, name)
        if is_struct(type(value)):
            value = as_recorded(value)
        elif isinstance(value, list):
            value = [as_recorded(v) if is_struct(type(v)) else v for v in value]
        values.append(value)
    assert {name: getattr(struct, name) for name in later} == later
    return values


@pytest.mark.parametrize("code", RECORDED)
@pytest.mark.parametrize("which", ["full", "least"])
def test_requests_are_the_same_bytes(code: str, which: str) -> None:
    op_type = OPS[int(code)]
    frame = bytes.fromhex(RECORDED[code][f"{which} request"])
    ((_, payload),) = FrameReader().feed(frame)
    request = decode_request(payload)
    op = from_wire(op_type, request.body)
    envelope = 7, int(code), 1, "00-traceparent", "state", 5000
    found = request.request_id, request.op_code, request.org_id, request.traceparent
    assert (*found, request.tracestate, request.deadline_ms) == envelope
    if which == "full":
        assert op == full(op_type, itertools.count(1))
    body: list[Buffer] = [cast(bytes, msgpack.packb(as_recorded(op)))]
    assert b"".join(map(bytes, encode_request(*envelope, body))) == frame
    if op_type not in APPENDED:
        assert b"".join(encode_body(op)) == body[0]


@pytest.mark.parametrize("code", RECORDED)
@pytest.mark.parametrize("which", ["full", "least"])
def test_answers_are_the_same_bytes(code: str, which: str) -> None:
    answer_type = OPS[int(code)].response
    frame = bytes.fromhex(RECORDED[code][f"{which} answer"])
    ((_, payload),) = FrameReader().feed(frame)
    response = decode_response(payload)
    answer = from_wire(answer_type, response.body)
    assert (response.request_id, response.error_code) == (7, 0)
    if which == "full":
        assert answer == full(answer_type, itertools.count(1))
    body: list[Buffer] = [cast(bytes, msgpack.packb(as_recorded(answer)))]
    assert b"".join(map(bytes, encode_response(7, 0, body, "00-answer"))) == frame
    if answer_type not in (FetchOpsResp, ProduceOpsResp, DescribeProducersOpsResp, *APPENDED):
        assert b"".join(encode_body(answer)) == body[0]
