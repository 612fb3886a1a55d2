"""Snapshots of the log: the cut, what holds its files, and the files of a snapshot."""
