"""A UDP socket that sends and receives datagrams in bursts.

UDP_SEGMENT sends up to 64 equal datagrams in one system call, UDP_GRO receives as many; the socket
falls back to single datagrams where the kernel or the device lacks them. Fragmentation is off (RFC
9000 section 14): a datagram above the path's MTU is refused with EMSGSIZE.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import Any

from quafka_loop import clock, sockets

logger = logging.getLogger("quafka.mesh.udp")

Address = Any
"""An address of the socket module: (host, port) or (host, port, flow, scope)."""
Datagram = tuple[bytes, Address]

SOCKET_BUFFER = 4 << 20
_DATAGRAMS_PER_WAKE_UP = 224
_BYTES_PER_WAKE_UP = 512 << 10
"""Data that is received before it is processed: enough to share the cost of processing, and little
enough that the peer gets ACKs while it still sends. Small datagrams are bounded by their number,
because each has its own cost, also those of strangers."""
_SECONDS_PER_WAKE_UP = 0.005
"""Time for the data of several senders, whose handshakes take milliseconds each."""
_SEGMENTS = 64
_BYTES_PER_SEND = 65_000
_SHORT_READ = 4 << 10
"""Bytes below which a read is a small packet or two, not a part of bulk."""
_LOOKS_EVERY = 8
"""One in this many wake-ups with a single small read looks for more."""
_RECEIVE_SIZE = 65_536

# From linux/udp.h and linux/in.h, linux/in6.h; the socket module does not have them.
_UDP_SEGMENT, _UDP_GRO = 103, 104
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_IP_MTU, _IPV6_MTU = 14, 24

_IP_RECVERR, _IPV6_RECVERR = 11, 25
_EXTENDED_ERROR = struct.Struct("=IBxxxxxxxxxxx")  # linux/errqueue.h: errno, origin
_FROM_THE_PATH = (2, 3)  # origins: ICMP, ICMPv6
_ERRORS_AT_ONCE = 64

_RETRY = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.ENOBUFS))
_NO_SEGMENTATION = frozenset((errno.EIO, errno.EINVAL, errno.ENOPROTOOPT))


class _Reading:
    """Decides whether to read once more in a wake-up.

    While datagrams come one by one, the second read of each wake-up is a system call that finds
    nothing. Whatever it might have found makes the socket readable in the next turn.
    """

    def __init__(self) -> None:
        self._busy = _LOOKS_EVERY  # wake-ups until the socket no longer counts as busy
        self._single = 0

    def goes_on(self, size: int, reads: int) -> bool:
        """Whether to read again: the last of `reads` in this wake-up had `size` bytes."""
        if reads > 1:
            self._busy = _LOOKS_EVERY
        if self._busy or size >= _SHORT_READ:
            return True
        self._single = (self._single + 1) % _LOOKS_EVERY
        return not self._single

    def found_end(self, reads: int) -> None:
        """The socket was empty after this many reads of one wake-up."""
        if reads <= 1 and self._busy:
            self._busy -= 1


class UdpSocket:
    """A non-blocking UDP socket on the running loop.

    `on_datagrams(datagrams, address)` receives the datagrams of one peer from a few system calls.
    `on_writable()` is called once datagrams that `send` had to hold back are sent.
    `on_error(error, address)` receives the kernel's errors on the path to a peer
    (ECONNREFUSED, EMSGSIZE); the address is None if the kernel does not name it.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_datagrams: Callable[[list[bytes], Address], None],
        on_writable: Callable[[], None],
        on_error: Callable[[OSError, Address], None],
        peer: Address | None = None,
    ) -> None:
        self._sock = sock
        self._peer = peer
        self._on_datagrams = on_datagrams
        self._on_writable = on_writable
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._kept: deque[tuple[list[bytes], Address]] = deque()
        sock.setblocking(False)
        _set_buffers(sock)
        _set_no_fragments(sock)
        # On a shared socket, an error without an address cannot be assigned to a peer.
        self._names_errors = peer is None and _set_errors_with_address(sock)
        self._gro = _try_option(sock, socket.SOL_UDP, _UDP_GRO, 1)
        self._gso = _try_option(sock, socket.SOL_UDP, _UDP_SEGMENT, 0)
        self._ancillary = socket.CMSG_SPACE(4) if self._gro else 0
        self._reading = _Reading()
        self._loop.add_reader(sock.fileno(), self._read)

    @property
    def address(self) -> Address:
        """The bound address."""
        return self._sock.getsockname()

    @property
    def blocked(self) -> bool:
        """Whether datagrams are held back; `on_writable` will be called."""
        return bool(self._kept)

    def close(self) -> None:
        """Close at once. Datagrams that are held back are lost."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
        self._kept.clear()

    def send(self, datagrams: list[Datagram]) -> None:
        """Send datagrams in order, in bursts. Those that the kernel refuses now are sent later."""
        if self._sock.fileno() < 0:
            return
        was_blocked = self.blocked
        if len(datagrams) == 1 or len(datagrams[0][0]) > _BYTES_PER_SEND // 2:
            self._kept += [([data], address) for data, address in datagrams]
        else:
            self._keep(datagrams)
        if not was_blocked:
            self._flush()
            if self._kept:
                self._loop.add_writer(self._sock.fileno(), self._resume)

    def _keep(self, datagrams: list[Datagram]) -> None:
        for address, group in groupby(datagrams, key=_address_of):
            burst: list[bytes] = []
            size = 0
            for data, _ in group:
                full = len(burst) == _SEGMENTS or size + len(data) > _BYTES_PER_SEND
                # Segments of one burst are equal; only the last may be shorter.
                uneven = burst and (len(data) > len(burst[0]) or len(burst[-1]) != len(burst[0]))
                if burst and (full or uneven):
                    self._kept.append((burst, address))
                    burst, size = [], 0
                burst.append(data)
                size += len(data)
            self._kept.append((burst, address))

    def send_or_drop(self, data: bytes, address: Address) -> None:
        """Send one expendable datagram, if the kernel takes it now."""
        if self.blocked or self._sock.fileno() < 0:
            return
        try:
            self._sock.sendto(data, address)
        except OSError as e:
            if e.errno not in _RETRY:
                self._report_errors()  # of earlier datagrams, most likely

    def _resume(self) -> None:
        self._flush()
        if not self._kept and self._sock.fileno() >= 0:
            self._loop.remove_writer(self._sock.fileno())
            self._on_writable()

    def _flush(self) -> None:
        while self._kept:
            burst, address = self._kept[0]
            try:
                self._send_burst(burst, address)
            except OSError as e:
                if e.errno in _RETRY:
                    return
                if len(burst) > 1 and self._gso and e.errno in _NO_SEGMENTATION:
                    logger.info("UDP_SEGMENT does not work here: %s", e.strerror)
                    self._gso = False
                    continue
                if self._report_errors():
                    continue  # the error concerned earlier datagrams; this burst has not been sent
                self._kept.popleft()
                self._on_error(e, address)
                continue
            self._kept.popleft()

    def _send_burst(self, burst: list[bytes], address: Address) -> None:
        target = () if self._peer is not None else (address,)
        if len(burst) == 1:
            self._sock.sendmsg(burst, [], 0, *target)
        elif self._gso:
            segment = struct.pack("=H", len(burst[0]))
            self._sock.sendmsg(burst, [(socket.SOL_UDP, _UDP_SEGMENT, segment)], 0, *target)
        else:
            while len(burst) > 1:
                self._sock.sendmsg(burst[:1], [], 0, *target)
                del burst[0]  # a sent datagram must not be sent again after EAGAIN
            self._sock.sendmsg(burst, [], 0, *target)

    def _read(self) -> None:
        """Receive pending datagrams, up to a bound, and pass them on by peer."""
        arrived: list[bytes] = []
        sender: Address = None
        error: OSError | None = None
        size = reads = 0
        until = 0.0  # set when there are several senders
        while size < _BYTES_PER_WAKE_UP and len(arrived) < _DATAGRAMS_PER_WAKE_UP:
            try:
                data, control, _, address = self._sock.recvmsg(_RECEIVE_SIZE, self._ancillary)
            except (BlockingIOError, InterruptedError):
                self._reading.found_end(reads)
                break
            except OSError as e:
                error = e
                break
            reads += 1
            if address != sender and arrived:
                self._on_datagrams(arrived, self._peer or sender)
                if self._sock.fileno() < 0:
                    return
                arrived = []
                until = until or clock.perf_counter() + _SECONDS_PER_WAKE_UP
            sender = address
            read = len(data)
            size += read
            if control:
                arrived += _cut(data, control)
            else:
                arrived.append(data)
            is_over = until and clock.perf_counter() >= until
            if is_over or not self._reading.goes_on(read, reads):
                break
        if arrived:
            self._on_datagrams(arrived, self._peer or sender)
        # An error may be in the error queue only; while it is there, the socket is readable.
        reported = not arrived and self._report_errors()
        if error is not None and not reported and self._sock.fileno() >= 0:
            self._on_error(error, self._peer)

    def _report_errors(self) -> bool:
        """Pass on the ICMP errors of hosts and routers; returns whether there were any."""
        errors: list[tuple[int, Address]] = []
        if not self._names_errors:
            return False
        for _ in range(_ERRORS_AT_ONCE):
            try:
                _, control, _, address = self._sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
            except OSError:
                break
            for _, kind, value in control:
                if kind in (_IP_RECVERR, _IPV6_RECVERR):
                    code, origin = _EXTENDED_ERROR.unpack_from(value)
                    if origin in _FROM_THE_PATH:
                        errors.append((code, address))
        for code, address in errors:
            self._on_error(OSError(code, os.strerror(code)), address)
        return bool(errors)


def bind_udp(host: str, port: int) -> socket.socket:
    """Make a UDP socket bound to this address. Raises OSError."""
    family, _, _, _, address = sockets.getaddrinfo(
        host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
    )[0]
    sock = sockets.socket(family, socket.SOCK_DGRAM)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def route_mtu(sock: socket.socket) -> int:
    """Return the kernel's MTU of the route of a connected socket, in bytes."""
    if sock.family == socket.AF_INET6:
        return sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
    return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)


