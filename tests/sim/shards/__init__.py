"""Shards in an object store under simulated trouble: one process, no threads, time that is counted.

Every run is made from its seed, and is the same each time; `python -m tests.sim.shards` runs many.
"""
