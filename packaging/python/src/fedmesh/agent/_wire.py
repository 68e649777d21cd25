"""Every byte of the fedmesh protocol, as docs/PROTOCOL.md describes it.

The section numbers are those of that page. Encodings are tables, in the order of the page's own; a message is a
SimpleNamespace with one attribute a field.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import struct
from types import SimpleNamespace
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

MAX_MESSAGE, MAX_BODY, MAX_BLOB = 65536, 65312, 116690400
SEAL = 16  # by which sealed bytes are longer
CHUNK, MAX_CHUNKS, INLINE_BLOB, INLINE_UPDATE = 61416, 1900, 49152, 8192
NONE = bytes(32)
VERSION, ROOT = 2, 1
DOMAIN = b"fedmesh/v2/"
FEDERATION, AGENT = re.compile("[a-z0-9_]{1,32}"), re.compile("[A-Za-z0-9._-]{1,48}")


Record = SimpleNamespace


class Malformed(Exception):
    """Bytes that are not what they should be."""


def require(condition: Any, what: str) -> None:
    if not condition:
        raise Malformed(what)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# Section 4. A type has read(data, at), which returns a value and the place behind it, and write(value).

class Type(NamedTuple):
    read: Callable[[bytes, int], Tuple[Any, int]]
    write: Callable[[Any], bytes]


def scalar(code: str, valid: Callable[[Any], bool] = lambda value: True) -> Type:
    form = struct.Struct("<" + code)

    def read(data: bytes, at: int) -> Tuple[Any, int]:
        require(at + form.size <= len(data), "ends early")
        value, = form.unpack_from(data, at)
        require(valid(value), f"bad value {value}")
        return value, at + form.size
    return Type(read, form.pack)


def enum(first: int, last: int) -> Type:
    return scalar("B", lambda value: first <= value <= last)


U8, U16, U32, U64 = scalar("B"), scalar("H"), scalar("I"), scalar("Q")
F64, DIGEST, BOOL = scalar("d", math.isfinite), scalar("32s"), enum(0, 1)


def counted(size: Type, limit: int) -> Type:
    def read(data: bytes, at: int) -> Tuple[Any, int]:
        length, at = size.read(data, at)
        require(length <= min(limit, len(data) - at), "bad length")
        return data[at:at + length], at + length
    return Type(read, lambda value: size.write(len(value)) + value)


def string(limit: int = 128) -> Type:
    raw = counted(U16, limit)

    def read(data: bytes, at: int) -> Tuple[Any, int]:
        value, at = raw.read(data, at)
        try:
            return value.decode("utf-8"), at
        except UnicodeDecodeError:
            raise Malformed("not UTF-8") from None
    return Type(read, lambda value: raw.write(value.encode("utf-8")))


def list_of(item: Type, limit: int, size: Type = U32) -> Type:
    def read(data: bytes, at: int) -> Tuple[Any, int]:
        count, at = size.read(data, at)
        require(count <= min(limit, len(data) - at), "bad length")  # an entry has at least one byte
        values = []
        for _ in range(count):
            value, at = item.read(data, at)
            values.append(value)
        return values, at
    return Type(read, lambda values: size.write(len(values)) + b"".join(map(item.write, values)))


def record(**fields: Type) -> Type:
    def read(data: bytes, at: int) -> Tuple[Any, int]:
        values = Record()
        for name, field in fields.items():
            value, at = field.read(data, at)
            setattr(values, name, value)
        return values, at
    return Type(read, lambda values: b"".join(field.write(getattr(values, name)) for name, field in fields.items()))


# Sections: what a body ends with. Those that are not known stay in `unknown`, as (name, need, bytes).

IGNORE, DECLINE = 1, 2
NAME = re.compile("[a-z0-9_]{1,32}")
SECTION = record(name=string(32), need=enum(1, 2), body=counted(U32, MAX_BLOB))


def sections(**known: Tuple[int, Type]) -> Type:
    """known: name=(need, Type) each. A body without one of them has None there."""
    listed = list_of(SECTION, 64)

    def read(data: bytes, at: int) -> Tuple[Any, int]:
        found, at = listed.read(data, at)
        values, last = Record(unknown=[], **dict.fromkeys(known)), ""
        for s in found:
            require(NAME.fullmatch(s.name) and s.name > last and s.body, "bad section")
            last = s.name
            if s.name not in known:
                values.unknown.append((s.name, s.need, s.body))
                continue
            need, form = known[s.name]
            require(s.need == need, "a section that is marked wrongly")
            setattr(values, s.name, decode(form, s.body))
        return values, at

    def write(values: Any) -> bytes:
        found = [Record(name=name, need=need, body=form.write(getattr(values, name)))
                 for name, (need, form) in known.items() if getattr(values, name) is not None]
        found += [Record(name=name, need=need, body=body) for name, need, body in values.unknown]
        return listed.write(sorted(found, key=lambda s: s.name))
    return Type(read, write)


def without(**known: Any) -> Record:
    """The sections of a body that says no more than these."""
    return Record(unknown=[], **known)


def unsupported(values: Record) -> List[str]:
    """Names the sections that forbid to go on for who does not know them."""
    return [name for name, need, _ in values.unknown if need == DECLINE]


def decode(form: Type, data: bytes) -> Any:
    value, end = form.read(data, 0)
    require(end == len(data), "bytes after the last field")
    return value


# Sections 6, 7 and 8.

GATHERING, OPEN, IDLE, FINISHED = 1, 2, 3, 4
STATISTICS, TRAINING = 1, 2
ONLINE, OFFLINE, LOST = 1, 2, 3
NOT_SELECTED = 2  # a place in a round
BAD_DATA, TOO_FEW_ROWS, UNSUPPORTED, NO_TIME, DIVERGED, FETCH, STOPPING, REFUSED = range(1, 9)

MANIFEST = record(hash=DIGEST, length=U32, codec=enum(1, 3), schema=DIGEST, chunks=list_of(DIGEST, MAX_CHUNKS))
BLOB = record(hash=DIGEST, manifest=DIGEST, length=U32, inline=counted(U32, INLINE_BLOB))
BLOBS = list_of(record(name=string(32), blob=BLOB), 16)
BODIES = {  # in the order of the numbers in section 5
    "announcement": record(
        attempt=U32, phase=enum(1, 4), kind=enum(1, 2), version=U64, instance=U64, folded=U64, blobs=BLOBS,
        schema=DIGEST, seed=U64, offset=U64, hello_within=U32, round_within=U32, sections=sections(
            credit=(IGNORE, U32),
            respond=(IGNORE, record(of=U32, return_after=U32, return_within=U32, presence=BOOL)),
            sealed=(DECLINE, record(group=U64, blobs=list_of(record(
                name=string(32), blob=counted(U32, INLINE_BLOB + SEAL)), 16))),
            seals=(IGNORE, DIGEST),
            selection=(IGNORE, record(weight=F64, tags=list_of(U64, 512), masks=list_of(U64, 512))))),
    "invitation": record(
        agent=string(), announcement=DIGEST, left=U32, weight=F64, uploads=BOOL, sections=sections(
            mixing=(DECLINE, record(block=U64, peers=list_of(
                record(id=string(48), boot=U64, key=DIGEST, weight=F64), 128))),
            rows=(IGNORE, record(samples=U64)))),
    "standing": record(announcement=DIGEST, place=enum(1, 2), samples=U64),
    "accepted": record(update=DIGEST),
    "refused": record(update=DIGEST, reason=enum(1, 12)),
    "credit": record(update=DIGEST, lease=U32, chunks=list_of(record(first=U32, last=U32), 64)),
    "update": record(
        kind=enum(1, 2), base=DIGEST, payload=MANIFEST, inline=counted(U32, INLINE_UPDATE), local_steps=U32,
        samples=U64, risk_before=F64, risk_after=F64, step_time=F64, sections=sections(ahead=(IGNORE, U32))),
    "presence": record(state=enum(1, 3), nonce=U64, speaks=U8, software=string(), sections=sections(
        durable=(IGNORE, BOOL))),
    "hello": record(nonce=U64, announcement=DIGEST, unfit=enum(0, 15), samples=U64, update=DIGEST, sections=sections(
        key=(IGNORE, U64),
        location=(IGNORE, record(known=BOOL, x=F64, y=F64)),
        misfit=(IGNORE, record(column=string(), reason=string(128), where=string(), bad=U64, all=U64)),
        mixing=(IGNORE, record(peer_key=DIGEST, neighbours=list_of(string(48), 128))),
        outcome=(IGNORE, record(round=U64, update=DIGEST)),
        respond=(IGNORE, U32))),
    "joined": record(announcement=DIGEST),
    "declined": record(announcement=DIGEST, reason=enum(1, 15)),
    "report": record(every=U32, software=string(), scrape=string(), readings=list_of(record(id=U8, value=F64), 255)),
    "settled": record(update=DIGEST, fate=enum(1, 9)),
    "rejection": record(answers=DIGEST, reason=enum(1, 4)),
    "sealed": Type(lambda data, at: (data[at:], len(data)), bytes),  # open_body opens it
    "key": record(key=DIGEST),
    "renew": record(key=DIGEST, before=DIGEST, tls=counted(U32, 65), by_before=scalar("64s"), by_tls=counted(U32, 80)),
    "renewed": record(answers=DIGEST, refused=enum(0, 4), certificate=counted(U32, 8192)),
}
NAMES = list(BODIES)
OUTCOME = record(round=U64, abandoned=BOOL, settled=list_of(
    record(tag=scalar("8s"), fate=scalar("B", lambda f: f in (1, 2, 3, 4, 5, 9))), 1 << 20))
TASK = record(
    name=string(), features=list_of(string(), 65536), target=string(), hidden=list_of(U32, 8), outputs=U32,
    activation=enum(1, 3), risk=enum(1, 4), bias=BOOL, ridge=F64, exchange=enum(1, 2), batch_size=U32,
    response_prob=F64, step_size=F64, strong_convexity=F64, gamma=F64, normalize=BOOL, budget=U32, min_steps=U32,
    max_steps=U32, min_samples=U64, sections=sections(
        codec=(DECLINE, enum(2, 3)),
        external=(DECLINE, record(trainer=string(), tensors=list_of(
            record(name=string(), element=enum(1, 1), shape=list_of(U32, 8, U8)), 4096))),
        frozen=(DECLINE, list_of(string(), 27)), huber=(DECLINE, F64), proximal=(DECLINE, F64),
        gradient_noise=(DECLINE, record(law=enum(1, 2), variance=F64)),
        inputs=(DECLINE, record(step=U32, lateness=U32, zone=string(), inputs=list_of(record(
            name=string(), unit=string(), range=list_of(F64, 2), join=enum(1, 6), scale=enum(1, 2),
            classes=list_of(string(), 256), wait=U32), 256))),
        sensors=(DECLINE, list_of(record(input=U32, stuck=U32, jump=F64), 256)),
        mixing=(DECLINE, record(every=U32, wait=U32, repeat=U32, drain=U32, codec=enum(0, 3), open=BOOL, endless=BOOL)),
        standardization=(DECLINE, record(mean=list_of(F64, 65537), scale=list_of(F64, 65537), clip=F64))))


Tensor = Tuple[str, int, List[int]]


def schema_hash(*tensors: Tensor) -> bytes:
    """tensors: (name, element, dimensions) each; element is 1 for F32 and 2 for F64."""
    text = U16.write(len(tensors))
    for name, element, dimensions in tensors:
        text += string().write(name) + U8.write(element) + U8.write(len(dimensions))
        text += b"".join(map(U32.write, dimensions))
    return sha256(text)


def chunk_hashes(blob: bytes) -> List[bytes]:
    return [sha256(blob[at:at + CHUNK]) for at in range(0, len(blob), CHUNK)]


def blob_digest(blob: bytes) -> bytes:
    """Names a blob: the SHA-256 of its chunks' SHA-256s, one behind the other."""
    return sha256(b"".join(chunk_hashes(blob)))


