"""The mesh's QUIC connection over aioquic, and the only modules that name its private attributes.

aioquic's connection takes bytes and `now` and is complete, but it works packet by packet, and some
of the mesh's needs have no public seam. What is used of it, and what of the mesh breaks without it,
is listed in `tests/unit/mesh_ops/test_aioquic_assumptions.py`: its tests fail by name when a new
release moves something. The pin in `pyproject.toml` and `quic_class.KNOWN_AIOQUIC` are raised
together with them.

These hooks in aioquic would make the package unnecessary, most valuable first:

1. Packets by the burst: a public packet builder that seals stream data into one buffer, and one
   that opens many datagrams at once, with the send and receive keys of the current phase
   (`batched.py`, `burst.py`, `small.py`, `small_reader.py`, `protection.py`).
2. A recovery class as an argument of the connection, whose records of sent packets may stand for
   several packets, and which reports losses (`recovery.py`, `counters.py`).
3. Whether a connection has anything but ACKs and stream data to send (`chores.py`, `settled.py`).
4. A certificate request to clients, and a callback that judges the peer's certificate inside the
   handshake (`mutual_tls.py`). The present request flag is for tests, and nothing is verified.
5. A limit on the bytes that one `datagrams_to_send` builds, a datagram size that may change, and
   probes of it (RFC 8899); a pacer as an argument (`quic.py`).
6. Stream senders that keep data by reference, and figures of a stream: bytes not yet sent, bytes
   held after gaps, whether all is acknowledged (`quic.py`).
7. Stateless resets: a token per connection id, and an event when a peer's arrives (`quic.py`).
"""
