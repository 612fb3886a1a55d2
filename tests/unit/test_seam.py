"""Product modules reach clocks, threads and sockets through `quafka_loop`, and when they use them.

A simulation replaces the attributes of the seam's modules. A module that reads a clock of its own,
or keeps an attribute from before the replacement, would mix real time with simulated time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("proto", "mesh_ops", "broker", "gateway", "spark", "deploy")
_SEAM = ("quafka_loop.clock.", "quafka_loop.threads.", "quafka_loop.sockets.")

EXCEPTIONS = {
    "mesh_ops/quafka_loop/clock.py": "it is the seam to clocks",
    "mesh_ops/quafka_loop/threads.py": "it is the seam to threads",
    "mesh_ops/quafka_loop/sockets.py": "it is the seam to sockets",
}

_CLOCKS = frozenset(
    f"time.{name}{ending}"
    for name in (
        "clock_gettime",
        "monotonic",
        "perf_counter",
        "process_time",
        "thread_time",
        "time",
    )
    for ending in ("", "_ns")
) | {"time.sleep"}
_DATES = {
    f"datetime.{kind}.{name}"
    for kind in ("datetime", "date")
    for name in ("now", "today", "utcnow")
}
_THREADS = {
    f"threading.{name}"
    for name in (
        "Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore",
        "Thread", "Timer", "local",
    )
}  # fmt: skip
_POOLS = {
    "concurrent.futures.ThreadPoolExecutor", "concurrent.futures.thread.ThreadPoolExecutor",
    "os.eventfd", "queue.LifoQueue", "queue.PriorityQueue", "queue.Queue", "queue.SimpleQueue",
}  # fmt: skip
_USES = _CLOCKS | _DATES | _THREADS | _POOLS
"""Wrong wherever an expression names them."""
_CALLS = {
    f"socket.{name}"
    for name in (
        "create_connection", "create_server", "getaddrinfo", "gethostname", "socket", "socketpair",
    )
}  # fmt: skip
"""Wrong if they are called: `socket.socket` is also the type of the loop's sockets."""
_NOW_WITHOUT = {"time.ctime": 1, "time.gmtime": 1, "time.localtime": 1, "time.strftime": 2}
"""These read the clock unless they have so many arguments."""


def violations(source: str) -> list[str]:
    """What a module does past the seam, each with its line."""
    reader = _Reader()
    reader.visit(ast.parse(source))
    return [f"{line}: {what}" for line, what in reader.found]


