#!/usr/bin/python3
"""A fedmesh agent for linear models with the squared risk, written from docs/PROTOCOL.md.

It runs on Python 3.11 with Debian's python3-paho-mqtt and python3-cryptography, and keeps what must outlive it in
KEY.state, beside its key. It leaves out TLS and passwords, clones and refused subscriptions (section 3); learner.py says
which tasks it can do. The sections named below are those of the page. Everything runs on one thread: what takes long is a
generator, which the main loop resumes between two looks at the network, and which yields True while it can go on at once.
"""

import argparse
import base64
import collections
import json
import math
import os
import random
import signal
import sys
import time

import paho.mqtt.client as mqtt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import fedwire as w
from fedwire import Malformed, Record, require, sha256
from learner import Declined, Learner

WINDOW = 4  # chunks that are subscribed to at a time: at most 8


def log(text):
    print(text, file=sys.stderr, flush=True)


class Repeat:
    """Tells when to send: after `wait` seconds, then `first` later, the gap doubling up to `last`."""

    def __init__(self, first, last, wait=0.0):
        self.at, self.gap, self.last = time.monotonic() + wait, first, last

    def due(self):
        if time.monotonic() < self.at:
            return False
        self.at, self.gap = time.monotonic() + jitter(self.gap), min(2 * self.gap, self.last)
        return True


def jitter(seconds):
    return seconds * random.uniform(0.75, 1.25)


class Job:
    """This agent's part in one round."""

    def __init__(self, key):
        self.key = key                    # run, round and base: with the agent they name the update
        self.work, self.deadline = None, math.inf
        self.payload, self.fields = b"", {}
        self.repeat = None                # of the update's manifest; None while nothing is to be repeated
        self.lent, self.lease = [], None  # of the present credit
        self.fresh = True                 # no manifest has been sent
        self.joined_at = math.inf         # when joined is said, unless an offer implies it before
        self.decline = None               # repeats that word until it is answered
        self.state = "open"               # accepted, refused or declined in the end
        self.reason = 0                   # of having declined


