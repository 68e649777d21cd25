package wire_test

import (
	"crypto/ed25519"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// Sizes of message parts according to docs/PROTOCOL.md. The constants repeat the values in the code, so that a change
// of the code makes tests fail.
const (
	headerSize   = 160
	envelopeSize = 160 + 64 // header and signature, which precede the body
)

// form describes a kind of message body by its encoder, decoder and random generator. Values are passed as pointers.
type form struct {
	name   string
	typ    wire.MessageType // message type; 0 if the body is sent without an envelope
	encode func(any) []byte
	decode func([]byte) (any, error)
	random func(*rand.Rand) any
}

func formOf[M any](name string, typ wire.MessageType, encode func(*M) []byte, decode func([]byte) (M, error),
	random func(*rand.Rand) M) form {
	return form{
		name: name, typ: typ,
		encode: func(m any) []byte { return encode(m.(*M)) },
		decode: func(p []byte) (any, error) {
			m, err := decode(p)
			return &m, err
		},
		random: func(rng *rand.Rand) any {
			m := random(rng)
			return &m
		},
	}
}

// forms returns every kind of message body. The bodies that are sent in an envelope come first.
func forms() []form {
	return []form{
		formOf("announcement", wire.TypeAnnouncement, (*wire.Announcement).Body, wire.DecodeAnnouncement,
			randomAnnouncement),
		formOf("invitation", wire.TypeInvitation, (*wire.Invitation).Body, wire.DecodeInvitation, randomInvitation),
		formOf("standing", wire.TypeHelloAnswer, (*wire.HelloAnswer).Body, wire.DecodeHelloAnswer, randomStanding),
		formOf("accepted", wire.TypeUpdateAccepted, (*wire.UpdateAccepted).Body, wire.DecodeUpdateAccepted,
			randomAccepted),
		formOf("refused", wire.TypeUpdateRefused, (*wire.UpdateRefused).Body, wire.DecodeUpdateRefused, randomRefused),
		formOf("credit", wire.TypeChunkCredit, (*wire.ChunkCredit).Body, wire.DecodeChunkCredit, randomCredit),
		formOf("update", wire.TypeUpdate, (*wire.Update).Body, wire.DecodeUpdate, randomUpdate),
		formOf("presence", wire.TypePresence, (*wire.Presence).Body, wire.DecodePresence, randomPresence),
		formOf("hello", wire.TypeHello, (*wire.Hello).Body, wire.DecodeHello, randomHello),
		formOf("joined", wire.TypeInvitationAccepted, (*wire.InvitationAccepted).Body, wire.DecodeInvitationAccepted,
			randomJoined),
		formOf("declined", wire.TypeInvitationDeclined, (*wire.InvitationDeclined).Body, wire.DecodeInvitationDeclined,
			randomDeclined),
		formOf("report", wire.TypeMetricsReport, (*wire.AgentMetricsReport).Body, wire.DecodeAgentMetricsReport,
			randomReport),
		formOf("settled", wire.TypeUpdateFateAnswer, (*wire.UpdateFateAnswer).Body, wire.DecodeUpdateFateAnswer,
			func(rng *rand.Rand) wire.UpdateFateAnswer {
				return wire.UpdateFateAnswer{Update: randomDigest(rng), Fate: oneTo(rng, wire.FateRoundForgotten)}
			}),
		formOf("rejection", wire.TypeMessageRejection, (*wire.MessageRejection).Body, wire.DecodeMessageRejection,
			func(rng *rand.Rand) wire.MessageRejection {
				return wire.MessageRejection{MessageDigest: randomDigest(rng), Reason: oneTo(rng, wire.RejectedClone)}
			}),
		formOf("sealed", wire.TypeSealed, func(m *sealed) []byte { return m.Body },
			func(body []byte) (sealed, error) {
				_, up := openedAs(goldenPair().FromAgentKey, byAgent(goldenRun, 3, 12), body)
				_, down := openedAs(goldenPair().ToAgentKey, byCoordinator(3, 20), body)
				if up != nil && down != nil {
					return sealed{}, up
				}
				return sealed{body}, nil
			},
			func(rng *rand.Rand) sealed {
				return sealed{goldenPair().FromAgentKey.SealMessage(wire.X25519PublicKey{}, byAgent(goldenRun, 3, 12),
					wire.TypeHello,
					randomBytes(rng, rng.IntN(100)))}
			}),
		formOf("key", wire.TypeGroupKeyDelivery, (*wire.GroupKeyDelivery).Body, wire.DecodeGroupKeyDelivery,
			func(rng *rand.Rand) wire.GroupKeyDelivery {
				return wire.GroupKeyDelivery{Key: wire.SealKey(randomDigest(rng))}
			}),
		formOf("renew", wire.TypeRenewalRequest, (*wire.CredentialRenewalRequest).Body,
			wire.DecodeCredentialRenewalRequest, randomRenew),
		formOf("renewed", wire.TypeRenewalAnswer, (*wire.CredentialRenewalAnswer).Body,
			wire.DecodeCredentialRenewalAnswer, randomRenewed),
		formOf("outcome", 0, (*wire.RoundOutcome).Body, wire.DecodeRoundOutcome, randomOutcome),
		formOf("task", 0, func(t *wire.Task) []byte { return t.AppendEncoding(nil) }, wire.DecodeTask, randomTask),
		formOf("manifest", 0, func(m *wire.Manifest) []byte { return m.AppendEncoding(nil) }, wire.DecodeManifest,
			randomManifest),
		formOf("chunk", 0, encodeChunk, decodeChunk, randomChunk),
		formOf("greeting", 0, encodeGreeting, decodeGreeting, randomGreeting),
		formOf("snapshot", 0, encodeSnapshot, decodeSnapshot, randomSnapshot),
		formOf("control", 0, encodeControl, decodeControl, randomControl),
		formOf("beacon", 0, encodeBeacon, decodeBeacon, randomBeacon),
		formOf("signed_beacon", 0, encodeSigned, decodeSigned, func(rng *rand.Rand) signedBeacon {
			m := signedBeacon{randomBeacon(rng),
				wire.AgentKeyAttestation{AgentKey: wire.SigningPublicKeyOf(testKey()),
					CoordinatorSignature: wire.Signature{1,
						2, 3}}}
			m.Head.Type = wire.PeerSignedBeacon
			return m
		}),
		formOf("root", 0, (*wire.RootDocument).Bytes, wire.DecodeRootDocument, randomRoot),
		formOf("join", 0, (*wire.EnrolmentRequest).Bytes, wire.DecodeEnrolmentRequest, randomJoin),
		formOf("admission", 0, (*wire.EnrolmentAnswer).Bytes, wire.DecodeEnrolmentAnswer, randomAdmission),
	}
}

func types() (all []wire.MessageType) {
	for _, f := range forms() {
		if f.typ != 0 {
			all = append(all, f.typ)
		}
	}
	return all
}

func formNamed(t testing.TB, name string) form {
	for _, f := range forms() {
		if f.name == name {
			return f
		}
	}
	t.Fatalf("no form %q", name)
	return form{}
}

// sealed is the body of an encrypted message. The tests of encryption decrypt it.
type sealed struct{ Body []byte }

// chunk is the content of a chunk message. All chunks of these tests belong to the blob with hash chunkBlob.
type chunk struct {
	K       int
	Payload []byte
}

var chunkBlob = wire.BlobDigest(bigVector())

func encodeChunk(c *chunk) []byte { return wire.AppendChunkMessage(nil, chunkBlob, c.K, c.Payload) }

func decodeChunk(p []byte) (chunk, error) {
	k, payload, err := wire.DecodeChunkMessage(p, chunkBlob)
	return chunk{k, payload}, err
}

// Messages between neighbours, with their headers and contents.
type (
	greeting struct {
		Head wire.PeerMessageHeader
		wire.KeyGreeting
	}
	snapshot struct {
		Head wire.PeerMessageHeader
		wire.SnapshotPartHeader
		Sealed []byte
	}
	control struct {
		Head wire.PeerMessageHeader
		wire.PeerControlMessage
		Seal []byte
	}
	beacon struct {
		Head wire.PeerMessageHeader
		wire.Beacon
	}
)

func encodeGreeting(m *greeting) []byte { return wire.AppendKeyGreeting(nil, m.Head, &m.KeyGreeting) }

func decodeGreeting(p []byte) (greeting, error) {
	h, rest, err := wire.DecodePeerMessageHeader(p)
	if err != nil || h.Type != wire.PeerGreeting {
		return greeting{}, errors.Join(err, errNotThis)
	}
	g, err := wire.DecodeKeyGreeting(rest)
	return greeting{h, g}, err
}

func encodeSnapshot(m *snapshot) []byte {
	return append(wire.AppendSnapshotPartHeader(nil, m.Head, &m.SnapshotPartHeader), m.Sealed...)
}

func decodeSnapshot(p []byte) (snapshot, error) {
	h, rest, err := wire.DecodePeerMessageHeader(p)
	if err != nil || h.Type != wire.PeerSnapshot {
		return snapshot{}, errors.Join(err, errNotThis)
	}
	s, sealed, err := wire.DecodeSnapshotPart(rest)
	if err == nil && len(sealed) != partOfTests {
		err = wire.ErrTruncated
	}
	return snapshot{h, s, sealed}, err
}

func encodeControl(m *control) []byte {
	return append(wire.AppendPeerControl(nil, m.Head, &m.PeerControlMessage), m.Seal...)
}

func decodeControl(p []byte) (control, error) {
	h, rest, err := wire.DecodePeerMessageHeader(p)
	if err != nil || h.Type != wire.PeerSnapshotRequest && h.Type != wire.PeerFinish {
		return control{}, errors.Join(err, errNotThis)
	}
	c, seal, err := wire.DecodePeerControl(rest)
	if err == nil && len(seal) != wire.PeerSealOverhead {
		err = wire.ErrTruncated
	}
	return control{h, c, seal}, err
}

func encodeBeacon(m *beacon) []byte { return wire.AppendBeacon(nil, m.Head, &m.Beacon) }

func decodeBeacon(p []byte) (beacon, error) {
	h, b, proof, err := wire.DecodeBeacon(p)
	if err == nil && proof != nil {
		err = errNotThis
	}
	return beacon{h, b}, err
}

// signedBeacon is a beacon signed with the test key.
type signedBeacon struct {
	beacon
	Word wire.AgentKeyAttestation
}

var testCell = wire.BeaconCell{Federation: "plant_7", CellName: "hall"}

func encodeSigned(m *signedBeacon) []byte {
	return wire.SignBeacon(wire.Ed25519{}, encodeBeacon(&m.beacon), testCell, m.Word, testKey())
}

func decodeSigned(p []byte) (signedBeacon, error) {
	h, b, proof, err := wire.DecodeBeacon(p)
	if err != nil {
		return signedBeacon{}, err
	}
	if proof == nil || !proof.Verify(wire.Ed25519{}, testCell) {
		return signedBeacon{}, errNotThis
	}
	return signedBeacon{beacon{h, b}, proof.Attestation}, nil
}

// partOfTests is the length, in bytes, of the snapshot parts in these tests.
const partOfTests = 12

var errNotThis = errors.New("another message between neighbours")

// testKey returns the key of the golden files. Its seed is the bytes 0, 1, … 31.
func testKey() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	return ed25519.NewKeyFromSeed(seed)
}

func testPublicKey() ed25519.PublicKey { return testKey().Public().(ed25519.PublicKey) }

// notFinite returns infinite numbers, and quiet and signalling NaN values.
func notFinite() []float64 {
	return []float64{
		math.NaN(), math.Inf(1), math.Inf(-1),
		math.Float64frombits(0x7ff0_0000_0000_0001), math.Float64frombits(0xfff8_dead_beef_0000),
		math.Float64frombits(0xffff_ffff_ffff_ffff),
	}
}
