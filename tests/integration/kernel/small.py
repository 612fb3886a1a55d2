"""A small program to supervise: `small.py NAME HOW --flags-on-stdin ...`.

Writes events to the journal. HOW: `good` reports that it is ready, and stops on a signal;
`listens` expects a socket; `refuses` ends with exit code 3 instead; `deaf` ignores the signal;
`slow` is never ready.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("how")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--port")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--lifeline-fd", type=int)
    parser.add_argument("--listening-fd", type=int)
    parser.add_argument("--flags-on-stdin", action="store_true")
    flags = sys.stdin.read()
    if not flags:
        return 0
    options = parser.parse_args(sys.argv[1:] + json.loads(flags))

    def note(what: str) -> None:
        with options.journal.open("a") as journal:
            journal.write(f"{options.name} {what}\n")

    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.how == "deaf" else lambda *_: None)
    signal.signal(signal.SIGHUP, lambda *_: note("reloads"))
    note(f"starts {options.port} {os.getpid()} {os.getpid() == os.getsid(0)}")
    if options.how == "refuses":
        return 3
    if options.how == "listens":
        with socket.socket(fileno=options.listening_fd) as listening:
            accepts = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        note("has its socket" if accepts else "has another socket")
    if options.how != "slow":
        with os.fdopen(options.ready_fd, "w") as ready:
            ready.write(json.dumps({"port": options.port or "7"}) + "\n")
    assert os.environ["SMALL"] == options.name
    assert "NOTIFY_SOCKET" not in os.environ, "it is for the supervisor"
    selector = selectors.DefaultSelector()
    selector.register(woken, selectors.EVENT_READ, "is told to stop")
    selector.register(options.lifeline_fd, selectors.EVENT_READ, "is alone")
    while True:
        key, _ = selector.select()[0]
        if key.fd != woken or os.read(woken, 1)[0] != signal.SIGHUP:
            note(key.data)
            return 0


if __name__ == "__main__":
    sys.exit(main())
