"""Tests of what the system itself does: sockets, descriptors, signals, threads that really race.

They run on the real clock, wait for events with generous deadlines, and bound no elapsed time.
"""