def manifest_of(blob: bytes, schema: bytes) -> Record:
    chunks = chunk_hashes(blob)
    return Record(hash=sha256(b"".join(chunks)), length=len(blob), codec=1, schema=schema, chunks=chunks)


CHUNK_HEADER = struct.Struct("<4sB3sII8s")


def write_chunk(blob: bytes, blob_hash: bytes, k: int, key: bytes) -> bytes:
    payload = seal_part(key, blob_hash, k, blob[k * CHUNK:(k + 1) * CHUNK])
    return CHUNK_HEADER.pack(b"FEDC", VERSION, bytes(3), k, len(payload), blob_hash[:8]) + payload


def read_chunk(data: bytes, manifest: Record, key: bytes = b"") -> Tuple[int, bytes]:
    """Returns number and payload of a chunk that belongs to the manifest."""
    require(len(data) > CHUNK_HEADER.size, "short chunk")
    *head, k, length, mark = CHUNK_HEADER.unpack_from(data)
    payload = data[CHUNK_HEADER.size:]
    require(head == [b"FEDC", VERSION, bytes(3)] and mark == manifest.hash[:8] and k < len(manifest.chunks),
            "bad chunk")
    require(length == len(payload), "bad length of chunk")
    if key:
        payload = open_part(key, manifest.hash, k, payload)
    require(len(payload) == min(CHUNK, manifest.length - k * CHUNK), "bad length of chunk")
    require(sha256(payload) == manifest.chunks[k], "bad hash of chunk")
    return k, payload


