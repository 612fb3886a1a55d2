"""Metrics of the process, named as in Prometheus' client libraries, and of the build."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from pathlib import Path

from quafka_loop import clock
from quafka_telemetry.exposition import metrics_page
from quafka_telemetry.metrics import Family, FamilyKind, Metrics, counter, gauge
from quafka_telemetry.operations import Operations
from quafka_telemetry.status_page import Cell, Facts, count, duration, size, text
from quafka_telemetry.version import version

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessFigures:
    """The figures of a process: `read` updates them, in a thread; `collect` yields them."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._version = ""
        self._open_files = self._virtual = self._resident = 0
        self._started = clock.time()

    def read(self) -> None:
        """Read /proc. Raises OSError."""
        if not self._version:
            self._version = version()
            self._started = _started()
        self._virtual, self._resident = (
            int(pages) * _PAGE for pages in Path("/proc/self/statm").read_text().split()[:2]
        )
        self._open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - thousands

    def facts(self, *others: tuple[str, Cell]) -> Facts:
        """Return the section of the status page, with `others` first."""
        return Facts(
            "Process",
            [
                *others,
                ("version", text(self._version)),
                ("Python", text(platform.python_version())),
                ("process id", text(os.getpid())),
                ("running for", duration(clock.time() - self._started)),
                ("processor time", duration(clock.process_time())),
                ("memory", size(self._resident)),
                ("open files", count(self._open_files)),
            ],
        )

    def collect(self) -> Iterator[Family]:
        """Yield the families of the last `read`."""
        labels = (self._program, self._version, platform.python_version())
        yield Family(
            "quafka_build_info", FamilyKind.GAUGE, "The running build; always 1", [(labels, 1)],
            ("program", "version", "python"),
        )  # fmt: skip
        yield counter(
            "process_cpu_seconds", "Processor time, user and system", clock.process_time()
        )
        yield gauge("process_resident_memory_bytes", "Memory in use", self._resident)
        yield gauge("process_virtual_memory_bytes", "Memory reserved", self._virtual)
        yield gauge("process_open_fds", "Files and sockets that are open", self._open_files)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield gauge("process_max_fds", "Files and sockets that may be open", limit)
        yield gauge(
            "process_start_time_seconds", "Start time of the process, Unix time", self._started
        )


def process_metrics(figures: ProcessFigures, operations: Operations) -> Metrics:
    """Make the metrics of a program, with those of its process, and serve them."""
    metrics = Metrics()
    metrics.before(figures.read)
    metrics.add(figures.collect)
    operations.add("/metrics", metrics_page(metrics))
    operations.add("/metrics/detail", metrics_page(metrics, detail=True))
    return metrics


def _started() -> float:
    """Return the start time of this process, from the kernel's clock since boot."""
    # The fields after the name, which may contain any character but a newline: proc(5), field 22.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / _CLOCK_TICKS
    return clock.time() - (clock.since_boot() - since_boot)