class _Reader(ast.NodeVisitor):
    """Collects what a module does past the seam. Imports come before the uses of their names."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._names: dict[str, str] = {}  # what each imported name stands for, with dots
        self._inside = 0  # of so many functions: what stands there, an import does not evaluate

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            first = each.name.partition(".")[0]
            self._names[each.asname or first] = each.name if each.asname else first

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for each in node.names:
            name = self._names[each.asname or each.name] = f"{module}.{each.name}"
            if module == "time" or name in _USES | _CALLS:
                self.found.append((node.lineno, f"imports {name}"))
            elif f"{module}." in _SEAM:
                self.found.append((node.lineno, f"binds {name}, which a simulation replaces"))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name in _USES:
            self.found.append((node.lineno, f"uses {name}"))
        elif not self._inside and name.startswith(_SEAM):
            self.found.append((node.lineno, f"keeps {name} from its import"))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        if name in _CALLS or len(node.args) < _NOW_WITHOUT.get(name, 0):
            self.found.append((node.lineno, f"calls {name}"))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_each(node.decorator_list)
        self._visit_function(node.args, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node.args, [node.body])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leave out the annotation, which is not evaluated."""
        self._visit_each([node.value] if node.value else [])

    def _visit_function(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        inside, self._inside = self._inside, 0  # a default keeps its value, in any function
        self._visit_each([*arguments.defaults, *filter(None, arguments.kw_defaults)])
        self._inside = inside + 1
        self._visit_each(body)
        self._inside = inside

    def _visit_each(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _dotted(self, node: ast.AST) -> str:
        """What an expression stands for; "" for other expressions than names with dots."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""


def _product() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_no_product_module_goes_past_the_seam() -> None:
    sources = dict(_product())
    assert len(sources) > 800
    found = {path: violations(text) for path, text in sources.items()}
    assert {path: each for path, each in found.items() if each and path not in EXCEPTIONS} == {}
    assert [path for path in EXCEPTIONS if not found[path]] == [], "needs no exception any more"


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("from time import perf_counter", "1: imports time.perf_counter"),
        ("import time\ntime.monotonic()", "2: uses time.monotonic"),
        ("import time as t\nnow = t.time_ns", "2: uses time.time_ns"),
        ("def f():\n    import time\n    time.sleep(1)", "3: uses time.sleep"),
        ("import time\ntime.strftime('%Y')", "2: calls time.strftime"),
        ("import time\ntime.gmtime()", "2: calls time.gmtime"),
        ("from datetime import UTC, datetime\ndatetime.now(UTC)", "2: uses datetime.datetime.now"),
        ("import datetime\ndatetime.date.today()", "2: uses datetime.date.today"),
        ("import threading\nthreading.Lock()", "2: uses threading.Lock"),
        ("import threading\nclass T(threading.Thread): ...", "2: uses threading.Thread"),
        ("from threading import Event", "1: imports threading.Event"),
        ("import queue\nqueue.Queue()", "2: uses queue.Queue"),
        ("from queue import SimpleQueue", "1: imports queue.SimpleQueue"),
        (
            "from concurrent import futures\nfutures.ThreadPoolExecutor(1)",
            "2: uses concurrent.futures.ThreadPoolExecutor",
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor",
            "1: imports concurrent.futures.ThreadPoolExecutor",
        ),
        ("import socket\nsocket.socket(socket.AF_INET)", "2: calls socket.socket"),
        ("import socket\nsocket.getaddrinfo('', 1)", "2: calls socket.getaddrinfo"),
        ("from socket import gethostname", "1: imports socket.gethostname"),
        (
            "from quafka_loop.clock import monotonic",
            "1: binds quafka_loop.clock.monotonic, which a simulation replaces",
        ),
        (
            "from quafka_loop import clock\ndef f(now=clock.monotonic): ...",
            "2: keeps quafka_loop.clock.monotonic from its import",
        ),
        (
            "from quafka_loop import clock\nasync def f(*, now=clock.monotonic): ...",
            "2: keeps quafka_loop.clock.monotonic from its import",
        ),
        (
            "from quafka_loop import clock\nclass C:\n    def f(self, at=clock.time()): ...",
            "3: keeps quafka_loop.clock.time from its import",
        ),
        (
            "from quafka_loop import clock\nclass C:\n    at: float = field(factory=clock.time)",
            "3: keeps quafka_loop.clock.time from its import",
        ),
        (
            "from quafka_loop import threads\n_lock = threads.Lock()",
            "2: keeps quafka_loop.threads.Lock from its import",
        ),
        (
            "import quafka_loop.clock\nnow = quafka_loop.clock.time",
            "2: keeps quafka_loop.clock.time from its import",
        ),
        (
            "from quafka_loop import clock\ndef f():\n    def g(now=clock.time): ...",
            "3: keeps quafka_loop.clock.time from its import",
        ),
    ],
)
def test_ways_past_the_seam_are_found(source: str, line: str) -> None:
    assert violations(FUTURE + source) == [f"{int(line[0]) + 1}{line[1:]}"]


@pytest.mark.parametrize(
    "source",
    [
        "from quafka_loop import clock\ndef f(): return clock.monotonic()",
        "from quafka_loop import clock\nf = lambda: clock.monotonic()",
        "from quafka_loop import clock\nat: float = field(default_factory=lambda: clock.time())",
        "from quafka_loop import threads\ndef f(stop: threads.Event | None = None): ...",
        "from quafka_loop import threads\nclass C:\n    stop: threads.Event",
        "import time\ntime.strftime('%Y', time.gmtime(0))",
        "import socket\ndef f(sock: socket.socket): return socket.AF_INET",
        "import asyncio\nasync def f(): await asyncio.sleep(asyncio.get_running_loop().time())",
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)",
    ],
)
def test_uses_of_the_seam_pass(source: str) -> None:
    assert violations(FUTURE + source) == []