def blob_of(a: Record, name: str) -> Any:
    """The blob of that name in an announcement; one without a length if it names none."""
    absent = Record(hash=NONE, manifest=NONE, length=0, inline=b"")
    return next((named.blob for named in a.blobs if named.name == name), absent)


def check_announcement(a: Record) -> None:
    names = [named.name for named in a.blobs]
    require(names == sorted(set(names)) and all(map(NAME.fullmatch, names)), "bad names of blobs")
    for named in a.blobs:
        blob = named.blob
        require(blob.length > 0, "bad length of a blob")
        if blob.manifest == NONE:
            require(len(blob.inline) == blob.length and blob_digest(blob.inline) == blob.hash, "bad inline blob")
        else:
            require(not blob.inline and blob.length <= MAX_BLOB, "bad blob reference")
    require(a.attempt > 0, "attempt is 0")
    if a.phase == OPEN:
        require("task" in names and ("base" in names) == (a.kind == TRAINING), "blobs do not fit the kind")


# Who is drawn (section 7.1).

FIELD = 2**255 - 19


def selection_key(own: Ed25519PrivateKey, peer: Ed25519PublicKey) -> bytes:
    """The secret of two Ed25519 keys, one's own private one and the other's public one."""
    seed = own.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    private = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])
    y = int.from_bytes(peer.public_bytes(Encoding.Raw, PublicFormat.Raw), "little") % 2**255
    u = (1 + y) * pow(1 - y, -1, FIELD) % FIELD
    secret = private.exchange(X25519PublicKey.from_public_bytes(u.to_bytes(32, "little")))
    return HKDF(SHA256(), 32, None, b"fl/v1/selection").derive(secret)


