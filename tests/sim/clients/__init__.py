"""Kafka clients of the simulation: state machines that write what they do into a history."""
