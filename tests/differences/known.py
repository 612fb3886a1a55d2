"""Why answers differ from Apache Kafka's: docs/compatibility.md has these sentences."""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """`pattern` matches "where | path | Quafka's value | Kafka's value"."""

    what: str
    pattern: str
    why: str


REASONS = [
    Reason(
        "Produce 0 to 2",
        r"^Produce [0-2], ",
        "Clients of before Kafka 1.0 may produce; Kafka 4 closes the connection.",
    ),
    Reason(
        "Produce 13 of a topic without an id",
        r"^Produce 13, .*\| 3 \| 100$",
        "A topic with neither name nor id is an unknown name; no client sends it.",
    ),
    Reason(
        "Fetch, a partition with an error: the aborted transactions",
        r"^Fetch \d+, an item .*aborted_transactions",
        "A refused read has no list of transactions (null) instead of an empty one.",
    ),
    Reason(
        "Metadata that creates a topic",
        r"^Metadata \d, an item ",
        "A topic that is created on first use is in the first answer; Kafka's clients ask again.",
    ),
    Reason(
        "CreateTopics with an assignment and configs, both wrong",
        r"^CreateTopics \d, an item .*\| 42 \| 40$",
        "Of several faults of a new topic, the assignment is named before the configs.",
    ),
    Reason(
        "AddPartitionsToTxn 4 and 5 without a transaction",
        r"^AddPartitionsToTxn [45], empty ",
        "Only brokers send this request; Kafka does not answer one without items.",
    ),
    Reason(
        "DescribeAcls, CreateAcls, DeleteAcls of kinds that do not exist, without an authorizer",
        r"^(Describe|Create|Delete)Acls ",
        "Without an authorizer any request gets SECURITY_DISABLED; Kafka closes at unknown kinds.",
    ),
    Reason(
        "AlterReplicaLogDirs, unknown partition and unknown directory",
        r"^AlterReplicaLogDirs ",
        "A broker has one log directory: the partition is looked for before the directory.",
    ),
    Reason(
        "DescribeQuorum 2: the nodes",
        r"^DescribeQuorum ",
        "The listeners of the voter are told also without KIP-853.",
    ),
    Reason(
        "UnregisterBroker 0",
        r"^UnregisterBroker .*\| 42 \| 102$",
        "The only broker has the id 0 here, and 1 in Kafka.",
    ),
    Reason(
        "DescribeTransactions of an unknown id: epoch and start",
        r"^DescribeTransactions .*\| -1 \| 0$",
        "What is not known of an unknown transaction is -1.",
    ),
    Reason(
        "ListConfigResources",
        r"^ListConfigResources ",
        "Node ids, and resources that only Kafka or only Quafka has.",
    ),
    Reason(
        "Topic configs that Kafka 4 no longer has",
        r"configs\[(message\.downconversion\.enable|message\.timestamp\.difference\.max\.ms"
        r"|quafka\.source)\]",
        "Kept for clients of before Kafka 4, or Quafka's own.",
    ),
    Reason(
        "Topic configs that Quafka does not have",
        r"configs\[(errors\.deadletterqueue\.group\.enable|max\.decompressed\.message\.bytes"
        r"|remote\..*)\]",
        "Tiered storage, dead letter queues and their kind are not there.",
    ),
    Reason(
        "The number of topic configs", r"configs\.length", "It follows from the two rows above."
    ),
    Reason(
        "The source of `min.insync.replicas`",
        r"configs\[min\.insync\.replicas\]\.config_source",
        "Kafka 4 makes it a dynamic cluster config; one replica needs none.",
    ),
    Reason(
        "The default of `retention.ms`",
        r"configs\[retention\.ms\]\.value \| '-1'",
        "Records are kept until told otherwise.",
    ),
    Reason(
        "A member of KIP-848 that upgrades a classic group",
        r"^a classic group \| joined as a group of KIP-848",
        "The epoch and the first assignment of an upgrade follow from when targets are made.",
    ),
    Reason(
        "The first heartbeat of a member of KIP-848",
        r"^a group of KIP-848 \| join: assignment",
        "A new member has its partitions with the first answer, not with a later one.",
    ),
    Reason(
        "OffsetCommit without a group",
        r"^offsets from outside of a group \| commit, no group",
        "A group has a name; Kafka takes offsets of the group '' for clients of before 0.9.",
    ),
    Reason(
        "IncrementalAlterConfigs with an unknown operation",
        r"^configs that change \| 2 'changing': retention\.ms 7 1: .*\| 42 \| -1$",
        "An unknown operation is INVALID_REQUEST, not an error of the server.",
    ),
    Reason(
        "Produce of a batch that is stored already: the append time",
        r"^batches that are refused \| sequence 0 .*log_append_time_ms",
        "A repeated batch is answered as at first; Kafka names its record's time.",
    ),
    Reason(
        "Fetch out of range: the watermarks",
        r"^offsets and reads .*: Fetch from .*(high_watermark|last_stable_offset|log_start_offset)",
        "A read out of range is told where the partition begins and ends.",
    ),
    Reason(
        "ListOffsets of the newest timestamp, after DeleteRecords",
        r"^offsets and reads .* \| records deleted: ListOffsets \d+ of -3",
        "The newest timestamp is one that can be read; Kafka names a deleted record.",
    ),
]


def reason_of(where: str, path: str, quafka: object, kafka: object) -> str:
    """Why; empty if nothing here explains it."""
    line = f"{where} | {path} | {quafka!r} | {kafka!r}"
    return next((each.why for each in REASONS if re.search(each.pattern, line)), "")


def table() -> str:
    """The reasons as docs/compatibility.md has them."""
    rows = [f"| {each.what} | {each.why} |" for each in REASONS]
    return "\n".join(["| answer | why it differs |", "| --- | --- |", *rows])
