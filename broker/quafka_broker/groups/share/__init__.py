"""Members of share groups (KIP-932), without I/O: `ShareGroup` in group.py."""
