#!/usr/bin/python3
"""selftest.py DIR holds fedmesh.agent against the golden files, as section 12 of docs/PROTOCOL.md proposes."""

import base64
import math
import os
import struct
import sys
import tempfile
import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedmesh.agent import _away as away
from fedmesh.agent import _client as client
from fedmesh.agent import _wire as w


def fails(function, *arguments):
    try:
        function(*arguments)
    except w.Malformed:
        return True
    return False


def check_envelope(name, data, key):
    """Opens it, seals it again, and damages it in every way."""
    sender = data[40:88].rstrip(b"\0").decode()

    def unseal(data):
        return w.unseal(bytes(data), "plant_7", sender, key.public_key())
    e = unseal(data)
    again = w.seal(key, e.name, "plant_7", sender, e.epoch, e.run, e.round, e.sequence, w.BODIES[e.name].write(e.body))
    assert again == data, f"{name}: sealed anew it differs"
    if e.name == "announcement":
        w.check_announcement(e.body)
    for n in range(len(data)):
        assert fails(unseal, data[:n]), f"{name}: {n} bytes are enough"
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert fails(unseal, flipped), f"{name}: bit {bit} does not count"
    return e


def check_blobs(golden, announced):
    vector = struct.pack("<15379f", *(i / 128 for i in range(15379)))
    manifest = w.decode(w.MANIFEST, golden["manifest"])
    assert manifest == w.manifest_of(vector, manifest.schema), "manifest differs"
    assert w.blob_of(announced, "base").manifest == w.sha256(golden["manifest"]), "the manifest is not the announced one"
    assert w.read_chunk(golden["chunk"], manifest) == (1, vector[w.CHUNK:]), "chunk is read as another"
    readers = {"manifest": lambda data: w.decode(w.MANIFEST, data), "chunk": lambda data: w.read_chunk(data, manifest)}
    for name, read in readers.items():
        assert all(fails(read, golden[name][:n]) for n in range(len(golden[name]))), f"{name}: cut short, it passes"


def check_seals(golden, opened, key):
    vector = struct.pack("<15379f", *(i / 128 for i in range(15379)))
    a = opened["announcement_sealed"].body
    up, down = w.seal_pair(key, a.sections.seals)
    e = opened["sealed_hello"]
    assert w.open_body(up, e.place, e.body) == ("hello", opened["hello_key"].body), "the sealed hello opens as another"
    assert e.place == w.place("plant_7", "press-01", e.epoch, e.run, e.round, e.sequence), "it is bound to another place"
    again = w.seal_body(up, a.sections.seals, e.place, "hello", w.BODIES["hello"].write(opened["hello_key"].body))
    assert again == e.body, "the hello is sealed otherwise"
    for n in range(8, len(e.body)):
        assert fails(w.open_body, up, e.place, e.body[:n]), "a sealed hello that is cut short opens"
        changed = e.body[:n] + bytes([e.body[n] ^ 1]) + e.body[n + 1:]
        assert fails(w.open_body, up, e.place, changed), "a changed hello opens"
    for n in range(len(e.place)):
        moved = e.place[:n] + bytes([e.place[n] ^ 1]) + e.place[n + 1:]
        assert fails(w.open_body, up, moved, e.body), "a hello opens in another place"
    name, told = w.open_body(down, opened["sealed_key"].place, opened["sealed_key"].body)
    assert (name, told) == ("key", opened["key"].body) and w.key_id(told.key) == a.sections.sealed.group, "another key"
    base, (group, whole) = w.blob_of(a, "base"), w.group_of(a, "base")
    assert group == w.key_id(told.key) and w.sha256(whole) == base.manifest, "the base is not what is sealed"
    assert w.blob_digest(w.open_part(told.key, base.hash, w.WHOLE, whole)) == base.hash, "the base opens as another"
    manifest = w.decode(w.MANIFEST, golden["manifest"])
    assert w.write_chunk(vector, manifest.hash, 1, told.key) == golden["chunk_sealed"], "the sealed chunk differs"
    assert w.read_chunk(golden["chunk_sealed"], manifest, told.key) == (1, vector[w.CHUNK:]), "it is read as another"
    assert fails(w.read_chunk, golden["chunk_sealed"], manifest, up), "another key opens a chunk"


def check_respond(golden, opened):
    """An agent that draws less than the announced share is drawn, and says so."""
    e, drawn = opened["announcement_respond"], away.Away()
    r = e.body.sections.respond
    assert (r.of, r.return_after, r.return_within, r.presence) == (5583458, 60_000, 600_000, 1), f"respond is {r}"
    for luck, undrawn in (r.of - 1, False), (r.of, True):
        drawn.luck = e.run, e.round, luck
        drawn.draw(e, False)
        assert drawn.undrawn == undrawn, f"with {luck} of {r.of} it is drawn: {not drawn.undrawn}"
        assert drawn.of == (0 if undrawn else r.of), "it says that it was drawn by another share"
    said = opened["hello_respond"].body
    assert said.sections.respond == r.of and w.BODIES["hello"].write(said) == golden["hello_respond"][224:], \
        "hello_respond differs"


