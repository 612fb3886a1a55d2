"""Measures the event loop's turns in a checkout that does not do so itself (`--code`).

Found by the processes of the cluster through PYTHONPATH, before anything else runs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from typing import Any


def _measure(path: str) -> None:
    from quafka_mesh_ops import process_metrics

    spec = importlib.util.spec_from_file_location("quafka_mesh_ops.loop_turns", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quafka_mesh_ops.loop_turns"] = module
    spec.loader.exec_module(module)
    turns = module.LoopTurns()
    figures: Any = process_metrics.ProcessFigures
    collect = figures.collect

    def both(self: Any) -> Any:
        yield from collect(self)
        yield from turns.collect()

    figures.collect = both

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop: asyncio.AbstractEventLoop = turns.new_loop()
            return loop

    asyncio.set_event_loop_policy(Policy())


if "HOSTILE_LOOP_TURNS" in os.environ and (
    importlib.util.find_spec("quafka_mesh_ops.loop_turns") is None
):
    _measure(os.environ["HOSTILE_LOOP_TURNS"])