def _cut(data: bytes, control: list[tuple[int, int, bytes]]) -> list[bytes]:
    """Cut the data of one system call into its datagrams."""
    segment = len(data)
    for level, kind, value in control:
        if level == socket.SOL_UDP and kind == _UDP_GRO:
            segment = int.from_bytes(value[:4], sys.byteorder)
    if len(data) <= segment or segment <= 0:
        return [data]
    return [data[i : i + segment] for i in range(0, len(data), segment)]


def _address_of(datagram: Datagram) -> Address:
    return datagram[1]


def _try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _set_buffers(sock: socket.socket) -> None:
    for option, name in ((socket.SO_RCVBUF, "net.core.rmem_max"), (socket.SO_SNDBUF, "wmem_max")):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
        # The kernel grants less without an error, and reports twice what it grants.
        granted = sock.getsockopt(socket.SOL_SOCKET, option) // 2
        if granted < SOCKET_BUFFER:
            logger.info(
                "the kernel grants a UDP buffer of %d bytes, not %d (%s): bursts may be lost",
                granted,
                SOCKET_BUFFER,
                name,
            )


def _set_errors_with_address(sock: socket.socket) -> bool:
    if sock.family == socket.AF_INET6:
        return _try_option(sock, socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
    return _try_option(sock, socket.IPPROTO_IP, _IP_RECVERR, 1)


def _set_no_fragments(sock: socket.socket) -> None:
    if sock.family == socket.AF_INET6:
        _try_option(sock, socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
    else:
        _try_option(sock, socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
