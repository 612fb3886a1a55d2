"""Traces, metrics, log context, the operations port and event-loop helpers of a process."""
