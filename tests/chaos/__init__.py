"""Brokers on one object store that are killed, paused and stopped at random: `make chaos`."""
