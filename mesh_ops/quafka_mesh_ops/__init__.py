"""The mesh: the ops between gateway and broker, and their transport over QUIC."""
