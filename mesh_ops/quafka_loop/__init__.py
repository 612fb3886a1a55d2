"""What Quafka adds to the event loop, and the seam to the outside of the process.

Added: tasks that start at once, long work in slices, turns between orgs, deadlines on one timer,
calls at the end of a turn, and searches for garbage in short steps.

Product code reads clocks, sleeps, makes threads and opens sockets through `clock`, `threads` and
`sockets` only. Each of these modules holds the operating system's functions and classes as
attributes, which a simulation replaces before the product starts. So product code refers to the
module (`clock.monotonic()`), never to a name imported from it.
"""
