"""Single-key linearisability of metadata and committed offsets, decided by Porcupine (Go)."""
