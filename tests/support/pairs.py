"""Whether two sets of times can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def longer(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """The share of pairs of one and other in which the one is longer, and by how many standard
    deviations that differs from chance (Mann and Whitney)."""
    both = np.concatenate([ones, others])
    ranks = np.empty(len(both))
    ranks[np.argsort(both, kind="stable")] = np.arange(1, len(both) + 1)
    n, m = len(ones), len(others)
    share = (float(ranks[:n].sum()) - n * (n + 1) / 2) / (n * m)
    return share, (share - 0.5) / ((n + m + 1) / (12 * n * m)) ** 0.5
