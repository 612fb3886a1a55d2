"""Defects of topics: deletions, and what a restart forgets."""

from __future__ import annotations

from quafka_broker.ops import delete_records
from quafka_broker.state import BrokerState
from quafka_broker.topics import events
from quafka_broker.topics.events import Event
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic
from quafka_mesh_ops.ops.records import DeleteRecordsOp
from quafka_proto.errors import ErrorCode
from tests.sim.defects.defect import KILLS, Defect, change

_NOTHING: Event = {"event": "generations", "from": 0}


def _forgotten_on_restart(kind: str) -> None:
    decode = events.decode_event

    def without(data: bytes) -> Event:
        event = decode(data)
        return _NOTHING if event["event"] == kind else event

    change(events, "decode_event", without)


def _configs_not_durable() -> None:
    record = RegistryJournal.record

    async def some(self: RegistryJournal, *changes: Event) -> None:
        if all(event["event"] == "topic_changed" for event in changes):
            for event in changes:
                self._registry.apply(event)
            return
        await record(self, *changes)

    change(RegistryJournal, "record", some)


def _one_record_too_many() -> None:
    target = delete_records._target

    def more(state: BrokerState, org: int, part: DeleteRecordsOp) -> tuple[Topic, int] | ErrorCode:
        found = target(state, org, part)
        if isinstance(found, ErrorCode):
            return found
        topic, offset = found
        end = state.sources.partition(topic, part.partition).high_watermark
        return topic, min(offset + 1, end)

    change(delete_records, "_target", more)


def _records_of_a_deleted_topic() -> None:
    """A new topic has the generation of the last one of its name, and so its entries."""
    create = Registry._create

    def same_generation(self: Registry, event: Event) -> None:
        create(self, event)
        self._next_generation[event["org"], event["name"]] -= 1

    change(Registry, "_create", same_generation)


DEFECTS = {
    "a restart forgets that topics were deleted": Defect(
        lambda: _forgotten_on_restart("topic_deleted"),
        programs=("administrator",),
        faults=KILLS,
    ),
    "a restart forgets that records were deleted": Defect(
        lambda: _forgotten_on_restart("log_start"),
        programs=("administrator",),
        faults=KILLS,
    ),
    "DeleteRecords deletes one record too many": Defect(
        _one_record_too_many, programs=("administrator",)
    ),
    "a new topic has records of a deleted one": Defect(
        _records_of_a_deleted_topic, programs=("administrator",), faults=KILLS
    ),
    "changes of configs are not durable": Defect(
        _configs_not_durable, programs=("administrator",), faults=KILLS
    ),
}
