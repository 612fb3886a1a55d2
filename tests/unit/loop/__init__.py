"""Tests of what Quafka adds to the event loop."""
