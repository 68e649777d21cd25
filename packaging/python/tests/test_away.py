"""fedmesh.agent where only some agents answer, and the others leave the broker for a while."""

from __future__ import annotations

import pathlib
import struct
import time
from typing import Any, List, Optional, Tuple

import pytest

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed")

from fedmesh.agent import _away as away  # noqa: E402
from fedmesh.agent import _wire as w  # noqa: E402
from test_agent import SEALING, Plant, Table, external  # noqa: E402

SCHEMA, BASE = w.schema_hash(("w", 1, [2, 2]), ("b", 1, [])), struct.pack("<5f", 3, 1, 1, 1, 1)
OTHERS = w.Record(weight=1.0, tags=[7], masks=[])


class Crowd(Table):
    """An agent, a coordinator of the test's that asks some agents, and what the broker keeps of its presence."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.kept: List[Tuple[bool, bytes]] = []
        super().__init__(folder, {"plant": Plant})

    def take(self, rest: str, payload: bytes, retain: bool = False) -> Any:
        if rest.startswith("p/"):
            self.kept.append((retain, payload))
        if payload:
            super().take(rest, payload, retain)
        return w.Record(is_published=lambda: True)

    def asks(self, round: int, of: int, attempt: int = 1, phase: int = w.GATHERING, after: int = 60000,
             presence: int = 0, selection: Optional[w.Record] = None, sealed: Any = None) -> None:
        blobs = [w.Record(name=name, blob=w.Record(hash=w.blob_digest(b), manifest=w.NONE, length=len(b), inline=b))
                 for name, b in (("base", BASE), ("task", external()))]
        respond = w.Record(of=of, return_after=after, return_within=30000, presence=presence)
        self.tell("announcement", round, attempt=attempt, phase=phase, kind=w.TRAINING, version=round, instance=1,
                  folded=round - 1, blobs=blobs, schema=SCHEMA, seed=3, offset=0, hello_within=1, round_within=60000,
                  sections=w.without(credit=None, respond=respond, sealed=sealed, seals=SEALING, selection=selection))

    def work(self) -> None:
        """Let the agent do what is to be done now: its data are checked then."""
        while self.agent.preparing:
            self.agent.turn()
        self.agent.hello.at = 0 if self.agent.hello.at < 1e9 else self.agent.hello.at
        self.agent.turn()

    def hellos(self) -> List[Any]:
        found = [said.body.sections.respond for _, said in self.sent if said.name == "hello"]
        self.sent.clear()
        return found

    def leaves(self) -> Optional[float]:
        return None if self.agent.needs_link() else self.agent.away.leaves_for(self.agent.announcement)


@pytest.fixture
def crowd(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    monkeypatch.setattr(away, "draw", lambda: 100)
    return Crowd(tmp_path)


def test_it_answers_by_chance(crowd: Crowd) -> None:
    crowd.asks(1, of=100)
    crowd.work()
    assert crowd.hellos() == [], "it says hello, and has drawn 100 of 100"
    crowd.asks(1, of=101, attempt=2)
    crowd.work()
    assert crowd.hellos() == [101], "an attempt that asks more"
    crowd.asks(2, of=0)
    crowd.work()
    assert crowd.hellos() == [None], "all are asked"
    crowd.asks(3, of=1)
    crowd.work()
    crowd.asks(4, of=101, phase=w.IDLE)
    crowd.work()
    assert crowd.hellos() == [], "an announcement that asks nobody has it draw"
    crowd.asks(6, of=101, phase=w.IDLE)
    crowd.work()
    assert crowd.hellos() == [101], "having missed a round it draws, too"


def test_all_attempts_count_by_one_draw(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([50, 200, 10])
    monkeypatch.setattr(away, "draw", lambda: next(drawn))
    crowd.asks(1, of=100)
    crowd.asks(1, of=51, attempt=2)
    assert not crowd.agent.away.undrawn and crowd.agent.away.luck == (9, 1, 50)
    crowd.asks(2, of=100)
    assert crowd.agent.away.undrawn and crowd.agent.away.luck == (9, 2, 200)


def test_an_older_announcement_is_answered_by_chance(crowd: Crowd) -> None:
    crowd.asks(2, of=0)
    for of, answered in (100, False), (101, True):
        crowd.agent.object_at, crowd.agent.object_after = float("inf"), 0.0
        crowd.asks(1, of=of)
        assert (crowd.agent.object_at < float("inf")) == answered


def test_it_leaves_without_a_part(crowd: Crowd) -> None:
    assert crowd.leaves() is None, "no announcement has come"
    crowd.asks(1, of=1)
    crowd.work()
    wait = crowd.leaves()
    assert wait is not None and 60 <= wait <= 90
    crowd.agent.away.connected()
    assert crowd.leaves() is None, "back, it has read no announcement"
    crowd.asks(2, of=101)
    crowd.work()
    assert crowd.leaves() is None and crowd.hellos() == [101], "it is drawn"
    crowd.tell("standing", 2, announcement=crowd.agent.announcement.digest, place=1, samples=5)
    assert crowd.leaves() is None, "it is counted"
    crowd.asks(2, of=101, phase=w.OPEN, selection=OTHERS)
    crowd.work()
    assert crowd.leaves() is not None, "the round names others"
    crowd.asks(3, of=1, after=0)
    crowd.agent.announcement.body.sections.respond.return_within = 0
    assert crowd.leaves() is None, "no time is told"


def test_a_part_keeps_it(crowd: Crowd) -> None:
    crowd.asks(1, of=101)
    crowd.work()
    crowd.asks(1, of=101, phase=w.OPEN)
    crowd.invite(1)
    update = crowd.until("update")
    assert crowd.leaves() is None, "its update is under way"
    crowd.tell("accepted", 1, update=w.blob_digest(update.body.inline))
    assert crowd.leaves() is None, "its update is accepted, and not folded"
    crowd.asks(1, of=101, phase=w.IDLE, attempt=2)
    crowd.sent.clear()
    crowd.asks(2, of=101)
    crowd.work()
    assert crowd.leaves() is not None and crowd.hellos() == [], "it had its part: those that are away have their turn"
    crowd.asks(3, of=101)
    crowd.work()
    assert crowd.hellos() == [101], "and then it is drawn as all are"


def test_it_leaves_without_the_key(crowd: Crowd) -> None:
    group = bytes(range(32))
    sealed = w.Record(group=w.key_id(group), blobs=[w.Record(name="task", blob=bytes(32))])
    crowd.asks(1, of=1, sealed=sealed)
    end = time.monotonic() + 0.01  # a hello is spread over one millisecond
    while time.monotonic() < end:
        crowd.agent.turn()
    assert crowd.agent.preparing and crowd.hellos() == [] and crowd.leaves() is not None
    crowd.asks(2, of=101, sealed=sealed)
    assert crowd.leaves() is None, "drawn, it waits for the key"


def test_presence_of_the_round(crowd: Crowd) -> None:
    def told() -> List[Tuple[bool, int]]:
        found = [(retained, w.unseal(p, "plant_7", "press-01", crowd.agent.key.public_key()).body.state if p else 0)
                 for retained, p in crowd.kept]
        crowd.kept.clear()
        return found
    crowd.agent.mqtt = w.Record(disconnect=lambda: None, loop=lambda _wait: 1, subscribe=lambda *_: None)
    crowd.agent.turn()
    assert told() == [(True, w.ONLINE)], "before an announcement it tells its presence"
    crowd.asks(1, of=1, presence=1)
    crowd.agent.leave()
    assert told() == [(False, w.OFFLINE), (True, 0)], "the broker keeps a presence of one that has left"
    crowd.agent.away.connected()
    crowd.asks(2, of=101, presence=1)
    crowd.work()
    assert crowd.agent.quiet() and told() == [], "one that is asked has no part yet"
    crowd.asks(2, of=101, phase=w.OPEN, presence=1)
    crowd.invite(2)
    crowd.until("update")
    assert not crowd.agent.quiet() and told() == [(True, w.ONLINE)]
    crowd.asks(3, of=1, presence=0)
    crowd.agent.leave()
    assert told() == [(True, w.OFFLINE)]
