"""When something is sent again."""

from __future__ import annotations

import random
import time


class Repeat:
    """Tells when to send: after `wait` seconds, then `first` later, the gap doubling up to `last`."""

    def __init__(self, first: float, last: float, wait: float = 0.0) -> None:
        self.at, self.gap, self.last = time.monotonic() + wait, first, last

    def due(self) -> bool:
        if time.monotonic() < self.at:
            return False
        self.at, self.gap = time.monotonic() + jitter(self.gap), min(2 * self.gap, self.last)
        return True


def jitter(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)
