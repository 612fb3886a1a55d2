"""What reference counts do not free."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def searched() -> Iterator[list[str]]:
    """What only a search finds, by its class: of this product, and futures."""
    found: list[str] = []
    gc.freeze()  # a search of all that the other tests have made takes seconds
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        ours = [each for each in kinds if each.__module__.startswith("quafka_")]
        found += sorted(each.__qualname__ for each in ours)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
