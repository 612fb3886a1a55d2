"""A simulated runtime: product code runs unchanged on a virtual clock, in one thread.

`hub` has the clock and decides what runs next; `loop` is an asyncio event loop on it; `threads` has
the classes of `quafka_loop.threads`, whose threads are fibers of the hub; `network` has TCP and UDP
in memory; `installed` puts all of them in the place of the real ones.
"""
