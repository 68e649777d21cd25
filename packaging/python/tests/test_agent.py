"""fedmesh.agent without a broker: what it computes, what it declines, and a round with a coordinator of the test's."""

from __future__ import annotations

import base64
import math
import pathlib
import struct
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np
import pytest

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: E402
from cryptography.hazmat.primitives.serialization import (  # noqa: E402
    Encoding, NoEncryption, PrivateFormat, PublicFormat)

from fedmesh.agent import Agent  # noqa: E402
from fedmesh.agent import _wire as w  # noqa: E402
from fedmesh.agent.__main__ import main  # noqa: E402
from fedmesh.agent._learner import Declined, Learner  # noqa: E402
from fedmesh.trainer import Job, Start, Trainer  # noqa: E402

WAIT = 60.0  # seconds: a deadline for what has gone wrong, which nothing waits for
SECTIONS = [
    "codec", "external", "frozen", "huber", "proximal", "gradient_noise", "inputs", "sensors", "mixing", "standardization"]


def task(unknown: Any = (), **changes: Any) -> bytes:
    sections = dict.fromkeys(SECTIONS)
    sections.update({name: changes.pop(name) for name in list(changes) if name in SECTIONS})
    fields = dict(
        name="press", features=["u", "v"], target="y", hidden=[], outputs=1, activation=3, risk=1, bias=1, ridge=0.0,
        exchange=1, batch_size=0, response_prob=0.0, step_size=0.25, strong_convexity=0.0, gamma=0.0, normalize=0,
        budget=1000, min_steps=2, max_steps=8, min_samples=0)
    fields.update(changes)
    return w.TASK.write(w.Record(**fields, sections=w.Record(unknown=list(unknown), **sections)))


def external(trainer: str = "plant", **changes: Any) -> bytes:
    tensors = [w.Record(name="w", element=1, shape=[2, 2]), w.Record(name="b", element=1, shape=[])]
    return task(features=[], target="", external=w.Record(trainer=trainer, tensors=tensors), **changes)


class Plant(Trainer):
    """The loss is half the square of x - 1, in all elements. Its rows become more in each fit."""

    knows: Set[str] = set()

    def __init__(self) -> None:
        self.count = 5

    def begin(self, start: Start) -> None:
        assert (start.federation, start.device, start.task) == ("plant_7", "press-01", "press"), start
        assert start.shapes == {"w": (2, 2), "b": ()}, start

    def can(self) -> Set[str]:
        return self.knows

    def rows(self) -> int:
        return self.count

    def risk(self, params: Any) -> float:
        return sum(float(np.sum((x - 1) ** 2)) for x in params.values()) / 2

    def fit(self, params: Any, job: Job) -> None:
        for _ in job:
            for name, x in params.items():
                back = job.proximal * (x - job.base[name]) if job.proximal else 0
                params[name] = x - job.step_size * (x - 1 + back)
        self.count += 1


def learn(blob: bytes, data: Optional[pathlib.Path] = None, make: Any = Plant) -> Learner:
    return Learner(blob, None if data is None else str(data), {"plant": make}, "plant_7", "press-01")


def train(learner: Learner, base: List[float], weight: float = 1.0, step_time: float = 0.0, draw: str = "7",
          offset: int = 0, stop: Optional[threading.Event] = None) -> Tuple[Any, Dict[str, Any]]:
    packed = struct.pack(f"<{len(base)}f", *base)
    delta, fields = learner.train(packed, offset, weight, step_time, draw, stop or threading.Event())
    return np.frombuffer(delta, "<f4"), fields


