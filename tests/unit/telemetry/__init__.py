"""Tests of the mesh: what gateway and broker say to each other, and how it travels."""
