"""The agent: its session with the broker, and its part in the rounds.

The sections named below are those of docs/PROTOCOL.md. All but the trainers runs on one thread: what takes long is a
generator, which the main loop resumes between two looks at the network, and which yields True while it can go on at
once.
"""

from __future__ import annotations

import base64
import collections
import json
import logging
import math
import os
import random
import threading
import time
import urllib.parse
from types import SimpleNamespace
from typing import Any, Deque, Dict, Generator, List, Mapping, Optional, Set, Tuple, Union

import paho.mqtt.client as mqtt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedmesh.agent import _wire as w
from fedmesh.agent._away import Away, answers, respond_of
from fedmesh.agent._learner import Declined, Learner, Make, apart
from fedmesh.agent._pull import pull
from fedmesh.agent._repeat import Repeat, jitter
from fedmesh.agent._wire import Malformed, Record, require

MARGIN = 0.2  # of the time of a round, in which local steps are stopped
LOG = logging.getLogger("fedmesh.agent")

Path = Union[str, "os.PathLike[str]"]
Work = Generator[bool, None, None]
Key = Tuple[int, int, str]


def address_of(broker: str) -> Tuple[str, int]:
    url = urllib.parse.urlsplit(broker)
    if url.scheme not in ("tcp", "mqtt") or not url.hostname or url.path.strip("/") or url.username:
        raise ValueError(f"the broker is {broker!r}, want tcp://HOST:PORT: this package has no TLS and no passwords")
    return url.hostname, url.port or 1883