def weight_if_drawn(envelope: Record, key: bytes) -> Optional[float]:
    """The weight of the local step size, if the announcement names the agent with this key, else None."""
    a = envelope.body
    s = a.sections.selection
    if s is None:
        return None
    require(s.tags == sorted(set(s.tags)) and s.tags and s.weight >= 0, "bad selection")
    require(len(s.masks) == (0 if s.weight else len(s.tags)), "bad masks")
    place = struct.pack("<QQQIQ", envelope.epoch, envelope.run, envelope.round, a.attempt, a.instance)
    tag, pad = struct.unpack("<QQ", hmac.digest(key, place, "sha256")[:16])
    if tag not in s.tags:
        return None
    return float(s.weight or struct.unpack("<d", U64.write(s.masks[s.tags.index(tag)] ^ pad))[0])


# Seals (section 15).

SEALED = ("invitation", "standing", "update", "hello", "report", "key")
WHOLE = -1  # the whole of a blob, beside its chunks


def seal_pair(own: Ed25519PrivateKey, announced: bytes) -> Tuple[bytes, bytes]:
    """The keys that an agent shares with the coordinator that announces a key: of what it says, of what it is told."""
    seed = own.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    private = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])
    secret = private.exchange(X25519PublicKey.from_public_bytes(announced))
    public = own.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    both = HKDF(SHA256(), 64, None, b"fl/v1/seal " + announced + public).derive(secret)
    return both[:32], both[32:]


def mac(key: bytes, use: bytes, *said: bytes) -> bytes:
    return hmac.digest(key, use + b"\0" + b"".join(said), "sha256")


def key_id(key: bytes) -> int:
    return max(1, int.from_bytes(mac(key, b"id")[:8], "little"))


def opened(cipher: ChaCha20Poly1305, nonce: bytes, sealed: bytes, place: Optional[bytes] = None) -> bytes:
    try:
        return cipher.decrypt(nonce, sealed, place)
    except InvalidTag:
        raise Malformed("the seal does not open") from None


