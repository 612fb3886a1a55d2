"""How mesh bytes travel: sockets, datagram batching, path MTU, congestion settings."""