def private_key(path: Path) -> Ed25519PrivateKey:
    with open(path, "rb") as file:
        key = load_pem_private_key(file.read(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{os.fspath(path)} has a {type(key).__name__}, want an Ed25519 key")
    return key


def public_key(text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except ValueError:
        raise ValueError(f"the coordinator's key is {text!r}, want the base64 of 32 bytes") from None


class Part:
    """This agent's part in one round."""

    def __init__(self, key: Key) -> None:
        self.key = key  # run, round and base: with the agent they name the update
        self.work: Optional[Work] = None
        self.deadline, self.stop_at = math.inf, math.inf
        self.stop = threading.Event()  # no further local steps
        self.payload = b""
        self.fields: Dict[str, Any] = {}
        self.repeat: Optional[Repeat] = None  # of the update's manifest; None while nothing is to be repeated
        self.lent: List[int] = []
        self.lease: Optional[float] = None  # of the present credit
        self.fresh = True  # no manifest has been sent
        self.joined_at = math.inf  # when joined is said, unless an offer implies it before
        self.decline: Optional[Repeat] = None  # repeats that word until it is answered
        self.state = "open"  # accepted, refused or declined in the end
        self.reason = 0  # of having declined


class Agent:
    """A device of a federation: `run` trains in its rounds until `stop` is called, from a signal's handler, say.

    broker           its address, as in agentd.yaml: tcp://HOST:PORT
    federation, id   names, as in agentd.yaml
    key              the file with this device's private key, of `agentd key new`
    coordinator_key  the coordinator's public key, base64
    data             a CSV file with a line of names, for tasks with linear models
    trainers         by the name that a task gives them, what makes a fedmesh.trainer.Trainer: a class or a function
                     without arguments. It is called again for each task

    What must outlive the process is in KEY.state, beside the key. Raises ValueError if a name or address is wrong.
    """

    def __init__(self, broker: str, federation: str, id: str, key: Path, coordinator_key: str,
                 data: Optional[Path] = None, trainers: Optional[Mapping[str, Make]] = None) -> None:
        if not w.FEDERATION.fullmatch(federation):
            raise ValueError(f"the federation is {federation!r}, want 1 to 32 of a-z, 0-9 and _")
        if not w.AGENT.fullmatch(id) or id == "coordinator":
            raise ValueError(f"the id is {id!r}, want 1 to 48 of A-Z, a-z, 0-9, '.', '_' and '-', not coordinator")
        self.address, self.federation, self.id = address_of(broker), federation, id
        self.data = None if data is None else os.fspath(data)
        self.trainers = dict(trainers or {})
        self.key, self.state = private_key(key), os.fspath(key) + ".state"
        self.coordinator = public_key(coordinator_key)
        self.selection_key = w.selection_key(self.key, self.coordinator)
        self.device = f"{federation}-{id}"
        self.saved: Dict[str, Any] = {"epoch": 0, "order": [0] * 6, "digest": "", "update": None, "group": ""}
        # The keys shared with the coordinator, by announced key. It holds the last two, the newest last.
        self.pairs: collections.OrderedDict[bytes, Tuple[bytes, bytes]] = collections.OrderedDict()
        self.wants = 0  # the id of the group's key, which is asked for
        if os.path.exists(self.state):
            with open(self.state) as file:
                self.saved.update(json.load(file))
        self.saved["epoch"] += 1
        self.save()
        self.nonce, self.sequence = random.getrandbits(64), 0
        self.mqtt: Any = None
        self.connection = 0  # the number of connections so far
        self.inbox: Deque[Tuple[str, bytes, bool]] = collections.deque()
        self.pieces: Dict[str, bytes] = {}
        self.stopping = False
        self.announcement: Any = None  # that is obeyed
        self.task_hash: Optional[bytes] = None
        self.preparing: Optional[Work] = None
        self.learner: Optional[Learner] = None
        self.unfit = 0  # once prepared, one of the two is set
        self.told = 0  # rows, by the last hello
        self.hello: Any = None
        self.invitation: Any = None
        self.object_at = math.inf  # when a hello answers an older announcement
        self.object_after = 0.0  # and not before then
        self.part: Optional[Part] = None
        self.away = Away()
        self.step_time = 0.0
        if update := self.saved["update"]:
            self.part = Part(tuple(update["key"]))
            self.part.payload, self.part.fields = base64.b64decode(update["payload"]), update["fields"]
            self.part.repeat = Repeat(2, 30)

    def stop(self) -> None:
        """Has `run` say farewell and return."""
        self.stopping = True

    def save(self) -> None:
        """Writes what must outlive the process, and returns when it is on disk."""
        path = self.state
        with open(path + ".new", "w") as file:
            json.dump(self.saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def seal(self, name: str, run: int = 0, round: int = 0, **body: Any) -> bytes:
        self.sequence += 1
        data = w.BODIES[name].write(Record(**body))
        place = (self.federation, self.id, self.saved["epoch"], run, round, self.sequence)
        if name in w.SEALED:
            announced = self.newest_key()
            data = w.seal_body(self.pairs[announced][0], announced, w.place(*place), name, data)
            name = "sealed"
        return w.seal(self.key, name, *place, data)

    def newest_key(self) -> bytes:
        return next(reversed(self.pairs))

    def chunk(self, payload: bytes, payload_hash: bytes, k: int) -> bytes:
        return w.write_chunk(payload, payload_hash, k, self.pairs[self.newest_key()][0])

    # The session (section 3), with a paho client for each connection: the library then sends nothing old again.

    def topic(self, rest: str) -> str:
        return f"fl/v1/{self.federation}/{rest}"

    def publish(self, rest: str, payload: bytes, retain: bool = False) -> Any:
        return self.mqtt.publish(self.topic(rest), payload, 0, retain)

    def say(self, name: str, **body: Any) -> None:
        a = self.announcement
        self.publish(f"s/{self.device}", self.seal(name, a.run, a.round, announcement=a.digest, **body))

    def presence(self, state: int) -> bytes:
        return self.seal("presence", state=state, nonce=self.nonce, speaks=w.VERSION, software="fedmesh.agent",
                         sections=w.without(durable=None))

    def connect(self) -> bool:
        api = [mqtt.CallbackAPIVersion.VERSION2] if hasattr(mqtt, "CallbackAPIVersion") else []  # paho 2 asks for it
        self.mqtt = mqtt.Client(*api, client_id=self.device, clean_session=True, protocol=mqtt.MQTTv311)
        self.mqtt.username_pw_set(self.device)
        self.mqtt.on_message = lambda _client, _data, message: self.inbox.append(
            (message.topic, message.payload, message.retain))
        self.away.connected()
        if not self.quiet():
            online, lost = self.presence(w.ONLINE), self.presence(w.LOST)
            self.mqtt.will_set(self.topic(f"p/{self.device}"), lost, 0, True)
        deadline = time.monotonic() + 10
        try:
            self.mqtt.connect(*self.address, keepalive=60)
            while not self.mqtt.is_connected():
                if self.mqtt.loop(0.1) != mqtt.MQTT_ERR_SUCCESS or time.monotonic() > deadline:
                    raise OSError("the broker does not take the connection")
        except OSError as error:
            LOG.warning("%s:%d: %s", *self.address, error)
            return False
        self.mqtt.subscribe([(self.topic("round"), 0), (self.topic(f"d/{self.device}"), 0)])
        if not self.quiet():
            self.publish(f"p/{self.device}", online, retain=True)
            self.away.online = True
        self.connection += 1
        self.owe_hello()
        self.object_at, self.object_after = math.inf, 0.0  # what is retained comes again
        self.offer_again()
        return True

    def run(self) -> None:
        away = time.monotonic()  # since when there is no connection
        while not self.stopping:
            if self.connect():
                leave = self.serve()
                wait = random.uniform(0, 16) if leave is None else leave
                away = time.monotonic() + (leave or 0)
            else:
                bound = min(max(1, time.monotonic() - away), 60)
                wait = random.uniform(bound / 2, bound)
            again = time.monotonic() + wait
            while not self.stopping and time.monotonic() < again:
                time.sleep(0.05)
        if self.mqtt and self.mqtt.is_connected():
            self.leave()

    def serve(self) -> Optional[float]:
        """Works while there is a connection. Returns for how long the agent has left it, if it has."""
        busy = False
        while not self.stopping and self.mqtt.loop(0 if busy else 0.05) == mqtt.MQTT_ERR_SUCCESS:
            while self.inbox:
                self.receive(*self.inbox.popleft())
            busy = self.turn()
            leave = None if self.inbox or self.needs_link() else self.away.leaves_for(self.announcement)
            if leave is not None:
                LOG.info(f"disconnecting for {leave:.1f} s: this agent is not a participant of the round")
                self.leave()
                return leave
        return None

    def has_part(self) -> bool:
        """Tells whether the agent is at work in a round, or has an update that may still count, or is to begin."""
        return self.part is not None or self.invitation is not None

    def silent(self) -> bool:
        """Tells whether the agent says no hello until it is drawn."""
        return self.away.undrawn and not self.has_part()

    def quiet(self) -> bool:
        """Tells whether the agent tells no presence: only those with a part in a round do."""
        return bool(respond_of(self.announcement).presence) and not self.has_part()

    def needs_link(self) -> bool:
        """A key is asked for by those that answer."""
        return self.has_part() or self.preparing is not None and not (self.wants and self.silent())

    def leave(self) -> None:
        """Says farewell, and returns when the broker has closed the connection, or after some seconds."""
        if self.part and self.part.work:
            self.say("declined", reason=w.STOPPING)
        said = None
        if self.away.online:
            kept = not respond_of(self.announcement).presence
            said = self.publish(f"p/{self.device}", self.presence(w.OFFLINE), retain=kept)
            if not kept:  # the broker keeps the presences of those with a part in a round
                said = self.publish(f"p/{self.device}", b"", retain=True)
        deadline = time.monotonic() + 2
        while said and not said.is_published() and time.monotonic() < deadline:
            if self.mqtt.loop(0.05) != mqtt.MQTT_ERR_SUCCESS:
                return
        self.mqtt.disconnect()
        deadline = time.monotonic() + 1
        while self.mqtt.loop(0.05) == mqtt.MQTT_ERR_SUCCESS and time.monotonic() < deadline:
            pass  # what has come and is not read would make the broker publish the will

    # What comes in (sections 7 and 9).

    def receive(self, topic: str, data: bytes, retained: bool = False) -> None:
        if not data or len(data) > w.MAX_MESSAGE:
            return
        if topic.startswith(self.topic("m/")):
            self.pieces[topic] = data
            return
        handlers = {"invitation": self.on_invitation, "standing": self.on_standing, "accepted": self.on_answer,
                    "refused": self.on_answer, "credit": self.on_answer, "key": self.on_key}
        if topic == self.topic("round"):
            handlers = {"announcement": self.on_announcement}
        try:
            envelope = w.unseal(data, self.federation, "coordinator", self.coordinator)
            if envelope.name == "sealed":
                announced = next((key for key in self.pairs if key[:8] == envelope.body[:8]), None)
                if announced is None:
                    self.mqtt.subscribe(self.topic("round"), 0)
                    raise Malformed("the message is encrypted with a key that no announcement has contained")
                envelope.name, envelope.body = w.open_body(self.pairs[announced][1], envelope.place, envelope.body)
            else:
                require(envelope.name not in w.SEALED,
                        f"received an unencrypted {envelope.name}: the coordinator must encrypt it")
            require(envelope.name in handlers, "not on this topic")
            require(envelope.name == "announcement" or [envelope.root, envelope.epoch] >= self.saved["order"][:2],
                    "an older epoch than that of the announcement obeyed")
            envelope.retained = retained
            handlers[envelope.name](envelope)
        except Malformed as error:
            LOG.info(f"dropped a message on {topic}: {error}")

    def on_announcement(self, envelope: Record) -> None:
        a = envelope.body
        w.check_announcement(a)
        order = [envelope.root, envelope.epoch, envelope.run, envelope.round, a.attempt, a.phase]
        self.adopt_key(a.sections.seals, order > self.saved["order"] or envelope.digest.hex() == self.saved["digest"])
        self.away.read = True
        if order < self.saved["order"]:
            self.owe_objection(a)
            return
        if order == self.saved["order"] and envelope.digest.hex() != self.saved["digest"]:
            LOG.info("two announcements of one order: are there two coordinators?")
            return
        if self.announcement and envelope.digest == self.announcement.digest:
            return  # the broker says it again
        before, self.announcement, self.object_at = self.announcement, envelope, math.inf
        anew = before is None or (envelope.epoch, envelope.run) != (before.epoch, before.run) or \
            envelope.round > before.round + 1  # it may count as gone since
        named = w.weight_if_drawn(envelope, self.selection_key) is not None
        self.saved.update(order=order, digest=envelope.digest.hex())
        task, key = w.blob_of(a, "task"), (envelope.run, envelope.round, w.blob_of(a, "base").hash.hex())
        part = self.part
        if part and (part.key[0] != envelope.run or a.folded >= part.key[1] or envelope.round != part.key[1] or
                     a.phase == w.OPEN and part.key != key or part.state == "declined"):
            part.stop.set()
            self.part, self.saved["update"], self.away.had_part = None, None, True
        self.save()
        self.offer_again()  # a new attempt says that the coordinator has restarted
        LOG.info(f"announcement: round {envelope.round} attempt {a.attempt} phase {a.phase} kind {a.kind}")
        if task.length and task.hash != self.task_hash:
            self.task_hash, self.learner, self.unfit = task.hash, None, 0
            self.preparing = self.prepare(envelope)
        if self.invitation and self.invitation.announcement != envelope.digest:
            self.invitation = None
        self.away.came(envelope, named)
        if a.phase == w.GATHERING or anew:
            if before is not None or a.phase == w.GATHERING:  # else one is owed since the connection
                self.owe_hello()
            self.away.draw(envelope, named)
        self.take_selection(envelope)

    def on_key(self, envelope: Record) -> None:
        """Takes the key of the group, if it is the one that is asked for."""
        if w.key_id(envelope.body.key) == self.wants:
            self.saved["group"], self.wants = envelope.body.key.hex(), 0
            self.save()

    def take_selection(self, envelope: Record) -> None:
        """Takes an announcement that names this agent for an invitation, if the broker did not keep it."""
        a, invited = envelope.body, self.invitation
        weight = w.weight_if_drawn(envelope, self.selection_key)
        if weight is None or a.phase != w.OPEN or invited and invited.announcement == envelope.digest:
            return
        if envelope.retained:
            self.away.undrawn = False
            self.owe_hello()
            return
        self.invitation = Record(announcement=envelope.digest, weight=weight, sections=w.without(mixing=None),
                                 deadline=time.monotonic() + a.round_within / 1000)

    def on_invitation(self, envelope: Record) -> None:
        require(envelope.body.agent == self.id, "the invitation of another agent")
        require(envelope.body.weight > 0, "weight is not positive")
        envelope.body.deadline = time.monotonic() + envelope.body.left / 1000
        self.invitation = envelope.body  # until its announcement is here and the data are checked
        self.is_present(envelope.body.announcement)

    def on_standing(self, envelope: Record) -> None:
        if self.is_present(envelope.body.announcement):
            self.away.apart = envelope.body.place == w.NOT_SELECTED
            self.rest_hello()
            if self.part:
                self.part.decline = None

    def is_present(self, digest: bytes) -> bool:
        """Tells whether this announcement is the one obeyed; if not, lets the broker say again what it retains."""
        if self.announcement and digest == self.announcement.digest:
            return True
        self.mqtt.subscribe(self.topic("round"), 0)
        return False

    def on_answer(self, envelope: Record) -> None:
        part, answer, a = self.part, envelope.body, self.announcement
        if envelope.name == "accepted" and a and (envelope.run, envelope.round) == (a.run, a.round):
            self.rest_hello()
        if not part or not part.payload or part.state != "open" or \
                (envelope.run, envelope.round, answer.update) != (*part.key[:2], w.blob_digest(part.payload)):
            return
        part.repeat, part.lent, part.lease = None, [], None
        if envelope.name == "credit":
            require(all(r.first <= r.last < w.MAX_CHUNKS for r in answer.chunks), "bad range")
            count = len(range(0, len(part.payload), w.CHUNK))
            part.lent = sorted({k for r in answer.chunks for k in range(r.first, min(r.last + 1, count))})
            part.lease = time.monotonic() + answer.lease / 1000
            LOG.info(f"round {envelope.round}: credit for {len(part.lent)} chunks")
        else:
            part.state = envelope.name
            why = f" {answer.reason}" if part.state == "refused" else ""
            LOG.info(f"round {envelope.round}: {envelope.name}{why}")

    # What the agent does of its own accord (section 10), a small step at a time.

    def turn(self) -> bool:
        """Returns True if there is more to do at once."""
        busy = False
        self.say_objection()
        if not self.away.online and not self.quiet():
            self.away.online = True
            self.publish(f"p/{self.device}", self.presence(w.ONLINE), retain=True)
        if self.silent() and self.away.reread.due():
            self.mqtt.subscribe(self.topic("round"), 0)
        if self.preparing:
            busy = self.resume_preparing(self.preparing)
        if self.announcement and (self.learner or self.unfit):
            self.say_hello()
            self.take_invitation()
        if self.announcement and self.part:
            busy = self.resume_work(self.part) or busy
            busy = self.send_update(self.part) or busy
        return busy

    def prepare(self, envelope: Record) -> Work:
        blob = yield from pull(self, envelope, "task", w.NONE)
        self.learner = yield from apart(
            lambda: Learner(blob, self.data, self.trainers, self.federation, self.id))
        LOG.info(f"the data fit the task: {self.learner.rows} rows")

    def resume_preparing(self, preparing: Work) -> bool:
        try:
            return next(preparing)
        except StopIteration:
            pass
        except Declined as error:
            LOG.warning(f"unfit for the task: {error}")
            self.unfit = error.reason
            if error.reason == w.FETCH:
                self.task_hash = None  # the next announcement is another chance
        self.preparing = None
        self.owe_hello()
        return False

    def owe_hello(self) -> None:
        spread = self.announcement.body.hello_within / 1000 if self.announcement else 0
        self.hello = Repeat(5, 60, random.uniform(0, spread))

    def rest_hello(self) -> None:
        self.hello = Repeat(5, 60, jitter(600))

    def say_hello(self) -> None:
        if not self.silent() and self.hello.due():
            self.greet()

    def adopt_key(self, announced: Optional[bytes], current: bool) -> None:
        """Derives the keys for sealing from the key of an announcement.

        The key of an announcement that is not obeyed is used only if there is no key yet, so that the agent can reply.
        Raises Malformed if the announcement has no valid key.
        """
        if not announced:
            raise Malformed("the announcement has no key for encrypting messages to the coordinator")
        if self.pairs and not current:
            return
        if announced not in self.pairs:
            try:
                self.pairs[announced] = w.seal_pair(self.key, announced)
            except ValueError:
                raise Malformed("the announced sealing key is invalid") from None
        self.pairs.move_to_end(announced)
        while len(self.pairs) > 2:
            self.pairs.popitem(last=False)

    def owe_objection(self, older: Record) -> None:
        """Owes a hello to an older announcement, so that its coordinator learns that it is behind."""
        now = time.monotonic()
        if now < self.object_after:
            return
        self.object_after = now + 60
        if answers(older):
            self.object_at = now + random.uniform(0, older.hello_within / 1000)

    def say_objection(self) -> None:
        if time.monotonic() >= self.object_at:
            self.object_at = math.inf
            self.greet()

    def greet(self) -> None:
        """Says hello and names the announcement obeyed, of which a process that has just started knows the place only."""
        held = w.blob_digest(self.part.payload) if self.part and self.part.payload else w.NONE
        self.told = self.learner.rows if self.learner else 0
        unknown = w.UNSUPPORTED if self.announcement and w.unsupported(self.announcement.body.sections) else 0
        unknown = unknown or (w.FETCH if self.wants and not self.learner else 0)
        _, _, run, round, _, _ = self.saved["order"]
        self.publish(f"s/{self.device}", self.seal(
            "hello", run, round, announcement=bytes.fromhex(self.saved["digest"]), nonce=self.nonce,
            unfit=self.unfit or unknown, samples=self.told, update=held,
            sections=w.without(key=self.wants or None, location=None, misfit=None, mixing=None, outcome=None,
                               respond=self.away.of or None)))

    def take_invitation(self) -> None:
        invited, a = self.invitation, self.announcement
        if not invited or invited.announcement != a.digest or a.body.phase != w.OPEN:
            return
        self.invitation, part = None, self.part
        learner, unfit = self.learner, self.unfit
        if learner and a.body.schema != learner.schemas.get(a.body.kind) or \
                w.unsupported(a.body.sections) or w.unsupported(invited.sections) or invited.sections.mixing:
            unfit = w.UNSUPPORTED
            LOG.warning(f"round {a.round}: declined, it asks for what this package does not know")
        if not unfit and part and part.state in ("refused", "declined"):
            unfit = w.REFUSED if part.state == "refused" else part.reason
        if unfit or learner is None:
            self.say("declined", reason=unfit)
            return
        self.rest_hello()
        if part:
            part.joined_at = math.inf
            self.say("joined")
        if not part:
            part = self.part = Part((a.run, a.round, w.blob_of(a.body, "base").hash.hex()))
            part.work = self.work(part, a.body, invited.weight, learner)
            part.joined_at = time.monotonic() + 1
        elif part.state == "accepted":  # the coordinator has lost it
            part.state, part.repeat = "open", Repeat(2, 30)
        elif not part.lease or time.monotonic() > part.lease:
            self.offer_again()
        left = invited.deadline - time.monotonic()
        part.deadline, part.stop_at = invited.deadline, invited.deadline - MARGIN * left

    def work(self, part: Part, a: Record, weight: float, learner: Learner) -> Work:
        samples = self.told or learner.rows
        fields = dict(local_steps=0, risk_before=0.0, risk_after=0.0, step_time=0.0)
        if learner.linear and a.kind == w.STATISTICS:
            payload, _ = learner.linear.statistics()
        else:
            base = yield from pull(self, Record(body=a), "base", a.schema)
            draw = f"{a.seed} {self.id} {part.key}"
            payload, fields = yield from apart(
                lambda: learner.train(base, a.offset, weight, self.step_time, draw, part.stop))
            self.step_time = fields["step_time"]
            if learner.rows != samples:
                self.owe_hello()
        fields.update(kind=a.kind, samples=samples, schema=a.schema.hex())
        self.saved["update"] = dict(key=part.key, payload=base64.b64encode(payload).decode(), fields=fields)
        self.save()
        part.payload, part.fields, part.repeat = payload, fields, Repeat(2, 30)

    def resume_work(self, part: Part) -> bool:
        if part.work and time.monotonic() > part.joined_at:
            part.joined_at = math.inf
            self.say("joined")
        if part.decline and part.decline.due():
            self.say("declined", reason=part.reason)
        try:
            if part.work and time.monotonic() > part.stop_at:
                part.stop.set()
            if part.work and time.monotonic() > part.deadline:
                raise Declined(w.NO_TIME, "the round's time is over")
            return next(part.work) if part.work else False
        except StopIteration:
            part.work = None
        except Declined as error:
            LOG.warning(f"round {part.key[1]}: declined, {error}")
            part.work, part.state, part.reason = None, "declined", error.reason
            part.decline = Repeat(5, 60)
        return True

    def offer_again(self) -> None:
        """Begins the sending of the update anew: what was lent for it is void."""
        if self.part and self.part.payload and self.part.state == "open":
            self.part.repeat, self.part.lent, self.part.lease = Repeat(2, 30), [], None

    def send_update(self, part: Part) -> bool:
        if not part.payload or part.state != "open":
            return False
        payload_hash = w.blob_digest(part.payload)
        transfer = f"u/0/{self.device}/{payload_hash[:8].hex()}/"
        if part.lent and part.lease and time.monotonic() < part.lease:
            k = part.lent.pop(0)
            self.publish(transfer + str(k), self.chunk(part.payload, payload_hash, k))
            return True
        if part.lease and time.monotonic() > part.lease + 10:
            part.lent, part.lease, part.repeat = [], None, Repeat(2, 30)
        if part.repeat and part.repeat.due():
            fields = dict(part.fields)
            fields["payload"] = w.manifest_of(part.payload, bytes.fromhex(fields.pop("schema")))
            inline = part.payload if len(part.payload) <= w.INLINE_UPDATE else b""
            ahead = 0 if inline or not part.fresh else min(self.announcement.body.sections.credit or 0,
                                                          len(fields["payload"].chunks))
            part.fresh = False
            self.publish(transfer + "m", self.seal(
                "update", *part.key[:2], base=bytes.fromhex(part.key[2]), inline=inline,
                sections=w.without(ahead=ahead or None), **fields))
            if ahead:
                LOG.info(f"round {part.key[1]}: {ahead} chunks go ahead")
            for k in range(ahead):
                self.publish(transfer + str(k), self.chunk(part.payload, payload_hash, k))
        return False
