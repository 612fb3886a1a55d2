"""The transactions that Kafka had decided to commit, from the partitions of `__transaction_state`.

A coordinator first records PrepareCommit, which commits the transaction. The markers in its
partitions follow; after a crash some are missing until Kafka starts again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.errors import Malformed
from quafka_proto.kafka_group_records import PREPARE_COMMIT, TransactionLogValue, decode_transaction
from quafka_proto.record_codec import iter_records
from quafka_proto.records import CONTROL, read_header


def read_decided(logs: Iterable[PartitionLog]) -> dict[int, set[tuple[str, int]]]:
    """Read the partitions of each such transaction, by producer id.

    Raises:
        KafkaLogError: a batch is damaged, or has a record of an unknown version.
    """
    states: dict[bytes, TransactionLogValue | None] = {}
    for log in logs:
        for batch in log.every_batch():
            _take(states, batch.data, batch.path or log.path, batch.position)
    return {
        state.producer_id: {
            (topic.topic, number)
            for topic in state.transaction_partitions or ()
            for number in topic.partition_ids
        }
        for state in states.values()
        if state is not None and state.transaction_status == PREPARE_COMMIT
    }


def _take(
    states: dict[bytes, TransactionLogValue | None], data: memoryview, path: Path, position: int
) -> None:
    if read_header(data).attributes & CONTROL:
        return
    try:
        for record in iter_records(data):
            key = record.key or b""
            states[key] = None if record.value is None else decode_transaction(record.value)
    except Malformed as e:
        raise KafkaLogError(path, str(e), position) from e
