"""Handlers and ops loop over what a client has sent in slices of the event loop only.

The names of all arrays of requests and of all lists of ops are known from their declarations. A
loop over an attribute of such a name must be a generator's (which `in_slices` or `listed` runs),
or give turns by itself. Those that may be short stand in a table, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import quafka_broker.ops
import quafka_gateway.handlers
from quafka_gateway.api import APIS
from quafka_mesh_ops.ops.base import AnyStruct
from quafka_mesh_ops.ops.forms import form_of, is_struct
from quafka_mesh_ops.ops.table import OPS
from quafka_proto.message import Struct

_CONSUMERS = {
    "Counter", "all", "any", "dict", "extend", "frozenset", "join", "list", "max", "min", "next",
    "set", "sorted", "sum", "tuple", "update",
}  # fmt: skip
_TURNS = ("slices.done(", "slices.turn(")
_BATCHED = "a few at a time"
_CHEAP = "less than a fifth of a microsecond each"
BOUNDED = {
    ("add_partitions_to_txn", "handle", "range(0, len(request.transactions), _AT_A_TIME)"):
        _BATCHED,
    ("write_txn_markers", "handle", "range(0, len(request.markers), _AT_A_TIME)"): _BATCHED,
    ("branches", "finish", "range(0, len(op.transactions), _AT_ONCE)"): _BATCHED,
    ("shares", "_acknowledge", "range(0, len(op.partitions), _AT_ONCE)"): _BATCHED,
    ("shares", "_acquired", "target.batches"): "at most MOST_BATCHES",
    ("alter_org", "_limits", "request.limits"): "at most _MOST_LIMITS",
    ("client_context", "context_of_produce", "request.topic_data"): "returns at the first",
    ("client_context", "context_of_produce", "topic.partition_data"): "returns at the first",
    ("create_topics", "_assignment_fault", "topic.assignments"): "max.partitions.per.request",
    ("config_changes", "_refusal", "resource.configs"): "at most _MOST_CHANGES",
    ("create_topics", "_configs", "answer.configs or []"): "the configs that exist",
    ("configs", "describe_broker",
     "described_settings.describe(state.configs.dynamic.static, LogSettings)"): "the settings",
    ("describe_configs", "handle", "request.resources"): "at most _MOST_RESOURCES",
    ("describe_configs", "_groups", "request.resources"): "at most _MOST_RESOURCES",
    ("describe_log_dirs", "_result", "zip(topic.partitions, topic.sizes, strict=True)"):
        "max.partitions.per.topic; a turn after each topic",
    ("describe_transactions", "_state", "found.topics or ()"): "transaction.max.partitions",
    ("transactions", "_described", "found.partitions.items()"): "transaction.max.partitions",
    ("transactions", "_described", "found.elsewhere"): "transaction.max.partitions",
    ("transactions", "_unknown_brokers", "op.elsewhere"): "the brokers of a cluster",
    ("metadata", "encode", "found.topics"): _CHEAP,
    ("offset_commit", "_is_long", "request.topics"): "at most _MANY",
    ("produce", "handle", "request.topic_data"): _CHEAP,
    ("produce", "_is_unready", "request.topic_data"): _CHEAP,
    ("produce", "_invalid", "request.topic_data"): _CHEAP,
    ("produce", "_invalid", "topic.partition_data"): _CHEAP,
    ("produce", "_batches", "self._op.partitions"): _CHEAP,
    ("produce", "_describe", "op.partitions"): _CHEAP,
    ("produce", "_join", "zip(self._op.partitions, verdicts, strict=True)"): _CHEAP,
    ("fetch", "_produced_by", "batches.offsets(MAX_LINKS)"): "at most MAX_LINKS",
    ("group_admin", "list_groups", "state.groups.groups(context.org_id)"): _CHEAP,
}  # fmt: skip
"""Module, function and loop: why it takes no turns."""


def _array_names(owner: type[Struct], known: set[type[Struct]]) -> Iterator[str]:
    if owner in known:
        return
    known.add(owner)
    for name, one in owner.FIELDS.items():
        inner = one.element if one.kind == "array" else one
        if one.kind == "array":
            yield name
        if inner.kind == "struct":
            yield from _array_names(inner.element, known)


def _list_names(owner: type[AnyStruct], known: set[type[AnyStruct]]) -> Iterator[str]:
    if owner in known:
        return
    known.add(owner)
    for name, hint in zip(form_of(owner).names, form_of(owner).hints, strict=True):
        for each in (hint, *get_args(hint)):
            if get_origin(each) is not list:
                continue
            yield name
            (item,) = get_args(each)
            if is_struct(item):
                yield from _list_names(item, known)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function but not in the functions within it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _loops(function: ast.AST) -> Iterator[ast.expr]:
    """What a function loops over at once."""
    nodes = list(_own_nodes(function))
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        return  # its caller decides
    for node in nodes:
        if isinstance(node, ast.For):
            if not any(turn in ast.unparse(node) for turn in _TURNS):
                yield node.iter
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
            yield from (each.iter for each in node.generators)
        elif isinstance(node, ast.Call) and _name(node.func) in _CONSUMERS:
            for argument in node.args:
                if isinstance(argument, ast.GeneratorExp):
                    yield from (each.iter for each in argument.generators)
                elif isinstance(argument, ast.Call) and _name(argument.func) in ("map", "zip"):
                    yield argument


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _found(folder: Path, names: set[str]) -> Iterator[tuple[str, str, str]]:
    for path in sorted(folder.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for loop in _loops(function):
                parts = ast.walk(loop)
                if any(isinstance(each, ast.Attribute) and each.attr in names for each in parts):
                    yield path.stem, function.name, ast.unparse(loop)


def test_no_handler_loops_over_a_clients_list_at_once() -> None:
    known: set[type[Struct]] = set()
    names = {name for api in APIS.values() for name in _array_names(api.request, known)}
    assert {"topics", "partitions", "partition_indexes"} <= names
    found = set(_found(Path(quafka_gateway.handlers.__path__[0]), names))
    known_ops: set[type[AnyStruct]] = set()
    names = {name for op in OPS.values() for name in _list_names(op, known_ops)}
    assert {"topics", "offsets", "groups"} <= names
    found |= set(_found(Path(quafka_broker.ops.__path__[0]), names))
    assert found == set(BOUNDED)
