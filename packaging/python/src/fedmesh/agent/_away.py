"""Whether the agent answers, and when it leaves the broker for a while (sections 7.1 and 10.3 of docs/PROTOCOL.md)."""

from __future__ import annotations

import random
from typing import Any, Optional, Tuple

from fedmesh.agent import _wire as w
from fedmesh.agent._repeat import Repeat, jitter
from fedmesh.agent._wire import Record

NOBODY_LEAVES = Record(of=0, return_after=0, return_within=0, presence=0)


def respond_of(announcement: Optional[Record]) -> Record:
    """What an announcement asks; without the section, or before there is one, all answer and nobody leaves."""
    found = announcement.body.sections.respond if announcement else None
    return found or NOBODY_LEAVES


def draw() -> int:
    return random.getrandbits(32)


class Away:
    """What an agent has drawn for a round, and whether the round goes on without it."""

    def __init__(self) -> None:
        self.luck: Tuple[int, int, int] = (0, 0, 0)  # run, round, and what was drawn for them
        self.undrawn = False
        self.of = 0  # by which the agent was drawn to answer; 0 = it always answers
        self.apart = False  # the round names others, as the agent was told
        self.had_part = False  # in a round, since the last draw
        self.read = False  # an announcement has come over this link
        self.online = False  # presence online is told on this link
        self.reread = Repeat(600, 600, jitter(600))  # the announcement, where no answer tells that one was lost

    def connected(self) -> None:
        self.read = self.online = False

    def came(self, announcement: Record, named: bool) -> None:
        """Takes note of an announcement that is obeyed."""
        a = announcement.body
        self.reread = Repeat(600, 600, jitter(600))
        self.apart = a.phase == w.OPEN and a.sections.selection is not None and not named

    def draw(self, announcement: Record, named: bool) -> None:
        """Decides by chance whether the agent answers. All attempts of a round count by one draw."""
        r, had_part = respond_of(announcement), self.had_part
        self.of, self.undrawn, self.had_part = 0, False, False
        if named or not r.of:
            return
        if self.luck[:2] != (announcement.run, announcement.round):
            self.luck = announcement.run, announcement.round, draw()
        # Of those that may leave, those that were here until now would else be drawn before those that are away.
        self.undrawn = self.luck[2] >= r.of or had_part and r.return_after + r.return_within > 0
        self.of = 0 if self.undrawn else r.of

    def leaves_for(self, announcement: Optional[Record]) -> Optional[float]:
        """Seconds for which an agent may leave that has no part and needs nothing; None if it stays."""
        r = respond_of(announcement)
        if not self.read or r.return_after + r.return_within == 0 or not (self.undrawn or self.apart):
            return None
        return float(r.return_after + random.uniform(0, r.return_within)) / 1000


def answers(older: Any) -> bool:
    """Tells by chance whether an older announcement is answered."""
    of = older.sections.respond.of if older.sections.respond else 0
    return of == 0 or draw() < of
