"""The write-ahead log: store, index, segment, log, recovery, and the disk seam."""
