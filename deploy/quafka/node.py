"""`quafka node`: keys, node ids, and allow-list files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quafka_telemetry.startup import StartupError

if TYPE_CHECKING:
    from quafka_mesh_ops.grants import AllowListEntry
    from quafka_mesh_ops.node_ids import NodeId


WHAT = "create a node's key, print its id, edit an allow-list"


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of `quafka node`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, what in (
        ("init", "create a node's key and print its id; fails if the file exists"),
        ("id", "print the node id of a key file"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("path", type=Path, metavar="PATH", help="the key file")
    for name, what in (
        (
            "allow",
            "add a node to a mesh.allowed.file, or change its orgs and rights",
        ),
        ("revoke", "remove a node; programs that read the file close its connections"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("node_id", type=_node_id, metavar="NODE_ID", help="64 hex digits")
        action.add_argument(
            "--file", type=Path, required=True, metavar="F", help="the allow-list file"
        )
        if name == "allow":
            action.add_argument(
                "--org", action="append", type=_orgs, metavar="ORGS",
                help="orgs that the node may act for, e.g. 1,7-9; may be repeated; default: all",
            )  # fmt: skip
            action.add_argument(
                "--may", action="append", type=_rights, metavar="RIGHTS",
                help="rights of the node: serve, administer, snapshot, separated by commas; "
                "default: all of them, or serve,administer with --org",
            )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code: 1 if there was nothing to revoke.

    Raises:
        StartupError: the action failed; the message is one sentence.
    """
    from quafka_mesh_ops import allow_list
    from quafka_mesh_ops.identity import Identity

    if options.action in ("init", "id"):
        make = Identity.create if options.action == "init" else Identity.load
        print(make(options.path).node_id)
        return 0
    if options.action == "allow":
        entry = _entry(options.node_id, options.org, options.may)
        replace = bool(options.org or options.may)
        done = _change(partial(allow_list.allow, options.file, entry, replace=replace), options)
        print("allowed" if done else "already on the list")
        return 0
    done = _change(partial(allow_list.revoke, options.file, options.node_id), options)
    print("revoked" if done else "not on the list")
    return 0 if done else 1  # a mistyped id must not look like a revoked node


def _entry(node_id: NodeId, orgs: list[str] | None, rights: list[str] | None) -> AllowListEntry:
    """The allow-list entry for the options."""
    from quafka_mesh_ops.grants import parse_entry

    words = [node_id]
    if orgs:
        words.append(f"orgs={'*' if '*' in orgs else ','.join(orgs)}")
    if rights:
        words.append(f"may={','.join(rights)}")
    return parse_entry(" ".join(words))


def _change(change: Callable[[], bool], options: argparse.Namespace) -> bool:
    file = options.file
    try:
        return change()
    except (OSError, ValueError) as e:
        reason = (e.strerror if isinstance(e, OSError) else None) or e
        raise StartupError(f"cannot change the allow-list {file}: {reason}") from e


def _node_id(text: str) -> NodeId:
    from quafka_mesh_ops.node_ids import parse_node_id

    try:
        return parse_node_id(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _orgs(text: str) -> str:
    from quafka_mesh_ops.grants import parse_orgs

    return _checked(parse_orgs, text)


def _rights(text: str) -> str:
    from quafka_mesh_ops.grants import parse_rights

    return _checked(parse_rights, text)


def _checked(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    return "".join(text.split())