@pytest.fixture
def rows(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "rows.csv"
    path.write_text('note,y,u,v\n"a, b",1,0,1\nx,2,1,0\n,4,1,2\n')
    return path


X, Y = np.array([[0, 1, 1], [1, 0, 1], [1, 2, 1.0]]), np.array([1, 2, 4.0])


def test_linear_takes_the_steps_of_the_page(rows: pathlib.Path) -> None:
    learner = learn(task(ridge=0.1), rows)
    start = np.array([0.5, -1, 2])
    here = start
    for _ in range(2):
        here = here - 0.25 * 3 * (X.T @ (X @ here - Y) / 3 + 0.1 * here)

    def risk(at: Any) -> float:
        return float(((X @ at - Y) ** 2).mean() + 0.1 * at @ at) / 2
    delta, fields = train(learner, list(start), weight=3)
    np.testing.assert_allclose(delta, here - start, rtol=1e-6)
    assert fields["local_steps"] == 2
    assert fields["risk_before"] == pytest.approx(risk(start), rel=1e-6)
    assert fields["risk_after"] == pytest.approx(risk(here), rel=1e-6)
    shares, _ = train(learn(task(ridge=0.1, normalize=1), rows), list(start), weight=6)
    np.testing.assert_allclose(shares, delta, rtol=1e-6)


def test_linear_has_a_schedule(rows: pathlib.Path) -> None:
    learner = learn(task(step_size=0.0, strong_convexity=4.0, gamma=3.0, bias=0), rows)
    here, x = np.zeros(2), X[:, :2]
    for step in 1, 2:
        here = here - 2 / (4 * (3 + 10 + step)) * (x.T @ (x @ here - Y) / 3)
    np.testing.assert_allclose(train(learner, [0, 0], offset=10)[0], here, rtol=1e-6)


def test_linear_standardises_and_sums(rows: pathlib.Path) -> None:
    learner = learn(task(), rows)
    assert learner.linear
    vector, schema = learner.linear.statistics()
    # the sums 2, 3, 7 and the sums of squares 2, 5, 21 of 3 rows
    expected = (3, 2 / 3, 1, 7 / 3, 2 - 4 / 3, 5 - 9 / 3, 21 - 49 / 3)
    np.testing.assert_allclose(struct.unpack("<7d", vector), expected, rtol=1e-12)
    assert schema == w.schema_hash(("count", 2, [1]), ("mean", 2, [3]), ("squares", 2, [3]))
    s = w.Record(mean=[0.5, 1.0, 2.0], scale=[0.25, 2.0, 4.0], clip=1.5)
    scaled = learn(task(standardization=s), rows)
    h = ((X[:, :2] - [0.5, 1]) / [0.25, 2]).clip(-1.5, 1.5)
    risk = 16 * ((h @ [1, -1] - (Y - 2) / 4) ** 2).mean() / 2
    assert train(scaled, [1, -1, 0])[1]["risk_before"] == pytest.approx(risk)


def test_linear_draws(rows: pathlib.Path) -> None:
    noise = w.Record(law=2, variance=0.01)
    learner = learn(task(batch_size=2, response_prob=0.5, gradient_noise=noise, min_steps=8), rows)
    first, again, other = (train(learner, [0, 0, 0], draw=draw)[0] for draw in ("7", "7", "8"))
    assert first.tolist() == again.tolist() != other.tolist()
    for law in 1, 2:
        assert learner.linear
        learner.linear.task.sections.gradient_noise.law = law
        drawn = learner.linear.noise(np.random.default_rng(1), (100000,))
        assert abs(drawn.mean()) < 0.002 and drawn.std() == pytest.approx(0.1, rel=0.02)


def test_trainer_trains() -> None:
    learner = learn(external(min_steps=1, max_steps=4))
    delta, fields = train(learner, [3, 1, 1, 1, 2], weight=2)  # one step halves the way to 1
    assert delta.tolist() == [-1, 0, 0, 0, -0.5]
    assert (fields["local_steps"], fields["risk_before"], fields["risk_after"]) == (1, 2.5, 0.625)
    assert learner.rows == 6, "the rows that have come are not counted"
    assert learner.schemas == {w.TRAINING: w.schema_hash(("w", 1, [2, 2]), ("b", 1, []))}
    # As many steps as the budget of a second has room for, as far as the task lets it.
    assert [learner.steps(seconds) for seconds in (0, 0.1, 0.4, 3)] == [1, 4, 2, 1]


def test_trainer_knows_the_proximal_term() -> None:
    with pytest.raises(Declined, match="task.proximal, which the trainer 'plant' does not know"):
        learn(external(proximal=1.0))

    class Able(Plant):
        knows = {"proximal"}
    delta, _ = train(learn(external(proximal=1.0), make=Able), [3, 1, 1, 1, 1])
    assert delta.tolist() == [-0.75, 0, 0, 0, 0]  # 3, 2.5, 2.5 - 0.25 * (1.5 - 0.5)


def test_what_is_stopped_is_stretched() -> None:
    stop = threading.Event()

    class Slow(Plant):
        def fit(self, params: Any, job: Job) -> None:
            for step in job:
                params["b"] = params["b"] + 1
                if step == 2:
                    stop.set()
    learner = learn(external(min_steps=6), make=Slow)
    delta, fields = train(learner, [0] * 5, stop=stop)
    assert (fields["local_steps"], delta[-1]) == (2, 6)
    with pytest.raises(Declined, match="not one step") as declined:
        train(learner, [0] * 5, stop=stop)
    assert declined.value.reason == w.NO_TIME


def bad(what: str) -> Any:
    class Bad(Plant):
        def begin(self, start: Start) -> None:
            if what == "begin":
                raise RuntimeError("no such sensor")

        def fit(self, params: Any, job: Job) -> None:
            for _ in job:
                if what == "raise":
                    raise RuntimeError("out of paper")
                params["b"] = params["b"] + (math.nan if what == "nan" else 1)
                if what == "shape":
                    params["w"] = np.zeros(3)
                if what == "count":
                    self.count = 0
    return Bad


@pytest.mark.parametrize("what, reason, why", [
    ("begin", w.BAD_DATA, "RuntimeError: no such sensor"), ("raise", w.BAD_DATA, "RuntimeError: out of paper"),
    ("nan", w.DIVERGED, "NaN"), ("shape", w.BAD_DATA, r"tensor w is float64 \[3\]"), ("count", w.BAD_DATA, "0 rows"),
])
def test_trainer_fails(what: str, reason: int, why: str) -> None:
    with pytest.raises(Declined, match=why) as declined:
        train(learn(external(), make=bad(what)), [0] * 5)
    assert declined.value.reason == reason


def test_linear_diverges(rows: pathlib.Path) -> None:
    with pytest.raises(Declined) as declined:
        train(learn(task(step_size=1e30), rows), [1, 1, 1])
    assert declined.value.reason == w.DIVERGED


MIXING = w.Record(every=1, wait=1, repeat=1, drain=1, codec=1, open=0, endless=0)
INPUTS = w.Record(step=1, lateness=1, zone="", inputs=[])


@pytest.mark.parametrize("blob, why", [
    (task(unknown=[("later", w.DECLINE, b"1")]), "does not know: later"),
    (task(unknown=[("personal", w.DECLINE, w.list_of(w.string(), 27).write(["last"]))]), "does not know: personal"),
    (external(mixing=MIXING), "mix with their neighbours"), (external(codec=3), "packed"),
    (task(exchange=2), "gradients"), (external(step_size=0.0), "numbers make no sense"),
    (external(trainer="other"), "wants the trainer 'other'"), (task(hidden=[4]), "linear models"),
    (task(risk=2), "linear models"), (task(inputs=INPUTS), "made of readings"),
    (task(proximal=1.0), "task.proximal"), (task(frozen=["layer0"]), "task.frozen"),
    (task(features=["u", "u"]), "columns"), (task()[:-1], "cannot be read"),
])
def test_what_it_cannot_do_it_declines(rows: pathlib.Path, blob: bytes, why: str) -> None:
    with pytest.raises(Declined, match=why) as declined:
        learn(blob, rows)
    assert declined.value.reason == w.UNSUPPORTED


def test_data_that_do_not_fit(rows: pathlib.Path) -> None:
    assert learn(task(unknown=[("later", w.IGNORE, b"1")]), rows).rows == 3
    for blob, text, reason, why in [
        (task(target="z"), None, w.BAD_DATA, "KeyError: 'z'"), (task(min_samples=4), None, w.TOO_FEW_ROWS, "wants 4"),
        (task(), "y,u,v\n1,2,x\n", w.BAD_DATA, "could not convert"), (task(), "y,u,v\n1,2\n", w.BAD_DATA, "TypeError"),
        (task(), "y,u,v\n1,2,inf\n", w.BAD_DATA, "not finite"), (task(), "y,u,v\n", w.TOO_FEW_ROWS, "0 rows"),
    ]:
        if text is not None:
            rows.write_text(text)
        with pytest.raises(Declined, match=why) as declined:
            learn(blob, rows)
        assert declined.value.reason == reason
    with pytest.raises(Declined, match="no data"):
        learn(task())


# A coordinator of the test's, with the agent's messages instead of a broker.

OWN, HERS = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
SEALING = X25519PrivateKey.from_private_bytes(bytes([3]) * 32).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
UP, DOWN = w.seal_pair(OWN, SEALING)
PUBLIC = base64.b64encode(HERS.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


class Table:
    """An agent that is connected to nothing, and what it has published."""

    def __init__(self, folder: pathlib.Path, trainers: Any) -> None:
        path = folder / "press.key"
        path.write_bytes(OWN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.agent = Agent("tcp://nowhere:1883", "plant_7", "press-01", path, PUBLIC, trainers=trainers)
        self.sent: List[Any] = []
        self.agent.publish = self.take  # type: ignore[method-assign]
        self.agent.hello = None
        self.sequence = 0
        self.agent.owe_hello()

    def take(self, rest: str, payload: bytes, retain: bool = False) -> None:
        said = w.unseal(payload, "plant_7", "press-01", OWN.public_key())
        assert said.name not in w.SEALED, f"an unsealed {said.name}"
        if said.name == "sealed":
            said.name, said.body = w.open_body(UP, said.place, said.body)
        self.sent.append((rest, said))

    def tell(self, name: str, round: int, sealed: bool = True, **body: Any) -> None:
        self.sequence += 1
        place = ("plant_7", "coordinator", 1, 9, round, self.sequence)
        data = w.BODIES[name].write(w.Record(**body))
        if sealed and name in w.SEALED:
            data, name = w.seal_body(DOWN, SEALING, w.place(*place), name, data), "sealed"
        topic = self.agent.topic("round" if name == "announcement" else "d/plant_7-press-01")
        self.agent.receive(topic, w.seal(HERS, name, *place, data))

    def announce(self, round: int, blob: bytes, base: bytes, schema: bytes, key: Optional[bytes] = SEALING) -> None:
        blobs = [w.Record(name=name, blob=w.Record(hash=w.blob_digest(b), manifest=w.NONE, length=len(b), inline=b))
                 for name, b in (("base", base), ("task", blob))]
        self.tell("announcement", round, attempt=1, phase=w.OPEN, kind=w.TRAINING, version=round, instance=1,
                  folded=round - 1, blobs=blobs, schema=schema, seed=3, offset=0, hello_within=1, round_within=60000,
                  sections=w.without(credit=None, respond=None, sealed=None, seals=key, selection=None))

    def invite(self, round: int, sealed: bool = True) -> None:
        self.tell("invitation", round, sealed, agent="press-01", announcement=self.agent.announcement.digest,
                  left=60000, weight=1.0, uploads=1, sections=w.without(mixing=None, rows=None))

    def until(self, name: str) -> Any:
        """Let the agent work until it says that, and return what it has said."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            self.agent.turn()
            for at, (_, said) in enumerate(self.sent):
                if said.name == name:
                    del self.sent[:at + 1]
                    return said
        raise AssertionError(f"no {name}, but {self.sent}")


def test_rounds(tmp_path: pathlib.Path) -> None:
    table = Table(tmp_path, {"plant": Plant})
    blob, base = external(), struct.pack("<5f", 3, 1, 1, 1, 1)
    schema = w.schema_hash(("w", 1, [2, 2]), ("b", 1, []))
    table.announce(1, blob, base, schema)
    assert table.until("hello").body.samples == 5
    table.invite(1)
    update = table.until("update")
    assert struct.unpack("<5f", update.body.inline) == (-0.875, 0, 0, 0, 0)
    assert (update.round, update.body.local_steps, update.body.base) == (1, 2, w.blob_digest(base))
    assert update.body.samples == 5, "the coordinator knows of 5 rows"
    table.tell("accepted", 1, update=w.blob_digest(update.body.inline))
    assert table.agent.part and table.agent.part.state == "accepted"
    table.agent.hello.at = 0  # it is owed, some seconds later
    assert table.until("hello").body.samples == 6, "the new row is not said"
    table.announce(2, blob, base, schema)
    table.invite(2)
    assert table.until("update").body.samples == 6
    table.announce(3, blob, base, bytes(32))
    table.invite(3)
    assert table.until("declined").body.reason == w.UNSUPPORTED
    # What was not answered outlives the process.
    table.announce(4, blob, base, schema)
    table.invite(4)
    update = table.until("update")
    again = Table(tmp_path, {"plant": Plant}).agent
    assert again.part and again.part.payload == update.body.inline and again.saved["epoch"] == 2


@pytest.mark.parametrize("key, why", [(None, "has no key"), (bytes([1]) + bytes(31), "key is invalid")])
def test_announcement_without_key(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, key: Optional[bytes],
                                  why: str) -> None:
    caplog.set_level("INFO")
    table = Table(tmp_path, {"plant": Plant})
    blob, base, schema = external(), struct.pack("<5f", 3, 1, 1, 1, 1), w.schema_hash(("w", 1, [2, 2]), ("b", 1, []))
    table.announce(1, blob, base, schema, key)
    assert table.agent.announcement is None and why in caplog.text
    table.announce(2, blob, base, schema)
    table.announce(3, blob, base, schema, key)
    obeyed: Any = table.agent.announcement
    assert obeyed.round == 2 and list(table.agent.pairs) == [SEALING]


def test_unsealed_invitation(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    table = Table(tmp_path, {"plant": Plant})
    blob, base, schema = external(), struct.pack("<5f", 3, 1, 1, 1, 1), w.schema_hash(("w", 1, [2, 2]), ("b", 1, []))
    table.announce(1, blob, base, schema)
    table.invite(1, sealed=False)
    assert table.agent.invitation is None and "received an unencrypted invitation" in caplog.text
    table.invite(1)
    assert table.until("update").body.inline


def test_objection_after_restart_is_sealed(tmp_path: pathlib.Path) -> None:
    blob, base, schema = external(), struct.pack("<5f", 3, 1, 1, 1, 1), w.schema_hash(("w", 1, [2, 2]), ("b", 1, []))
    Table(tmp_path, {"plant": Plant}).announce(5, blob, base, schema)
    table = Table(tmp_path, {"plant": Plant})
    table.announce(4, blob, base, schema)
    table.agent.greet()
    assert table.until("hello").round == 5, "the hello does not name the obeyed round"


def test_rounds_that_fail(tmp_path: pathlib.Path) -> None:
    table = Table(tmp_path, {"plant": bad("raise")})
    schema = w.schema_hash(("w", 1, [2, 2]), ("b", 1, []))
    table.announce(1, external(), bytes(20), schema)
    table.invite(1)
    assert table.until("declined").body.reason == w.BAD_DATA
    table = Table(tmp_path, {})
    table.announce(2, external(), bytes(20), schema)
    assert table.until("hello").body.unfit == w.UNSUPPORTED


def test_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "press.key"
    path.write_bytes(OWN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    right = {"--broker": "tcp://nowhere:1883", "--federation": "plant_7", "--id": "press-01", "--key": str(path),
             "--coordinator-key": PUBLIC}
    for option, value, why in [
        ("--broker", "nowhere:1883", "want tcp://HOST:PORT"), ("--broker", "mqtts://nowhere", "no TLS"),
        ("--federation", "Plant", "the federation is 'Plant'"), ("--id", "coordinator", "the id is 'coordinator'"),
        ("--key", str(tmp_path / "none"), "No such file"), ("--coordinator-key", "c2hvcnQ=", "want the base64"),
    ]:
        assert main([word for pair in {**right, option: value}.items() for word in pair]) == 1
        assert why in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([word for pair in right.items() for word in pair] + ["--trainer", "plant"])
    assert "go together" in capsys.readouterr().err
