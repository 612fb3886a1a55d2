"""`quafka` processes without the half second of CPU that each needs to import its modules.

One process a kind of program and test worker imports them, and forks for each start. A fork runs
`quafka`'s `main` with the arguments, the environment and the streams of its own, and ends as any
process does. Programs with another environment or command are started as usual.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

_MODULES = {"broker": "quafka_broker.server", "gateway": "quafka_gateway.server"}
_ROOT = Path(__file__).parents[2]
_LONGEST = 1 << 20
_SLICE_SECONDS = 0.1


class Started(Protocol):
    """What tests do with a process; `subprocess.Popen` has it, too."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class Parent:
    """A process that has imported a program, and forks."""

    def __init__(self, kind: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), _MODULES[kind]],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,  # whatever folder the test that comes first is in
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()  # of the socket
        self._codes: dict[int, int] = {}

    def start(self, args: Sequence[str], log: int, ready: int) -> Forked:
        """Start `quafka` with these arguments. It inherits both descriptors."""
        request = json.dumps({"args": args, "cwd": str(Path.cwd()), "env": dict(os.environ)})
        with self._lock:
            socket.send_fds(self._socket, [request.encode()], [log, ready])
            self._socket.settimeout(None)
            while True:
                told = json.loads(self._socket.recv(_LONGEST))
                if "pid" in told:
                    return Forked(told["pid"], told["number"], self.code)
                self._codes[told["number"]] = told["code"]

    def code(self, number: int, timeout: float) -> int | None:
        """The exit code of a fork, if it ends within `timeout` seconds."""
        until = time.monotonic() + timeout
        while True:
            with self._lock:
                if number in self._codes:
                    return self._codes[number]
                left = until - time.monotonic()
                self._socket.settimeout(min(max(left, 1e-6), _SLICE_SECONDS))
                with suppress(TimeoutError):
                    told = json.loads(self._socket.recv(_LONGEST))
                    self._codes[told["number"]] = told["code"]
                    continue
            if left <= 0:
                return None

    def close(self) -> None:
        """End the parent; its forks go on."""
        self._socket.close()
        self._popen.wait()


class Forked:
    """A fork, as `subprocess.Popen` would show it.

    Its number tells it from a later fork that gets the same process id.
    """

    def __init__(self, pid: int, number: int, code: Callable[[int, float], int | None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._number = number
        self._code = code

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._code(self._number, 0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._code(self._number, 1e6 if timeout is None else timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("quafka", timeout or 0.0)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Parents:
    """One parent for each kind of program, made when it is first needed."""

    def __init__(self) -> None:
        self._parents: dict[str, Parent] = {}

    def of(self, args: Sequence[str]) -> Parent | None:
        """The parent that can start `quafka` with these arguments; None: no parent can."""
        kind = args[0]
        if kind not in _MODULES:
            return None
        if kind not in self._parents:
            self._parents[kind] = Parent(kind)
        return self._parents[kind]

    def close(self) -> None:
        for parent in self._parents.values():
            parent.close()


def _serve(channel: socket.socket) -> list[str]:
    """Fork for each request. Returns in each fork, with its arguments; exits in the parent."""
    children: dict[int, int] = {}  # their numbers by process id
    numbers = count()
    wakes, wake = socket.socketpair()
    for end in (wakes, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    selector.register(wakes, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in selector.select()]
        if wakes in ready:
            wakes.recv(_LONGEST)
        _tell_ends(children, channel)
        if channel not in ready:
            continue
        data, fds, _, _ = socket.recv_fds(channel, _LONGEST, 2)
        if not data:
            sys.exit()
        request = json.loads(data)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (selector, wakes, wake, channel):
                each.close()
            return _become(request, fds)
        children[pid] = next(numbers)
        for fd in fds:
            os.close(fd)
        channel.send(json.dumps({"pid": pid, "number": children[pid]}).encode())


def _tell_ends(children: dict[int, int], channel: socket.socket) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            channel.send(json.dumps({"number": children.pop(pid), "code": code}).encode())


def _become(request: dict[str, object], fds: list[int]) -> list[str]:
    log, ready = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    env = request["env"]
    assert isinstance(env, dict)
    os.environ.update(env)
    args = request["args"]
    assert isinstance(args, list)
    return [*map(str, args), "--ready-fd", str(ready)]


if __name__ == "__main__":
    from importlib import import_module

    from quafka.cli import main

    import_module(sys.argv[2])
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = ["quafka", *arguments]
    sys.exit(main(arguments))
