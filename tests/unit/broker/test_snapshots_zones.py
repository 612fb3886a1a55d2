"""Zones that the broker makes ahead of snapshots."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.zone_cache import fill_zone_cache, zones_name
from quafka_loop import threads
from quafka_proto.zone_format import ZoneBuilder, decode_zones, encode_zones
from tests.unit.broker.snapshot_tools import (
    ORG,
    delete_below,
    faults,
    named,
    put,
    rewrite,
    snapshot,
    state_in,
)


async def test_zones_are_made_ahead_and_are_those_of_the_rows(tmp_path: Path, dest: Path) -> None:
    data = tmp_path / "data"
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        for n in range(90):
            await put(state, topic, *named("t", range(n, n + 1)))
        sealed = [segment for segment in state.log.segments() if segment.sealed]
        stopped = threads.Event()
        stopped.set()
        assert fill_zone_cache(data, state.log.segments(), stopped) == 0
        assert fill_zone_cache(data, state.log.segments()) == len(sealed) > 2
        assert fill_zone_cache(data, state.log.segments()) == 0
        with patch("quafka_broker.snapshots.create.ZoneBuilder.add", side_effect=ZoneBuilder.add,
                   autospec=True) as built:  # fmt: skip
            ahead = (await snapshot(state, FolderDestination(dest))).manifest
            assert built.call_count == 1, "of the active segment only"
        assert faults(FolderDestination(dest), ahead) == []

        broken, short, missing = sorted((data / "zones").iterdir())[:3]
        broken.write_bytes(b"x" * 200)
        short.write_bytes(encode_zones(decode_zones(short.read_bytes())[:0]))
        missing.unlink()
        other = FolderDestination(tmp_path / "other")
        made = (await snapshot(state, other)).manifest
        assert faults(other, made) == []
        await delete_below(state, topic, 90)
        await rewrite(state)
        fill_zone_cache(data, state.log.segments())
        assert {path.name for path in (data / "zones").iterdir()} == {
            zones_name(segment) for segment in state.log.segments() if segment.sealed
        }
