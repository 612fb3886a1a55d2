"""The QUIC transport of the mesh: sockets, bursts, path MTU, congestion control."""
