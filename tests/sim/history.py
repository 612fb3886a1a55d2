"""The history of a run: what clients asked and were answered, as JSON lines.

The format is the only contract between the simulation and its checkers. It speaks of Kafka's
notions alone, and holds nothing that a client could not know.

**Events.** A line is one JSON object. Every event has

    n      number of the event: 0, 1, 2, ... in the order in which they happened
    t      virtual time in seconds since the start, to the microsecond; never goes back. It is true
           time: the skew of a node's clock is not in it
    who    name of the client; each session of a program that may be killed has a name of its own.
           Events of the run itself are of "world"
    type   "call", then "ok", "fail" or "unknown", its outcome; or "note", which has none
    op     what is done, from the list below
    id     in an outcome: the `n` of its call

A call has at most one outcome. "fail": certainly not done, and never will be. "unknown": done, or
not, or later. A call without an outcome is unknown until the end; a client that gives up or is
killed need not write one. Outcomes may have `error`, a text; "denied" is a refusal for want of
rights (TOPIC_, GROUP_, CLUSTER_ or TRANSACTIONAL_ID_AUTHORIZATION_FAILED).

**Common fields** of calls; all have defaults and may be omitted:

    org        "" by default. Names of topics, groups and so on belong to an org
    principal  who is logged in; without one, rights are not checked
    gateway    through which the client is connected; without one, the answer does not count as one
               of the same gateway. An outcome may have it, too, if it came through another one

A *place* is a partition of a topic: the fields `topic` (name) and `partition` (int), or
`[topic, partition]` in lists. The name of a topic that a run deletes may come back as another
topic: outcomes of "produce" and "read" then need `topic_id`, a text.

**Records**

    produce     call: topic, partition, values, producer; keys, idempotent, epoch, txn, inputs
                ok: offset (of the first value; null if the answer did not have it), topic_id
        values      texts, unique in the run, in the order of the batch. A client that sends them
                    again by itself (not its idempotent producer, inside the call) makes another
                    call with the same values
        keys        as many texts as values, for compacted topics
        producer    within one (producer, epoch) and partition, records are in the order of calls.
                    So it names the session of an idempotent producer (one producer id), or one
                    connection of another; whoever starts over takes another name
        idempotent  true or false (default)
        txn         the transaction, see below; such records are idempotent
        inputs      [[topic, partition, offset], ...], as many as values: the records that they are
                    copies of. The transaction adds the offsets after them, for the group that it
                    reads as; a copier copies each record that a read_committed reader gets

    read        call: topic, partition, position, isolation; reader, snapshot, final, limit
                ok: records, next, high_watermark, last_stable, log_start, topic_id
                fail: error, and the same watermarks if they were answered (OFFSET_OUT_OF_RANGE)
        position    first offset that is asked for; null for the start (of "live" and "snapshot")
        isolation   "read_committed" or "read_uncommitted"
        reader      "consumer" (default), "live" (Spark on the log itself), "snapshot"
        snapshot    its name, if the reader is "snapshot"; also of "live", see "snapshot" below
        final       true: the run is over and everything is read once more. Each partition gets
                    such reads in both isolations, from its log start to its high watermark
        records     [[offset, value], ...]; further elements of a record are ignored. Only
                    what a consumer returns to its program: no markers, none below the position,
                    none of aborted transactions in read_committed
        next        the position after this answer: all that is visible in position..next is in it;
                    of "live" and "snapshot" the end of what was read. null if it is not known
        *watermarks* null where the answer has none (a session's answer without this partition)
                One call and outcome a partition, also where a fetch has many. A long poll is one
                call, which is answered when the poll is

    list_offsets  call: topic, partition, at ("earliest", "latest", "latest_committed")
                  ok: offset

    delete_records  call: topic, partition, offset
                    ok: log_start

**Transactions.** `txn` names one transaction, unique in the run; it is not the transactional id.

    begin       note: txn, transactional_id, producer, epoch
    add_offsets call: txn, group, offsets [[topic, partition, offset], ...] (TxnOffsetCommit)
    commit      call: txn
    abort       call: txn
        "fail" of a commit: the transaction is or will be aborted. "ok" of an abort: it is aborted.
        Without a call of commit, it is aborted in the end (time-out).

**Groups.** `protocol` is "classic" or "consumer" (KIP-848); `epoch` the generation or member epoch.

    offset_commit  call: group, offsets [[topic, partition, offset], ...]; member, epoch
                   ok: refused [[topic, partition], ...], those which were not committed
                   (also by an administrator, who resets offsets)
    offset_delete  call: group, partitions [[topic, partition], ...]
    offset_fetch   call: group, partitions [[topic, partition], ...]
                   ok: offsets [[topic, partition, offset], ...]; -1 if there is none

    gained      note: group, protocol, member, epoch, partitions [[topic, partition], ...]
                The member may process these from now on, in addition to those that it has
    released    note: the same fields. The member has stopped processing these; written before the
                coordinator is told so (JoinGroup, heartbeat, LeaveGroup). leaving: true if the
                member has not been asked to, but leaves the group by itself
    lost        note: group, member. The member was told that it is no member any more (fenced,
                unknown), and processes nothing; written even if it had nothing

**Share groups**

    share_read  call: group, member, topic, partition, isolation
                ok: records [[offset, value], ...], acquired [[first, last, delivery count], ...],
                    lock_s (the time for which acquired records are locked)
    share_ack   call: group, member, topic, partition,
                      ranges [[first, last, "accept" | "release" | "reject" | "renew"], ...]
                Acknowledgements in a ShareFetch are a call of their own, too
    share_end   note: group, member. Its session ends or its connection is gone, from its own view;
                written before the server can know

**Administration.** Reads of metadata are calls like the writes.

    create_topic    call: topic, partitions, configs {name: text}; ok: topic_id
                    (`configs` tell checkers of cleanup.policy and retention)
    add_partitions  call: topic, partitions (the new total)
    delete_topic    call: topic
    describe_topic  call: topic; ok: topic_id (null: there is none), partitions (their number)
    list_topics     call; ok: topics [name, ...]
    alter_config    call: resource ("topic:NAME", "group:NAME"), name, value (null: the default)
    describe_config call: resource, name; ok: value (null: the default)
        "fail" of create_topic with `exists: true`, or of delete_topic, alter_config and so on with
        `exists: false`, says which state was found. Others say nothing

**Rights**

    rights      call: principal (whose), resource ("topic:NAME", "group:NAME"), right ("read",
                "write"), allowed (true: granted, false: revoked)
        At the start nothing is known of a right, so a run writes a call with an outcome for each.
        Several rules for one right are one event: what counts is whether it is allowed

**Snapshots**

    snapshot    call: snapshot (its name), scope ("all", default: one instant; "topic": an instant
                for each topic)
                ok: ends [[topic, partition, end], ...], of all partitions of the org,
                    offsets [[group, topic, partition, offset], ...]
                Its records are "read" calls of a "snapshot" reader. A load of the live log is a
                call of this op, too, of scope "topic", if its "live" reads have its name

**The run**, by "world"

    run         note, first: seed, and any parameters of the checkers under `bounds` (see
                `tests.sim.checkers.bounds`), such as {"freshness_s": 0.5}
    fault       note: fault ("kill", "power", "pause", "partition", "skew", "disk", "store", ...),
                node, phase ("start", "end"; null: a moment), and what else helps a reader. A
                node that stops and starts again is one fault from its stop to its being ready
    quiet       note: phase ("start", "end"). No fault is under way in between
    client      note by the client itself: phase ("start", "stop"). From its start to its stop it
                makes calls all the time, so that lack of progress is a fault. A program that is
                killed has "stop", by whoever kills it, in its name
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Event = dict[str, Any]
"""One line of a history."""


class History:
    """Events of all clients in the order in which they happen."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin an empty history; `now` returns seconds since the start of the run."""
        self.events: list[Event] = []
        self._now = now

    def call(self, who: str, op: str, **fields: Any) -> int:
        """Add a call; returns its id, which its outcome needs."""
        return self._add(who, "call", op, fields)

    def ok(self, call: int, **fields: Any) -> None:
        """Add the outcome of a call that was done."""
        self._end(call, "ok", fields)

    def fail(self, call: int, error: str, **fields: Any) -> None:
        """Add the outcome of a call that was not done and will not be."""
        self._end(call, "fail", {"error": error, **fields})

    def unknown(self, call: int, error: str, **fields: Any) -> None:
        """Add the outcome of a call that may be done, now or later, or not."""
        self._end(call, "unknown", {"error": error, **fields})

    def note(self, who: str, op: str, **fields: Any) -> None:
        """Add an event that has no outcome."""
        self._add(who, "note", op, fields)

    def dumps(self) -> str:
        """The events as JSON lines."""
        return dumps(self.events)

    def _end(self, call: int, outcome: str, fields: Event) -> None:
        called = self.events[call]
        assert called["type"] == "call", f"event {call} is not a call"
        self._add(called["who"], outcome, called["op"], {"id": call, **fields})

    def _add(self, who: str, kind: str, op: str, fields: Event) -> int:
        n = len(self.events)
        now = round(self._now(), 6)
        self.events.append({"n": n, "t": now, "who": who, "type": kind, "op": op, **fields})
        return n


def dumps(events: Iterable[Event]) -> str:
    """Events as JSON lines."""
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)


def loads(lines: str) -> Sequence[Event]:
    """The events of JSON lines."""
    return [json.loads(line) for line in lines.splitlines() if line]