def check_epochs(opened, key):
    """A client that obeys an announcement of epoch 2 takes no message of epoch 1, not after a restart either."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key.pem")
        with open(path, "wb") as file:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()

        def start():
            return client.Agent("tcp://nowhere:1883", "plant_7", "press-01", path, public)
        agent, a = start(), opened["announcement_sealed"]
        up, down = w.seal_pair(key, a.body.sections.seals)

        def say(name, epoch, **body):
            topic = agent.topic("round" if name == "announcement" else f"d/{agent.device}")
            place = "plant_7", "coordinator", epoch, a.run, a.round, 1
            data = w.BODIES[name].write(w.Record(**body) if body else a.body)
            if name in w.SEALED:
                data, name = w.seal_body(down, a.body.sections.seals, w.place(*place), name, data), "sealed"
            agent.receive(topic, w.seal(key, name, *place, data))
        say("announcement", 2)
        digest, sent = agent.announcement.digest, []
        invitation = dict(agent="press-01", announcement=digest, left=1000, weight=1.0, uploads=1,
                          sections=w.without(mixing=None, rows=None))
        for agent in agent, start():
            agent.publish = lambda rest, payload, *_: sent.append(payload)
            hello = agent.hello
            say("announcement", 1)
            agent.object_at = min(agent.object_at, time.monotonic() + a.body.hello_within / 1000) - a.body.hello_within / 1000
            agent.say_objection()
            assert len(sent) == 1, "an older announcement is not answered with a hello"
            sealed = w.unseal(sent.pop(), "plant_7", "press-01", key.public_key())
            name, hello_body = w.open_body(up, sealed.place, sealed.body)
            assert (name, hello_body.announcement) == ("hello", digest), "it is not a hello about the newer announcement"
            say("announcement", 1)
            assert agent.object_at == math.inf, "older announcements are answered more often than once a minute"
            say("invitation", 1, **invitation)
            say("standing", 1, announcement=digest, place=1, samples=8)
            assert agent.invitation is None, "an invitation of an older epoch counts"
            assert agent.hello is hello, "a standing of an older epoch counts"
            assert agent.saved["order"][1] == 2, "an announcement of an older epoch is obeyed"
            job = agent.part = client.Part((a.run, a.round, w.blob_of(a.body, "base").hash.hex()))
            job.payload = b"1234"
            say("accepted", 1, update=w.blob_digest(job.payload))
            assert job.state == "open", "an answer of an older epoch counts"
            say("accepted", 2, update=w.blob_digest(job.payload))
            assert job.state == "accepted", "an answer of the present epoch does not count"
        job.state, job.lent, job.lease, job.repeat = "open", [0], math.inf, None
        for attempt in a.body.attempt, a.body.attempt + 1:  # first of a process that knows its place only, then of a coordinator that has restarted
            agent.hello = client.Repeat(5, 60, 600)
            say("announcement", 2, **{**vars(a.body), "attempt": attempt})
            assert not job.lent and job.lease is None and job.repeat.due(), "a credit outlives the coordinator that gave it"
            job.lent, job.lease, job.repeat = [0], math.inf, None
            assert not agent.hello.due(), "a hello is owed in the same run and epoch"
        agent.hello = client.Repeat(5, 60, 6e5)
        resting = agent.hello
        say("announcement", 3)
        assert agent.hello is not resting, "no hello to a coordinator of another epoch"


def main(folder):
    golden = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            golden[name.removesuffix(".hex")] = bytes.fromhex(file.read())
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    opened = {name: check_envelope(name, data, key) for name, data in golden.items() if data.startswith(b"FEDM")}
    assert {e.name for e in opened.values()} == set(w.BODIES), "not all types are there"

    hello = w.seal(key, "hello", "plant_7", "press-01", 5, 1760000000000, 3, 3, w.BODIES["hello"].write(w.Record(
        nonce=0x0123456789abcdef, announcement=opened["announcement_gathering"].digest, unfit=0, samples=12,
        update=w.NONE, sections=w.without(location=w.Record(known=1, x=3.5, y=-7), mixing=w.Record(
            peer_key=w.NONE, neighbours=["press-02", "press-04"]), outcome=None, misfit=None, key=None, respond=None))))
    assert hello == golden["hello"], "hello differs"
    linear = w.schema_hash(("layer0.weight", 1, [1, 2]), ("layer0.bias", 1, [1]))
    assert linear == w.sha256(golden["schema"]) == opened["announcement_open"].body.schema, "schema differs"
    statistics = w.schema_hash(("count", 2, [1]), ("mean", 2, [4]), ("squares", 2, [4]))
    assert statistics == w.sha256(golden["schema_statistics"]) == opened["announcement_statistics"].body.schema, \
        "schema of the statistics differs"
    for name in (name for name in golden if name.startswith("task")):
        assert w.TASK.write(w.decode(w.TASK, golden[name])) == golden[name], f"{name} differs"
    secret = w.selection_key(key, key.public_key())
    drawn = {name: w.weight_if_drawn(e, secret) for name, e in opened.items() if e.name == "announcement"}
    assert drawn == {"announcement_open": 1.5, "announcement_statistics": 1.0, "announcement_gathering": None,
                     "announcement_evaluated": None, "announcement_issued": None,
                     "announcement_pulled": None, "announcement_resting": None, "announcement_respond": None,
                     "announcement_sealed": 1.5,
                     "announcement_rollout": None}, f"drawn with {drawn}"
    assert w.OUTCOME.write(w.decode(w.OUTCOME, golden["outcome"])) == golden["outcome"], "outcome differs"
    check_blobs(golden, opened["announcement_pulled"].body)
    check_seals(golden, opened, key)
    check_respond(golden, opened)
    check_epochs(opened, key)
    print(f"{len(golden)} golden files agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