def seal_text(key: bytes, use: bytes, place: bytes, text: bytes) -> bytes:
    salt = mac(key, use + b" salt", place, text)[:16]
    return salt + ChaCha20Poly1305(mac(key, use, salt)).encrypt(bytes(12), text, place)


def open_text(key: bytes, use: bytes, place: bytes, sealed: bytes) -> bytes:
    require(len(sealed) >= 16 + SEAL, "short seal")
    return opened(ChaCha20Poly1305(mac(key, use, sealed[:16])), bytes(12), sealed[16:], place)


def place(federation: str, sender: str, epoch: int, run: int, round: int, sequence: int) -> bytes:
    """What a sealed message is bound to: most of its header."""
    return struct.pack("<32s48sQQQQI", federation.encode(), sender.encode(), epoch, run, round, sequence, ROOT)


def seal_body(key: bytes, announced: bytes, place: bytes, name: str, body: bytes) -> bytes:
    return announced[:8] + seal_text(key, b"message", place, U8.write(1 + NAMES.index(name)) + body)


def open_body(key: bytes, place: bytes, sealed: bytes) -> Tuple[str, Any]:
    """Name and body of what is sealed."""
    said = open_text(key, b"message", place, sealed[8:])
    require(said and 1 <= said[0] <= len(NAMES) and NAMES[said[0] - 1] in SEALED, "a message that is never sealed")
    return NAMES[said[0] - 1], decode(BODIES[NAMES[said[0] - 1]], said[1:])


def part_nonce(k: int) -> bytes:
    return struct.pack("<i8x", k)


def seal_part(key: bytes, blob_hash: bytes, k: int, part: bytes) -> bytes:
    return ChaCha20Poly1305(mac(key, b"blob", blob_hash)).encrypt(part_nonce(k), part, None)


def open_part(key: bytes, blob_hash: bytes, k: int, sealed: bytes) -> bytes:
    return opened(ChaCha20Poly1305(mac(key, b"blob", blob_hash)), part_nonce(k), sealed)


def open_manifest(key: bytes, blob_hash: bytes, sealed: bytes) -> bytes:
    return open_text(key, b"manifest", blob_hash, sealed)


def group_of(a: Record, name: str) -> Tuple[int, bytes]:
    """The id of the key under which a blob of an announcement is sealed, and the sealed blob if it is in there."""
    sealed = a.sections.sealed
    whole = next((s.blob for s in sealed.blobs if s.name == name), None) if sealed else None
    return (0, b"") if whole is None else (sealed.group, whole)


# Section 5.

HEADER = struct.Struct("<4sBBH32s48sQQQQII32s")


def seal(key: Ed25519PrivateKey, name: str, federation: str, sender: str, epoch: int, run: int, round: int,
         sequence: int, body: bytes) -> bytes:
    header = HEADER.pack(b"FEDM", VERSION, 1 + NAMES.index(name), 0, federation.encode(), sender.encode(), epoch, run,
                         round, sequence, len(body), ROOT, sha256(body))
    return header + key.sign(DOMAIN + name.encode() + b"\0" + header) + body


def unseal(data: bytes, federation: str, sender: str, public_key: Ed25519PublicKey) -> Record:
    """Opens an envelope of that sender: form and body's hash first, then the signature, then the body."""
    require(224 <= len(data) <= MAX_MESSAGE, "bad length")
    header, signature, body = data[:160], data[160:224], data[224:]
    magic, version, number, zero, fed, who, epoch, run, round, sequence, length, root, body_hash = HEADER.unpack(header)
    require((magic, version, zero) == (b"FEDM", VERSION, 0) and root > 0 and 1 <= number <= len(NAMES),
            "not an envelope")
    require(fed == federation.encode().ljust(32, b"\0") and who == sender.encode().ljust(48, b"\0"), "of others")
    require(length == len(body) <= MAX_BODY and sha256(body) == body_hash, "bad body")
    name = NAMES[number - 1]
    try:
        public_key.verify(signature, DOMAIN + name.encode() + b"\0" + header)
    except InvalidSignature:
        raise Malformed("bad signature") from None
    return Record(name=name, root=root, epoch=epoch, run=run, round=round, sequence=sequence, digest=sha256(header),
                  place=header[8:120] + header[124:128], body=decode(BODIES[name], body))
