"""Error codes are found at every level of a response."""

from __future__ import annotations

from quafka_gateway.responses.error_codes import error_codes
from quafka_proto.schema.api_versions import ApiVersionsResponse
from quafka_proto.schema.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from quafka_proto.schema.groups import HeartbeatResponse
from quafka_proto.schema.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


def test_errors_are_found_wherever_they_are_each_once() -> None:
    assert set(error_codes(None)) == set()
    assert set(error_codes(ApiVersionsResponse())) == set()
    assert set(error_codes(HeartbeatResponse(error_code=27))) == {27}
    parts = [PartitionProduceResponse(error_code=code) for code in (0, 7, 7, 3)]
    produced = ProduceResponse(responses=[TopicProduceResponse(partition_responses=parts)])
    assert set(error_codes(produced)) == {3, 7}
    fetched = FetchResponse(
        error_code=71, responses=[FetchableTopicResponse(partitions=[PartitionData(0, 1)])]
    )
    assert set(error_codes(fetched)) == {1, 71}
