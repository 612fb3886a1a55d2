"""Tests of traces, metrics, the operations port and the event-loop helpers."""
