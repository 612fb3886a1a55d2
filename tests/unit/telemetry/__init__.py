"""Tests of traces, metrics and the operations port."""
