"""Tasks and models that an announcement refers to (sections 6 and 15 of docs/PROTOCOL.md)."""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING, Any, Dict, Generator, Set

from fedmesh.agent import _wire as w
from fedmesh.agent._learner import Declined
from fedmesh.agent._repeat import Repeat, jitter
from fedmesh.agent._wire import Malformed, Record, require, sha256

if TYPE_CHECKING:
    from fedmesh.agent._client import Agent

WINDOW = 4  # chunks that are subscribed to at a time: at most 8
LOG = logging.getLogger("fedmesh.agent")


def group_key(agent: Agent, group: int) -> Generator[bool, None, bytes]:
    """Yields until the key of the group is there, for which a hello asks (section 15)."""
    ask = Repeat(5, 60, random.uniform(0, agent.announcement.body.hello_within / 1000))
    while w.key_id(bytes.fromhex(agent.saved["group"])) != group:
        agent.wants = group
        if not agent.silent() and ask.due():
            LOG.info("the key of the group is asked for")
            agent.greet()
        yield False
    agent.wants = 0
    return bytes.fromhex(agent.saved["group"])


def pull(agent: Agent, envelope: Record, name: str, schema: bytes) -> Generator[bool, None, bytes]:
    """Yields until a blob of an announcement is there (sections 6 and 15), and returns it."""
    reference, (group, whole) = w.blob_of(envelope.body, name), w.group_of(envelope.body, name)
    key = (yield from group_key(agent, group)) if group else b""
    if whole:
        blob = w.open_part(key, reference.hash, w.WHOLE, whole)
        require(w.blob_digest(blob) == reference.hash, "not what was sealed")
        return blob
    if reference.manifest == w.NONE:
        return bytes(reference.inline)
    prefix = agent.topic(f"m/{reference.hash.hex()[:32]}/")
    manifest: Any = None
    have: Dict[int, bytes] = {}
    asked: Set[str] = set()
    stalls, connection, deadline = 0, agent.connection, math.inf
    try:
        while manifest is None or len(have) < len(manifest.chunks):
            if connection != agent.connection:  # the broker has forgotten what was asked
                connection, asked, deadline = agent.connection, set(), math.inf
            if time.monotonic() > deadline:
                again = asked if manifest else {"m"}
                agent.mqtt.unsubscribe([prefix + part for part in again])
                stalls, asked = stalls + 1, asked - again
                if stalls == 9:
                    raise Declined(w.FETCH, f"the {name} does not come")
            chunks = range(-(-reference.length // w.CHUNK))
            wanted = [str(k) for k in chunks if k not in have][:WINDOW]
            if not manifest:  # it comes first; of a short blob the first chunks are asked for with it
                wanted = ["m"] + (wanted if len(chunks) < 2 * WINDOW else [])
            if new := [part for part in wanted if part not in asked]:
                agent.mqtt.subscribe([(prefix + part, 0) for part in new])
                asked.update(new)
                deadline = time.monotonic() + jitter(min(2 ** stalls, 10))
            yield False
            for part in sorted(asked, key=lambda part: part != "m"):
                if prefix + part not in agent.pieces or part != "m" and not manifest:
                    continue
                try:
                    data = agent.pieces.pop(prefix + part)
                    if part == "m":
                        manifest = read_manifest(data, reference, schema, key)
                    else:
                        k, payload = w.read_chunk(data, manifest, key)
                        require(str(k) == part, "wrong topic")
                        have[k] = payload
                except Malformed as error:
                    LOG.info(f"dropped {prefix}{part}: {error}")
                    continue
                agent.mqtt.unsubscribe(prefix + part)
                asked.remove(part)
                stalls, deadline = 0, time.monotonic() + jitter(1)
    finally:  # also when nobody wants the blob any more
        if asked:
            agent.mqtt.unsubscribe([prefix + part for part in asked])
        agent.pieces.clear()
    blob = b"".join(have[k] for k in range(len(have)))
    LOG.info(f"pulled {len(blob)} bytes in {len(have)} chunks")
    return blob


def read_manifest(data: bytes, reference: Record, schema: bytes, key: bytes) -> Any:
    require(sha256(data) == reference.manifest, "another manifest")
    if key:
        data = w.open_manifest(key, reference.hash, data)
    m = w.decode(w.MANIFEST, data)
    require((m.hash, m.length, m.schema) == (reference.hash, reference.length, schema), "of another blob")
    require(len(m.chunks) == -(-m.length // w.CHUNK), "wrong number of chunks")
    require(sha256(b"".join(m.chunks)) == m.hash, "hashes of chunks that do not make the blob's")
    return m

