"""Tests of the mesh: ops, frames, connections and their transport."""
