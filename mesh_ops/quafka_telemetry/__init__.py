"""Traces, metrics, status pages and the operations port of a process."""
