"""An event loop whose closed sockets leave nothing for the search for garbage.

asyncio's transport of a TCP connection refers to methods of its own (since Python 3.12, to two),
also after the connection is lost. Such a circle is freed by the next search that reaches it, which
is an hour later if the connection has outlived a search (`garbage.py`).
"""

from __future__ import annotations

import asyncio
from asyncio import selector_events
from collections.abc import Iterable
from typing import Any

# The private parts of asyncio that this needs.
_SocketTransport: Any = vars(selector_events)["_SelectorSocketTransport"]


class _FreedTransport(_SocketTransport):  # type: ignore[misc]  # the class is not in typeshed
    def _call_connection_lost(self, exc: Exception | None) -> None:
        super()._call_connection_lost(exc)  # pyright: ignore[reportUnknownMemberType]
        self._read_ready_cb: Any = None
        self.__dict__.pop("_write_ready", None)

    def writelines(self, list_of_data: Iterable[bytes | memoryview]) -> None:
        super().writelines(list_of_data)  # pyright: ignore[reportUnknownMemberType]
        # Early releases of Python 3.12 and 3.13 do not pause the protocol: all that a slow client
        # does not read would be kept in memory.
        if not self._conn_lost:
            self._maybe_pause_protocol()


class FreedTransportsLoop(asyncio.SelectorEventLoop):
    """asyncio's loop; its TCP transports are freed when their last user drops them."""

    def _make_socket_transport(self, *args: Any, **options: Any) -> asyncio.Transport:
        transport: asyncio.Transport = _FreedTransport(self, *args, **options)
        return transport