class Agent:
    def __init__(self, options):
        self.options = options
        with open(options.key, "rb") as file:
            self.key = load_pem_private_key(file.read(), None)
        self.coordinator = Ed25519PublicKey.from_public_bytes(base64.b64decode(options.coordinator_key))
        self.selection_key = w.selection_key(self.key, self.coordinator)
        self.device = f"{options.federation}-{options.id}"
        self.saved = {"epoch": 0, "order": [0] * 6, "digest": "", "update": None, "group": ""}
        self.pairs = collections.OrderedDict()  # by announced key, the last two: what is shared with the coordinator
        self.wants = 0                          # the id of the group's key, which is asked for
        if os.path.exists(options.key + ".state"):
            with open(options.key + ".state") as file:
                self.saved.update(json.load(file))
        self.saved["epoch"] += 1
        self.save()
        self.nonce, self.sequence = random.getrandbits(64), 0
        self.mqtt, self.connection = None, 0  # the number of connections so far
        self.inbox, self.parts = collections.deque(), {}
        self.stopping = False
        self.announcement = None              # that is obeyed
        self.task_hash, self.preparing = None, None
        self.learner, self.unfit = None, 0    # once prepared, one of the two is set
        self.hello, self.invitation = None, None
        self.object_at = math.inf             # when a hello answers an older announcement
        self.object_after = 0.0               # and not before then
        self.job, self.step_time = None, 0.0
        if update := self.saved["update"]:
            self.job = Job(tuple(update["key"]))
            self.job.payload, self.job.fields = base64.b64decode(update["payload"]), update["fields"]
            self.job.repeat = Repeat(2, 30)

    def save(self):
        """Writes what must outlive the process, and returns when it is on disk."""
        path = self.options.key + ".state"
        with open(path + ".new", "w") as file:
            json.dump(self.saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def seal(self, name, run=0, round=0, **body):
        self.sequence += 1
        data = w.BODIES[name].write(Record(**body))
        announced = self.announcement.body.sections.seals if self.announcement else None
        place = (self.options.federation, self.options.id, self.saved["epoch"], run, round, self.sequence)
        if announced and name in w.SEALED:
            data = w.seal_body(self.pairs[announced][0], announced, w.place(*place), name, data)
            name = "sealed"
        return w.seal(self.key, name, *place, data)

    def chunk(self, payload, payload_hash, k):
        announced = self.announcement.body.sections.seals
        return w.write_chunk(payload, payload_hash, k, self.pairs[announced][0] if announced else None)

    # The session (section 3), with a paho client for each connection: the library then sends nothing old again.

    def topic(self, rest):
        return f"fl/v1/{self.options.federation}/{rest}"

    def publish(self, rest, payload, retain=False):
        return self.mqtt.publish(self.topic(rest), payload, 0, retain)

    def say(self, name, **body):
        a = self.announcement
        self.publish(f"s/{self.device}", self.seal(name, a.run, a.round, announcement=a.digest, **body))

    def presence(self, state):
        return self.seal("presence", state=state, nonce=self.nonce, speaks=w.VERSION, software="fedmesh example client",
                         sections=w.without(durable=None, seals=1))

    def connect(self):
        api = [mqtt.CallbackAPIVersion.VERSION2] if hasattr(mqtt, "CallbackAPIVersion") else []  # paho 2 asks for it
        self.mqtt = mqtt.Client(*api, client_id=self.device, clean_session=True, protocol=mqtt.MQTTv311)
        self.mqtt.username_pw_set(self.device)
        self.mqtt.on_message = lambda _client, _data, message: self.inbox.append(
            (message.topic, message.payload, message.retain))
        online, lost = self.presence(w.ONLINE), self.presence(w.LOST)
        self.mqtt.will_set(self.topic(f"p/{self.device}"), lost, 0, True)
        host, _, port = self.options.broker.rpartition(":")
        deadline = time.monotonic() + 10
        try:
            self.mqtt.connect(host, int(port), keepalive=60)
            while not self.mqtt.is_connected():
                if self.mqtt.loop(0.1) != mqtt.MQTT_ERR_SUCCESS or time.monotonic() > deadline:
                    return False
        except OSError:
            return False
        self.mqtt.subscribe([(self.topic("round"), 0), (self.topic(f"d/{self.device}"), 0)])
        self.publish(f"p/{self.device}", online, retain=True)
        self.connection += 1
        self.owe_hello()
        self.object_at, self.object_after = math.inf, 0.0  # what is retained comes again
        self.offer_again()
        return True

    def run(self):
        away = time.monotonic()  # since when there is no connection
        while not self.stopping:
            if self.connect():
                busy = False
                while not self.stopping and self.mqtt.loop(0 if busy else 0.05) == mqtt.MQTT_ERR_SUCCESS:
                    while self.inbox:
                        self.receive(*self.inbox.popleft())
                    busy = self.turn()
                away, wait = time.monotonic(), random.uniform(0, 16)
            else:
                bound = min(max(1, time.monotonic() - away), 60)
                wait = random.uniform(bound / 2, bound)
            again = time.monotonic() + wait
            while not self.stopping and time.monotonic() < again:
                time.sleep(0.05)
        if self.mqtt and self.mqtt.is_connected():
            self.leave()

    def leave(self):
        if self.job and self.job.work:
            self.say("declined", reason=w.STOPPING)
        offline = self.publish(f"p/{self.device}", self.presence(w.OFFLINE), retain=True)
        deadline = time.monotonic() + 2
        while not offline.is_published() and time.monotonic() < deadline:
            if self.mqtt.loop(0.05) != mqtt.MQTT_ERR_SUCCESS:
                return
        self.mqtt.disconnect()

    # What comes in (sections 7 and 9).

    def receive(self, topic, data, retained=False):
        if not data or len(data) > w.MAX_MESSAGE:
            return
        if topic.startswith(self.topic("m/")):
            self.parts[topic] = data
            return
        handlers = {"invitation": self.on_invitation, "standing": self.on_standing, "accepted": self.on_answer,
                    "refused": self.on_answer, "credit": self.on_answer, "key": self.on_key}
        if topic == self.topic("round"):
            handlers = {"announcement": self.on_announcement}
        try:
            envelope = w.unseal(data, self.options.federation, "coordinator", self.coordinator)
            if envelope.name == "sealed":
                announced = next((key for key in self.pairs if key[:8] == envelope.body[:8]), None)
                if announced is None:
                    self.mqtt.subscribe(self.topic("round"), 0)
                    raise Malformed("sealed by a key that no announcement has named")
                envelope.name, envelope.body = w.open_body(self.pairs[announced][1], envelope.place, envelope.body)
            require(envelope.name in handlers, "not on this topic")
            require(envelope.name == "announcement" or [envelope.root, envelope.epoch] >= self.saved["order"][:2],
                    "an older epoch than that of the announcement obeyed")
            envelope.retained = retained
            handlers[envelope.name](envelope)
        except Malformed as error:
            log(f"dropped a message on {topic}: {error}")

    def on_announcement(self, envelope):
        a = envelope.body
        w.check_announcement(a)
        order = [envelope.root, envelope.epoch, envelope.run, envelope.round, a.attempt, a.phase]
        if order < self.saved["order"]:
            self.owe_objection(a.hello_within / 1000)
            return
        if order == self.saved["order"] and envelope.digest.hex() != self.saved["digest"]:
            log("two announcements of one order: are there two coordinators?")
            return
        if self.announcement and envelope.digest == self.announcement.digest:
            return  # the broker says it again
        before, self.announcement, self.object_at = self.announcement, envelope, math.inf
        if (announced := a.sections.seals) and announced not in self.pairs:
            self.pairs[announced] = w.seal_pair(self.key, announced)
            if len(self.pairs) > 2:
                self.pairs.popitem(last=False)
        anew = before is not None and (envelope.epoch, envelope.run) != (before.epoch, before.run)
        self.saved.update(order=order, digest=envelope.digest.hex())
        task, key = w.blob_of(a, "task"), (envelope.run, envelope.round, w.blob_of(a, "base").hash.hex())
        if self.job and (self.job.key[0] != envelope.run or a.folded >= self.job.key[1] or envelope.round != self.job.key[1] or
                         a.phase == w.OPEN and self.job.key != key or self.job.state == "declined"):
            self.job, self.saved["update"] = None, None
        self.save()
        self.offer_again()  # a new attempt says that the coordinator has restarted
        log(f"announcement: round {envelope.round} attempt {a.attempt} phase {a.phase} kind {a.kind}")
        if task.length and task.hash != self.task_hash:
            self.task_hash, self.learner, self.unfit = task.hash, None, 0
            self.preparing = self.prepare(envelope)
        if a.phase == w.GATHERING or anew:
            self.owe_hello()
        self.take_selection(envelope)

    def on_key(self, envelope):
        """Takes the key of the group, if it is the one that is asked for."""
        if w.key_id(envelope.body.key) == self.wants:
            self.saved["group"], self.wants = envelope.body.key.hex(), 0
            self.save()

    def take_selection(self, envelope):
        """Takes an announcement that names this agent for an invitation, if the broker did not keep it."""
        a, invited = envelope.body, self.invitation
        weight = w.weight_if_drawn(envelope, self.selection_key)
        if weight is None or a.phase != w.OPEN or invited and invited.announcement == envelope.digest:
            return
        if envelope.retained:
            self.owe_hello()
            return
        self.invitation = Record(announcement=envelope.digest, weight=weight, sections=w.without(mixing=None),
                                 deadline=time.monotonic() + a.round_within / 1000)

    def on_invitation(self, envelope):
        require(envelope.body.agent == self.options.id, "the invitation of another agent")
        require(envelope.body.weight > 0, "weight is not positive")
        envelope.body.deadline = time.monotonic() + envelope.body.left / 1000
        self.invitation = envelope.body  # until its announcement is here and the data are checked
        self.is_present(envelope.body.announcement)

    def on_standing(self, envelope):
        if self.is_present(envelope.body.announcement):
            self.rest_hello()
            if self.job:
                self.job.decline = None

    def is_present(self, digest):
        """Tells whether this announcement is the one obeyed; if not, lets the broker say again what it retains."""
        if self.announcement and digest == self.announcement.digest:
            return True
        self.mqtt.subscribe(self.topic("round"), 0)
        return False

    def on_answer(self, envelope):
        job, answer, a = self.job, envelope.body, self.announcement
        if envelope.name == "accepted" and a and (envelope.run, envelope.round) == (a.run, a.round):
            self.rest_hello()
        if not job or not job.payload or job.state != "open" or \
                (envelope.run, envelope.round, answer.update) != (*job.key[:2], w.blob_digest(job.payload)):
            return
        job.repeat, job.lent, job.lease = None, [], None
        if envelope.name == "credit":
            require(all(r.first <= r.last < w.MAX_CHUNKS for r in answer.chunks), "bad range")
            count = len(range(0, len(job.payload), w.CHUNK))
            job.lent = sorted({k for r in answer.chunks for k in range(r.first, min(r.last + 1, count))})
            job.lease = time.monotonic() + answer.lease / 1000
            log(f"round {envelope.round}: credit for {len(job.lent)} chunks")
        else:
            job.state = envelope.name
            log(f"round {envelope.round}: {envelope.name}" + (f" {answer.reason}" if job.state == "refused" else ""))

    # What the agent does of its own accord (section 10), a small step at a time.

    def turn(self):
        """Returns True if there is more to do at once."""
        busy = False
        self.say_objection()
        if self.preparing:
            busy = self.resume_preparing()
        if self.announcement and (self.learner or self.unfit):
            self.say_hello()
            self.take_invitation()
        if self.announcement and self.job:
            busy = self.resume_work() or busy
            busy = self.send_update() or busy
        return busy

    def prepare(self, envelope):
        blob = yield from self.pull(envelope, "task", w.NONE)
        self.learner = Learner(blob, self.options.data)

    def resume_preparing(self):
        try:
            return next(self.preparing)
        except StopIteration:
            log(f"the data fit the task: {len(self.learner.rows)} rows")
        except Declined as error:
            log(f"unfit for the task: {error}")
            self.unfit = error.reason
            if error.reason == w.FETCH:
                self.task_hash = None  # the next announcement is another chance
        self.preparing = None
        self.owe_hello()
        return False

    def owe_hello(self):
        spread = self.announcement.body.hello_within / 1000 if self.announcement else 0
        self.hello = Repeat(5, 60, random.uniform(0, spread))

    def rest_hello(self):
        self.hello = Repeat(5, 60, jitter(600))

    def say_hello(self):
        if self.hello.due():
            self.greet()

    def owe_objection(self, within):
        """Owes a hello to an older announcement, so that its coordinator learns that it is behind."""
        now = time.monotonic()
        if now >= self.object_after:
            self.object_at, self.object_after = now + random.uniform(0, within), now + 60

    def say_objection(self):
        if time.monotonic() >= self.object_at:
            self.object_at = math.inf
            self.greet()

    def greet(self):
        """Says hello and names the announcement obeyed, of which a process that has just started knows the place only."""
        held = w.blob_digest(self.job.payload) if self.job and self.job.payload else w.NONE
        rows = len(self.learner.rows) if self.learner else 0
        unknown = w.UNSUPPORTED if self.announcement and w.unsupported(self.announcement.body.sections) else 0
        unknown = unknown or (w.FETCH if self.wants and not self.learner else 0)
        _, _, run, round, _, _ = self.saved["order"]
        self.publish(f"s/{self.device}", self.seal(
            "hello", run, round, announcement=bytes.fromhex(self.saved["digest"]), nonce=self.nonce, unfit=self.unfit or unknown,
            samples=rows, update=held,
            sections=w.without(key=self.wants or None, location=None, misfit=None, mixing=None, outcome=None)))

    def take_invitation(self):
        invited, a = self.invitation, self.announcement
        if not invited or invited.announcement != a.digest or a.body.phase != w.OPEN:
            return
        self.invitation, job = None, self.job
        unfit = self.unfit
        if self.learner and a.body.schema != self.learner.schemas[a.body.kind] or \
                w.unsupported(a.body.sections) or w.unsupported(invited.sections) or invited.sections.mixing:
            unfit = w.UNSUPPORTED
        if unfit or job and job.state in ("refused", "declined"):
            self.say("declined", reason=unfit or (w.REFUSED if job.state == "refused" else job.reason))
            return
        self.rest_hello()
        if job:
            job.joined_at = math.inf
            self.say("joined")
        if not job:
            job = self.job = Job((a.run, a.round, w.blob_of(a.body, "base").hash.hex()))
            job.work = self.work(job, a.body, invited.weight)
            job.joined_at = time.monotonic() + 1
        elif job.state == "accepted":  # the coordinator has lost it
            job.state, job.repeat = "open", Repeat(2, 30)
        elif not job.lease or time.monotonic() > job.lease:
            self.offer_again()
        job.deadline = invited.deadline

    def work(self, job, a, weight):
        fields = dict(local_steps=0, risk_before=0.0, risk_after=0.0, step_time=0.0)
        if a.kind == w.STATISTICS:
            payload = self.learner.statistics()
        else:
            base = yield from self.pull(Record(body=a), "base", a.schema)
            draw = random.Random(f"{a.seed} {self.options.id} {job.key}")
            payload, fields = yield from self.learner.train(base, a.offset, weight, self.step_time, draw)
            self.step_time = fields["step_time"]
        fields.update(kind=a.kind, samples=len(self.learner.rows), schema=a.schema.hex())
        self.saved["update"] = dict(key=job.key, payload=base64.b64encode(payload).decode(), fields=fields)
        self.save()
        job.payload, job.fields, job.repeat = payload, fields, Repeat(2, 30)

    def resume_work(self):
        job = self.job
        if job.work and time.monotonic() > job.joined_at:
            job.joined_at = math.inf
            self.say("joined")
        if job.decline and job.decline.due():
            self.say("declined", reason=job.reason)
        try:
            if job.work and time.monotonic() > job.deadline:
                raise Declined(w.NO_TIME)
            return next(job.work) if job.work else False
        except StopIteration:
            job.work = None
        except Declined as error:
            log(f"round {job.key[1]}: declined, {error}")
            job.work, job.state, job.reason = None, "declined", error.reason
            job.decline = Repeat(5, 60)
        return True

    def offer_again(self):
        """Begins the sending of the update anew: what was lent for it is void."""
        if self.job and self.job.payload and self.job.state == "open":
            self.job.repeat, self.job.lent, self.job.lease = Repeat(2, 30), [], None

    def send_update(self):
        job = self.job
        if not job.payload or job.state != "open":
            return False
        payload_hash = w.blob_digest(job.payload)
        transfer = f"u/0/{self.device}/{payload_hash[:8].hex()}/"
        if job.lent and time.monotonic() < job.lease:
            k = job.lent.pop(0)
            self.publish(transfer + str(k), self.chunk(job.payload, payload_hash, k))
            return True
        if job.lease and time.monotonic() > job.lease + 10:
            job.lent, job.lease, job.repeat = [], None, Repeat(2, 30)
        if job.repeat and job.repeat.due():
            fields = dict(job.fields)
            fields["payload"] = w.manifest_of(job.payload, bytes.fromhex(fields.pop("schema")))
            inline = job.payload if len(job.payload) <= w.INLINE_UPDATE else b""
            ahead = 0 if inline or not job.fresh else min(self.announcement.body.sections.credit or 0,
                                                          len(fields["payload"].chunks))
            job.fresh = False
            self.publish(transfer + "m", self.seal(
                "update", *job.key[:2], base=bytes.fromhex(job.key[2]), inline=inline,
                sections=w.without(ahead=ahead or None), **fields))
            if ahead:
                log(f"round {job.key[1]}: {ahead} chunks go ahead")
            for k in range(ahead):
                self.publish(transfer + str(k), self.chunk(job.payload, payload_hash, k))
        return False

    def group_key(self, group):
        """Yields until the key of the group is there, for which a hello asks (section 15)."""
        ask = Repeat(5, 60, random.uniform(0, self.announcement.body.hello_within / 1000))
        while w.key_id(bytes.fromhex(self.saved["group"])) != group:
            self.wants = group
            if ask.due():
                log("the key of the group is asked for")
                self.greet()
            yield False
        self.wants = 0
        return bytes.fromhex(self.saved["group"])

    def pull(self, envelope, name, schema):
        """Yields until a blob of an announcement is there (sections 6 and 15), and returns it."""
        reference, (group, whole) = w.blob_of(envelope.body, name), w.group_of(envelope.body, name)
        key = (yield from self.group_key(group)) if group else None
        if whole:
            blob = w.open_part(key, reference.hash, w.WHOLE, whole)
            require(w.blob_digest(blob) == reference.hash, "not what was sealed")
            return blob
        if reference.manifest == w.NONE:
            return reference.inline
        prefix = self.topic(f"m/{reference.hash.hex()[:32]}/")
        manifest, have, asked, stalls, connection, deadline = None, {}, set(), 0, self.connection, math.inf
        try:
            while manifest is None or len(have) < len(manifest.chunks):
                if connection != self.connection:  # the broker has forgotten what was asked
                    connection, asked, deadline = self.connection, set(), math.inf
                if time.monotonic() > deadline:
                    again = asked if manifest else {"m"}
                    self.mqtt.unsubscribe([prefix + name for name in again])
                    stalls, asked = stalls + 1, asked - again
                    if stalls == 9:
                        raise Declined(w.FETCH)
                chunks = range(-(-reference.length // w.CHUNK))
                wanted = [str(k) for k in chunks if k not in have][:WINDOW]
                if not manifest:  # it comes first; of a short blob the first chunks are asked for with it
                    wanted = ["m"] + (wanted if len(chunks) < 2 * WINDOW else [])
                if new := [name for name in wanted if name not in asked]:
                    self.mqtt.subscribe([(prefix + name, 0) for name in new])
                    asked.update(new)
                    deadline = time.monotonic() + jitter(min(2 ** stalls, 10))
                yield False
                for name in sorted(asked, key=lambda name: name != "m"):
                    if prefix + name not in self.parts or name != "m" and not manifest:
                        continue
                    try:
                        data = self.parts.pop(prefix + name)
                        if name == "m":
                            manifest = self.read_manifest(data, reference, schema, key)
                        else:
                            k, payload = w.read_chunk(data, manifest, key)
                            require(str(k) == name, "wrong topic")
                            have[k] = payload
                    except Malformed as error:
                        log(f"dropped {prefix}{name}: {error}")
                        continue
                    self.mqtt.unsubscribe(prefix + name)
                    asked.remove(name)
                    stalls, deadline = 0, time.monotonic() + jitter(1)
        finally:  # also when nobody wants the blob any more
            if asked:
                self.mqtt.unsubscribe([prefix + name for name in asked])
            self.parts.clear()
        blob = b"".join(have[k] for k in range(len(have)))
        log(f"pulled {len(blob)} bytes in {len(have)} chunks")
        return blob

    def read_manifest(self, data, reference, schema, key):
        require(sha256(data) == reference.manifest, "another manifest")
        if key:
            data = w.open_manifest(key, reference.hash, data)
        m = w.decode(w.MANIFEST, data)
        require((m.hash, m.length, m.schema) == (reference.hash, reference.length, schema), "of another blob")
        require(len(m.chunks) == -(-m.length // w.CHUNK), "wrong number of chunks")
        require(sha256(b"".join(m.chunks)) == m.hash, "hashes of chunks that do not make the blob's")
        return m


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, metavar="HOST:PORT")
    parser.add_argument("--federation", required=True, metavar="NAME")
    parser.add_argument("--id", required=True, help="of this agent")
    parser.add_argument("--key", required=True, metavar="PEM", help="file with this agent's private key")
    parser.add_argument("--coordinator-key", required=True, metavar="BASE64", help="public key of the coordinator")
    parser.add_argument("--data", required=True, metavar="CSV", help="file with column names in its first line")
    options = parser.parse_args()
    if not w.FEDERATION.fullmatch(options.federation):
        parser.error("--federation: 1 to 32 of a-z, 0-9 and _")
    if not w.AGENT.fullmatch(options.id) or options.id == "coordinator":
        parser.error("--id: 1 to 48 of A-Z, a-z, 0-9, '.', '_' and '-', not coordinator")
    agent = Agent(options)
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *_: setattr(agent, "stopping", True))
    agent.run()


if __name__ == "__main__":
    main()
