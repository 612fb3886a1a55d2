"""A real OTLP receiver in a thread, and whole traces as a test wants to see them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from tests.support.ports import lasting_port

_SECONDS = 15.0
KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True)
class SeenSpan:
    """One span as the receiver got it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[str]
    failed: bool
    tracestate: str

    @property
    def ms(self) -> float:
        return (self.end - self.start) / 1e6


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _seen(span: Any) -> SeenSpan:
    return SeenSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        KINDS[span.kind],
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        [(event.name, _attributes(event.attributes)) for event in span.events],
        [link.trace_id.hex() for link in span.links],
        span.status.code == 2,
        span.trace_state,
    )


class Trace:
    """Spans of one trace."""

    def __init__(self, spans: list[SeenSpan]) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)

    def named(self, name: str) -> SeenSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[str]:
        """Names and kinds, indented below their parents, siblings in order of their start."""
        known = {span.span_id for span in self.spans}
        tops = {span.parent_id for span in self.spans if span.parent_id not in known}
        return [line for top in sorted(tops) for line in self._below(top, 0)]

    def orphans(self, root: str) -> list[str]:
        """Spans whose parents are missing, but for those of `root`'s name."""
        known = {span.span_id for span in self.spans}
        return [s.name for s in self.spans if s.parent_id not in known and s.name != root]

    def _below(self, parent: str, depth: int) -> Iterator[str]:
        for span in self.spans:
            if span.parent_id == parent:
                yield f"{'  ' * depth}{span.name} {span.kind}"
                yield from self._below(span.span_id, depth + 1)


@dataclass
class Collector:
    """What has been received so far."""

    port: int
    spans: list[SeenSpan] = field(default_factory=list[SeenSpan])

    @property
    def env(self) -> dict[str, str]:
        """Makes a process send its spans here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def traces(self) -> list[Trace]:
        """In the order of their beginnings."""
        by_id: dict[str, list[SeenSpan]] = {}
        for span in list(self.spans):
            by_id.setdefault(span.trace_id, []).append(span)
        return sorted(map(Trace, by_id.values()), key=lambda trace: trace.spans[0].start)

    def wait_for(self, wanted: Callable[[Trace], bool]) -> Trace:
        """The first trace like that; what was received if there is none in time."""
        give_up = time.monotonic() + _SECONDS
        while True:
            for trace in self.traces():
                if wanted(trace):
                    return trace
            if time.monotonic() > give_up:
                seen = "\n\n".join("\n".join(trace.tree()) for trace in self.traces())
                raise AssertionError(f"no such trace among these:\n{seen}")
            time.sleep(0.02)

    def wait_for_tree(self, client_id: str, tree: str) -> Trace:
        """A request of this client that is a trace of just these spans."""
        lines = [line[4:] for line in tree.strip("\n").splitlines()]

        def wanted(trace: Trace) -> bool:
            clients = {span.attributes.get("messaging.client.id") for span in trace.spans}
            return client_id in clients and trace.tree() == lines

        return self.wait_for(wanted)


@contextmanager
def collector() -> Generator[Collector]:
    """A receiver, for as long as the context lasts."""
    port = lasting_port()
    found = Collector(port)
    ready = threading.Event()
    stop: asyncio.Event | None = None
    loop = asyncio.new_event_loop()

    async def receive() -> None:
        nonlocal stop
        stop = asyncio.Event()
        settings = OtelTapHttpProtobufReceiverSettings(
            http_port=port,
            print_traces_as_ndjson=False,
            print_logs_as_ndjson=False,
            print_metrics_as_ndjson=False,
        )
        async with OtelTapHttpProtobufReceiver(settings) as tap:

            async def collect() -> None:
                async for span in tap.stream_traces():
                    found.spans.append(_seen(span))

            collecting = asyncio.create_task(collect())
            await asyncio.sleep(0)
            ready.set()
            await stop.wait()
            collecting.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(receive()))
    thread.start()
    try:
        assert ready.wait(_SECONDS)
        yield found
    finally:
        if stop is not None:
            loop.call_soon_threadsafe(stop.set)
        thread.join(_SECONDS)
        loop.close()
