package wire_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Generators of valid random messages. Empty lists are nil, as returned by decoders.

func randomBytes(rng *rand.Rand, n int) []byte {
	if n == 0 {
		return nil
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func randomDigest(rng *rand.Rand) wire.Digest { return wire.Digest(randomBytes(rng, 32)) }

// randomString returns a random UTF-8 string of at most MaxName bytes, whose characters have one to four bytes.
func randomString(rng *rand.Rand) string {
	var b strings.Builder
	for range rng.IntN(33) {
		b.WriteRune([]rune{'a', 'é', '→', '𝟙', '\x00', '"'}[rng.IntN(6)])
	}
	return b.String()
}

func randomName(rng *rand.Rand, alphabet string, most int) string {
	p := make([]byte, 1+rng.IntN(most))
	for i := range p {
		p[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(p)
}

// randomFloat returns a random float64 whose bit pattern is drawn from all finite numbers.
func randomFloat(rng *rand.Rand) float64 {
	for {
		if x := math.Float64frombits(rng.Uint64()); x-x == 0 {
			return x
		}
	}
}

func randomFloats(rng *rand.Rand, n int) []float64 {
	var xs []float64
	for range n {
		xs = append(xs, randomFloat(rng))
	}
	return xs
}

// oneTo returns a random value of an enumeration whose largest value is last.
func oneTo[E ~uint8](rng *rand.Rand, last E) E { return 1 + E(rng.UintN(uint(last))) }

// oneOf returns a random element of words.
func oneOf[W ~string](rng *rand.Rand, words ...W) W { return words[rng.IntN(len(words))] }

func randomHeader(rng *rand.Rand, typ wire.MessageType) wire.Header {
	const lower = "abcdefghijklmnopqrstuvwxyz0123456789_"
	return wire.Header{
		Type: typ, Federation: wire.FederationName(randomName(rng, lower, wire.MaxFederation)),
		Sender: wire.AgentID(randomName(rng, lower+"ABCDEFGHIJKLMNOPQRSTUVWXYZ-.", wire.MaxAgentID)),
		Epoch:  wire.Epoch(rng.Uint64()), Run: wire.RunID(rng.Uint64()), Round: wire.RoundID(rng.Uint64()),
		Sequence: rng.Uint64(), Root: 1 + wire.RootVersion(rng.Uint32N(math.MaxUint32)),
	}
}

// randomExtra returns random sections whose names this build does not know.
func randomExtra(rng *rand.Rand) wire.UnknownSections {
	var x wire.UnknownSections
	for i := range rng.IntN(3) {
		x = append(x, wire.BodySection{Name: fmt.Sprintf("x%d_%s", i, randomName(rng, "ab_9", 20)),
			UnknownPolicy: oneTo(rng, wire.DeclineUnknownSection), Body: randomBytes(rng, 1+rng.IntN(40))})
	}
	return x
}

func randomBlob(rng *rand.Rand) wire.BlobRef {
	if rng.IntN(2) == 0 {
		p := randomBytes(rng, 1+rng.IntN(300))
		return wire.BlobRef{Hash: wire.BlobDigest(p), Length: uint32(len(p)), Inline: p}
	}
	return wire.BlobRef{Hash: randomDigest(rng), ManifestHash: randomDigest(rng),
		Length: 1 + rng.Uint32N(wire.MaxBlobBytes)}
}

func randomAnnouncement(rng *rand.Rand) wire.Announcement {
	a := wire.Announcement{
		Attempt: 1 + wire.RoundAttempt(rng.Uint32N(math.MaxUint32)), Phase: oneTo(rng, wire.PhaseFinished),
		Kind:             oneTo(rng, wire.KindTraining),
		BaseModelVersion: wire.ModelVersion(rng.Uint64()), UpdateSchema: randomDigest(rng), Seed: rng.Uint64(),
		PriorLocalSteps:   rng.Uint64(),
		HelloSpreadMillis: rng.Uint32(), RoundTimeoutMillis: rng.Uint32(), InstanceNonce: rng.Uint64(),
		LastEndedRound: wire.RoundID(rng.Uint64()), Extra: randomExtra(rng),
	}
	for i := range rng.IntN(3) {
		a.UnknownBlobs = append(a.UnknownBlobs, wire.NamedBlob{Name: fmt.Sprint("c", i), BlobRef: randomBlob(rng)})
	}
	if a.Phase == wire.PhaseOpen || rng.IntN(2) == 0 {
		a.Task = randomBlob(rng)
	}
	if a.Kind == wire.KindTraining {
		a.BaseModel = randomBlob(rng)
	}
	a.InitialCreditChunks, a.MinNewRows, a.MinEvaluationRows = rng.Uint32N(5), rng.Uint32N(3), rng.Uint32N(3)
	if rng.IntN(2) == 0 {
		a.ResponsePolicy = wire.AgentResponsePolicy{AnswerProbability: rng.Uint32(), DisconnectMillis: rng.Uint32(),
			AbsenceSpreadMillis: rng.Uint32(), PresenceInRoundOnly: rng.IntN(2) == 0}
	}
	var selected []wire.SelectedAgent
	for i := range rng.IntN(4) {
		selected = append(selected, wire.SelectedAgent{Key: wire.SelectionKey{byte(i)},
			StepSizeWeight: float64(1 + rng.IntN(2))})
	}
	a.Selection = wire.NewAgentSelection(wire.AnnouncementPosition{Attempt: a.Attempt}, a.InstanceNonce, selected)
	if rng.IntN(2) == 0 {
		a.LastRoundOutcome = randomBlob(rng)
	}
	if rng.IntN(2) == 0 {
		a.Rollout.ReleasedModel, a.ReleasedModelFile = randomModelName(rng), randomBlob(rng)
		if rng.IntN(2) == 0 {
			a.Rollout.CandidateModel, a.CandidateModelFile, a.Rollout.CandidateAgentShare = randomModelName(rng),
				randomBlob(rng),
				1-rng.Float64()
		}
	}
	a.IssuedAt = rng.Uint64N(3)
	if rng.IntN(2) == 0 {
		a.SealPublicKey = wire.X25519PublicKey(randomDigest(rng))
		group := wire.SealKey(randomDigest(rng))
		for _, b := range []*wire.BlobRef{&a.Task, &a.BaseModel, &a.ReleasedModelFile} {
			if len(b.Inline) > 0 {
				*b = b.SealInline(group)
			} else if b.IsSet() {
				b.GroupKeyID = group.ID()
			}
		}
	}
	return a
}

func randomModelName(rng *rand.Rand) wire.ModelRef {
	return wire.ModelRef{Run: 1 + wire.RunID(rng.Uint64()>>1), Version: wire.ModelVersion(rng.Uint64()),
		ParametersDigest: randomDigest(rng)}
}

func randomInvitation(rng *rand.Rand) wire.Invitation {
	id := wire.AgentID(randomName(rng, "abcXYZ019-._", wire.MaxAgentID))
	m := wire.Invitation{
		Agent: id, Announcement: randomDigest(rng), RemainingMillis: rng.Uint32(),
		StepSizeWeight: math.Abs(randomFloat(rng)) +
			math.SmallestNonzeroFloat64,
		MustSendUpdate: rng.IntN(2) == 0, ReportedRows: rng.Uint64() * rng.Uint64N(2), Extra: randomExtra(rng),
	}
	for i := range rng.IntN(5) {
		p := wire.MixingPeer{ID: wire.AgentID(fmt.Sprint("n", i)), BootEpoch: wire.Epoch(rng.Uint64()),
			PublicKey: wire.X25519PublicKey(randomDigest(rng)), MixingWeight: randomFloat(rng)}
		m.Peers = append(m.Peers, p)
	}
	proves := rng.IntN(2) == 0
	for i := range m.Peers {
		m.Peers[i].RequiresSenderProofs = proves
		m.Peers[i].ClipBound = float64(rng.IntN(2)) * math.Abs(randomFloat(rng))
	}
	for i := range rng.IntN(3) {
		m.EndedEdges = append(m.EndedEdges, wire.EndedEdge{NeighborID: wire.AgentID(fmt.Sprint("e", i)),
			Reason: oneTo(rng, wire.EdgeEndNotMixing)})
	}
	if rng.IntN(2) == 0 {
		copy(m.KeyAttestation[:], randomBytes(rng, len(m.KeyAttestation)))
	}
	return m
}

func randomSeen(rng *rand.Rand) (m wire.MixingEdgeMeasurements) {
	for i := range rng.IntN(4) {
		flows := rng.Uint32()
		m.MixingBlockRound = wire.RoundID(rng.Uint64())
		m.Edges = append(m.Edges, wire.MixingEdgeMeasurement{NeighborID: wire.AgentID(fmt.Sprint("n", i)),
			AppliedFlows: flows,
			ClippedFlows: flows / (1 + rng.Uint32N(3)), MeanParameterDistance: math.Abs(randomFloat(rng)),
			MixingResponseRatio: randomFloat(rng)})
	}
	return m
}

func randomStanding(rng *rand.Rand) wire.HelloAnswer {
	return wire.HelloAnswer{Announcement: randomDigest(rng), SelectionStatus: oneTo(rng, wire.StatusNotSelected),
		ReportedRows: rng.Uint64()}
}

func randomAccepted(rng *rand.Rand) wire.UpdateAccepted {
	return wire.UpdateAccepted{Update: randomDigest(rng)}
}

func randomRefused(rng *rand.Rand) wire.UpdateRefused {
	return wire.UpdateRefused{Update: randomDigest(rng), Reason: oneTo(rng, wire.RefuseMalformed)}
}

func randomCredit(rng *rand.Rand) wire.ChunkCredit {
	m := wire.ChunkCredit{Update: randomDigest(rng), LeaseMillis: rng.Uint32()}
	for range rng.IntN(wire.MaxCreditRanges + 1) {
		last := rng.Uint32N(wire.MaxBlobChunks)
		m.Chunks = append(m.Chunks, wire.ChunkRange{First: rng.Uint32N(last + 1), Last: last})
	}
	return m
}

func hashOf(chunks []wire.Digest) wire.Digest {
	var all []byte
	for _, d := range chunks {
		all = append(all, d[:]...)
	}
	return sha256.Sum256(all)
}

func randomManifest(rng *rand.Rand) wire.Manifest {
	m := wire.Manifest{BlobLength: 1 + rng.Uint32N(5*wire.MaxChunkBytes),
		Codec:        oneOf(rng, spec.MixingCodecs()...),
		VectorSchema: randomDigest(rng)}
	for range wire.ChunkCount(int(m.BlobLength)) {
		m.ChunkDigests = append(m.ChunkDigests, randomDigest(rng))
	}
	m.Hash = hashOf(m.ChunkDigests)
	return m
}

func randomReport(rng *rand.Rand) wire.AgentMetricsReport {
	m := wire.AgentMetricsReport{IntervalSeconds: rng.Uint32(), SoftwareVersion: randomString(rng),
		ScrapeAddress: randomString(rng)}
	for id := range uint8(wire.MaxReportMetrics) {
		if rng.IntN(8) == 0 {
			m.Metrics = append(m.Metrics, wire.ReportMetric{ID: id, Value: randomFloat(rng)})
		}
	}
	return m
}

func randomUpdate(rng *rand.Rand) wire.Update {
	m := wire.Update{
		Kind: oneTo(rng, wire.KindTraining), BaseModelDigest: randomDigest(rng), PayloadManifest: randomManifest(rng),
		LocalSteps: rng.Uint32(), Samples: rng.Uint64(),
		RiskBefore: randomFloat(rng), RiskAfter: randomFloat(rng), SecondsPerLocalStep: randomFloat(rng),
		UnsolicitedChunks: rng.Uint32N(5), Extra: randomExtra(rng),
	}
	if rng.IntN(2) == 0 {
		m.InlinePayload = randomBytes(rng, 1+rng.IntN(wire.MaxInlineUpdate))
		m.PayloadManifest, _ = wire.NewManifest(m.InlinePayload, randomDigest(rng))
	}
	m.PayloadManifest.Codec = oneOf(rng, spec.Codecs()...)
	return m
}

func randomPresence(rng *rand.Rand) wire.Presence {
	return wire.Presence{State: oneTo(rng, wire.PresenceLost), InstanceNonce: rng.Uint64(),
		MaxProtocolVersion: uint8(rng.Uint32()),
		SoftwareVersion:    randomString(rng), HasVolatileStorage: rng.IntN(2) == 0, Extra: randomExtra(rng)}
}

func randomHello(rng *rand.Rand) wire.Hello {
	m := wire.Hello{
		InstanceNonce: rng.Uint64(), FollowedAnnouncement: randomDigest(rng), UnfitReason: oneTo(rng,
			wire.DeclineUpdateRefused+1) - 1,
		Samples: rng.Uint64(), PendingUpdate: randomDigest(rng), PeerKey: wire.X25519PublicKey(randomDigest(rng)),
		Location: randomLocation(rng), Extra: randomExtra(rng), MissingGroupKeyID: rng.Uint64N(2) * rng.Uint64(),
		SupportsClippedMixing: rng.IntN(2) == 0, EdgeMeasurements: randomSeen(rng), AnswerProbability: rng.Uint32N(3),
	}
	if rng.IntN(2) == 0 {
		m.FateRequest = wire.UpdateFateRequest{Round: wire.RoundID(rng.Uint64()), Update: randomDigest(rng)}
	}
	if rng.IntN(2) == 0 {
		reason := []rune(randomString(rng))
		m.DataProblem = wire.DataProblem{Column: randomString(rng), Reason: string(reason[:min(len(reason), 8)]),
			ExampleLocation: randomString(rng), UnusableValues: rng.Uint64(), TotalValues: rng.Uint64()}
	}
	if rng.IntN(2) == 0 {
		m.Residuals = wire.CandidateResiduals{Run: 1 + wire.RunID(rng.Uint64()>>1),
			ModelVersion:     wire.ModelVersion(rng.Uint64()),
			CandidateRefused: rng.IntN(2) == 0, LabeledRows: rng.Uint32(),
			CandidateMeanSquare: math.Abs(randomFloat(rng)),
			ReleasedMeanSquare:  math.Abs(randomFloat(rng))}
	}
	if rng.IntN(2) == 0 {
		m.NewRows = wire.NewRowsReport{IsKnown: true, UnusedRows: rng.Uint32(),
			LastUsedRound: wire.RoundID(rng.Uint64())}
	}
	if rng.IntN(2) == 0 {
		m.Evaluation = randomEvaluation(rng)
	}
	if rng.IntN(2) == 0 {
		m.MissingParts = wire.MissingBlobParts{BlobDigest: randomDigest(rng), ManifestMissing: rng.IntN(2) == 0}
		for k := range rng.Uint32N(4) {
			m.MissingParts.Chunks = append(m.MissingParts.Chunks, 7*k)
		}
	}
	for i := range rng.IntN(4) {
		m.ChosenNeighbors = append(m.ChosenNeighbors, wire.AgentID(fmt.Sprint("n", i)))
	}
	return m
}

func randomEvaluation(rng *rand.Rand) wire.Evaluation {
	m := wire.Evaluation{Run: 1 + wire.RunID(rng.Uint64()>>1), ModelVersion: wire.ModelVersion(rng.Uint64())}
	classes := rng.IntN(wire.MaxConfusionClasses + 1)
	for i := range classes * classes {
		n := rng.Uint32N(9)
		m.ConfusionMatrix = append(m.ConfusionMatrix, n)
		m.Rows += n
		if i%(classes+1) == 0 {
			m.CorrectRows += n
		}
	}
	if rng.IntN(2) == 0 {
		m.ConfusionMatrix, m.CorrectRows, m.Rows = nil, 0, 0
		for range wire.ResidualHistogramBins {
			n := rng.Uint32N(9)
			m.ResidualHistogram = append(m.ResidualHistogram, n)
			m.Rows += n
		}
	}
	if m.Rows == 0 {
		return wire.Evaluation{Run: m.Run, ModelVersion: m.ModelVersion}
	}
	if rng.IntN(3) == 0 {
		m.ResidualHistogram, m.ConfusionMatrix, m.CorrectRows, m.ExternalMetrics = nil, nil, 0, []wire.ExternalMetric{}
		for i := range rng.IntN(wire.MaxExternalMetrics + 1) {
			m.ExternalMetrics = append(m.ExternalMetrics, wire.ExternalMetric{Name: fmt.Sprintf("f%02d", i),
				Sum: 1e9 * rng.NormFloat64()})
		}
	}
	m.RiskSum, m.SSE, m.TargetSum, m.TargetSquareSum = rng.NormFloat64(), rng.ExpFloat64(), rng.NormFloat64(),
		rng.ExpFloat64()
	return m
}

func randomPeerHead(rng *rand.Rand) wire.PeerMessageHeader {
	return wire.PeerMessageHeader{
		Type: wire.PeerSnapshotRequest + wire.PeerMessageType(rng.IntN(2)), Run: wire.RunID(rng.Uint64()),
		Round:  wire.RoundID(rng.Uint64()),
		Sender: wire.AgentID(randomName(rng, "abc", wire.MaxAgentID)), SenderBootEpoch: wire.Epoch(rng.Uint64()),
	}
}

func randomPeerAddress(rng *rand.Rand) wire.PeerInstance {
	return wire.PeerInstance{ID: wire.AgentID(randomName(rng, "abc", wire.MaxAgentID)),
		BootEpoch: wire.Epoch(rng.Uint64())}
}

func randomGreeting(rng *rand.Rand) greeting {
	m := greeting{Head: randomPeerHead(rng)}
	m.Head.Type = wire.PeerGreeting
	copy(m.WrappingSalt[:], randomBytes(rng, 16))
	for range rng.IntN(4) {
		k := wire.WrappedSenderKey{Receiver: randomPeerAddress(rng), HoldsNeighborKey: rng.IntN(2) == 0}
		copy(k.WrappedKey[:], randomBytes(rng, wire.WrappedKeySize))
		m.WrappedKeys = append(m.WrappedKeys, k)
	}
	return m
}

func randomSnapshot(rng *rand.Rand) snapshot {
	m := snapshot{Head: randomPeerHead(rng),
		SnapshotPartHeader: wire.SnapshotPartHeader{Step: rng.Uint64(), PartIndex: uint16(rng.IntN(3)), PartCount: 3},
		Sealed:             randomBytes(rng, partOfTests)}
	m.Head.Type = wire.PeerSnapshot
	for range rng.IntN(4) {
		m.Receivers = append(m.Receivers, wire.SnapshotReceiver{PeerInstance: randomPeerAddress(rng),
			SnapshotSeq: rng.Uint64()})
	}
	return m
}

func randomBeacon(rng *rand.Rand) beacon {
	m := beacon{
		Head: wire.PeerMessageHeader{Type: wire.PeerBeacon, Sender: wire.AgentID(randomName(rng, "abc",
			wire.MaxAgentID)),
			SenderBootEpoch: wire.Epoch(rng.Uint64())},
		Beacon: wire.Beacon{NextBeaconMillis: rng.Uint32(), SentAtMicros: rng.Uint64(),
			MaxNeighbors: uint16(rng.Uint32()),
			Location:     randomLocation(rng)},
	}
	for i := range rng.IntN(4) {
		to := wire.PeerInstance{ID: wire.AgentID(fmt.Sprint("n", i)), BootEpoch: wire.Epoch(rng.Uint64())}
		m.PeerEchoes = append(m.PeerEchoes, wire.BeaconEcho{PeerInstance: to, BeaconSentAtMicros: rng.Uint64(),
			HoldMicros: rng.Uint32(),
			RTTMicros:  rng.Uint32()})
	}
	return m
}

func randomLocation(rng *rand.Rand) wire.AgentLocation {
	return wire.AgentLocation{IsKnown: rng.IntN(2) == 0, X: randomFloat(rng), Y: randomFloat(rng)}
}

func randomControl(rng *rand.Rand) control {
	return control{randomPeerHead(rng), wire.PeerControlMessage{
		Receiver: randomPeerAddress(rng), SealCounter: rng.Uint64(), SnapshotSeq: rng.Uint64(),
		AppliedFlowSeq: rng.Uint64(),
		IsEdgeDrained:  rng.IntN(2) == 0,
	}, randomBytes(rng, wire.PeerSealOverhead)}
}

func randomJoined(rng *rand.Rand) wire.InvitationAccepted {
	return wire.InvitationAccepted{Announcement: randomDigest(rng)}
}

func randomDeclined(rng *rand.Rand) wire.InvitationDeclined {
	return wire.InvitationDeclined{Announcement: randomDigest(rng), Reason: oneTo(rng, wire.DeclineUpdateRefused)}
}

func randomTask(rng *rand.Rand) wire.Task {
	t := wire.Task{
		Name: randomString(rng), TargetColumn: randomString(rng), MinSamples: rng.Uint64(),
		Model: wire.ModelSpec{
			Outputs: rng.Uint32(), Activation: oneOf(rng, spec.ActivationTanh, spec.ActivationReLU,
				spec.ActivationIdentity), Risk: oneOf(rng, spec.DeviceLossKinds()...),
			HasBias: rng.IntN(2) == 0, Ridge: randomFloat(rng), HuberDelta: randomFloat(rng),
		},
		Training: wire.TrainingSettings{
			ExchangeKind: oneOf(rng, spec.ExchangeParameters, spec.ExchangeGradient), BatchSize: rng.Uint32(),
			UpdateCodec:          oneOf(rng, spec.Codecs()...),
			LocalStepProbability: randomFloat(rng),
			GradientNoise: spec.GradientNoise{Law: oneOf(rng, spec.NoiseNone, spec.NoiseGaussian, spec.NoiseLaplace),
				Variance: randomFloat(rng)},
			StepSize: randomFloat(rng), StrongConvexity: randomFloat(rng), StepSizeDecayOffset: randomFloat(rng),
			NormalizesStepSize: rng.IntN(2) == 0, Proximal: randomFloat(rng),
			StepTimeBudgetMillis: rng.Uint32(), MinLocalSteps: rng.Uint32(), MaxLocalSteps: rng.Uint32(),
		},
		Mixing: wire.MixingSettings{
			IntervalSteps: rng.Uint32(), SnapshotWaitMillis: rng.Uint32(), SnapshotRetryMillis: rng.Uint32(),
			LateSnapshotMillis: rng.Uint32(),
			SnapshotCodec:      oneOf(rng, append(spec.MixingCodecs(), "")...), IsUnsealed: rng.IntN(2) == 0,
			HasEndlessBlocks: rng.IntN(2) == 0,
		},
		Standardization: wire.Standardization{
			Mean: randomFloats(rng, rng.IntN(6)), Scale: randomFloats(rng, rng.IntN(6)), Clip: randomFloat(rng),
		},
		Extra: randomExtra(rng),
	}
	if n := &t.Training.GradientNoise; n.Law == spec.NoiseNone {
		n.Variance = 0
	}
	for range rng.IntN(20) {
		t.Features = append(t.Features, randomString(rng))
	}
	for range rng.IntN(3) {
		t.Model.FrozenTensors = append(t.Model.FrozenTensors, randomString(rng))
	}
	for range rng.IntN(3) {
		t.Personal.PersonalTensors = append(t.Personal.PersonalTensors, randomString(rng))
	}
	if rng.IntN(2) == 0 {
		t.Personal.UsesDitto, t.Personal.DittoLambda, t.FinetuneSteps = true, randomFloat(rng), rng.Uint32()
	}
	if n := rng.IntN(4); n > 0 {
		t.Recipe = randomRecipe(rng, n)
	}
	if rng.IntN(2) == 0 {
		c := &t.Model.Convolution
		c.InputChannels, c.KernelSteps, c.PoolSteps = 1+rng.Uint32N(1<<31), rng.Uint32(), rng.Uint32()
		for range rng.IntN(wire.MaxHiddenLayers + 1) {
			c.FiltersPerLayer = append(c.FiltersPerLayer, rng.Uint32())
		}
	}
	for range rng.IntN(wire.MaxHiddenLayers + 1) {
		t.Model.HiddenUnits = append(t.Model.HiddenUnits, rng.Uint32())
	}
	return t
}

func randomRecipe(rng *rand.Rand, inputs int) spec.RowRecipe {
	period := func() time.Duration { return time.Duration(rng.Uint32()) * time.Millisecond }
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: period(), Lateness: period(), TimeZone: randomString(rng)}}
	for range inputs {
		in := spec.InputSeries{Name: randomString(rng), Unit: randomString(rng), LabelLateness: period(),
			ValidRange: randomFloats(rng, rng.IntN(3)), Transform: oneOf(rng, spec.TransformNone, spec.TransformLog1p),
			StuckAfter: period(), MaxJump: randomFloats(rng, 1)[0],
			Resampling: oneOf(rng, spec.ResampleMean, spec.ResampleLast, spec.ResampleMax, spec.ResampleMin,
				spec.ResampleSum, spec.ResampleCount, spec.ResampleHeld)}
		if in.Resampling == spec.ResampleHeld {
			in.MaxAge = period()
		}
		for range rng.IntN(4) {
			in.Classes = append(in.Classes, randomString(rng))
		}
		r.Inputs = append(r.Inputs, in)
	}
	return r
}

func randomChunk(rng *rand.Rand) chunk {
	return chunk{K: rng.IntN(wire.MaxBlobChunks), Payload: randomBytes(rng, 1+rng.IntN(2000))}
}

func randomOutcome(rng *rand.Rand) wire.RoundOutcome {
	o := wire.RoundOutcome{Round: wire.RoundID(rng.Uint64()), IsAbandoned: rng.IntN(3) == 0}
	for i := range rng.IntN(5) {
		if !o.IsAbandoned {
			o.UpdateFates = append(o.UpdateFates, wire.TaggedUpdateFate{Tag: wire.UpdateTag{byte(i),
				byte(rng.Uint32())},
				Fate: oneTo(rng, wire.FateLeftOutByRule)})
		}
	}
	return o
}

func randomRoot(rng *rand.Rand) wire.RootDocument {
	d := wire.RootDocument{Federation: wire.FederationName(randomName(rng, "ab_9", wire.MaxFederation)),
		Version:        wire.FirstRootVersion + wire.RootVersion(rng.Uint32N(9)),
		RootKey:        wire.SigningPublicKey(randomDigest(rng)),
		CoordinatorKey: wire.SigningPublicKey(randomDigest(rng)), CACertificateHash: randomDigest(rng),
		Extra:            randomExtra(rng),
		RootKeySignature: wire.Signature(randomBytes(rng, 64)), PreviousRootSignature: wire.Signature(randomBytes(rng,
			64))}
	for i := range rng.IntN(3) {
		d.ExtraCoordinatorKeys = append(d.ExtraCoordinatorKeys, wire.SigningPublicKey(append([]byte{byte(i)},
			randomBytes(rng,
				31)...)))
	}
	if rng.IntN(2) == 0 {
		d.RootQuorum.Threshold = 1 + uint8(rng.IntN(2))
		for i := range 1 + rng.IntN(3) {
			d.RootQuorum.ExtraKeys = append(d.RootQuorum.ExtraKeys, wire.SigningPublicKey(append([]byte{byte(i)},
				randomBytes(rng,
					31)...)))
			d.Cosignatures = append(d.Cosignatures, wire.RootCosignature{SignerKey: d.RootQuorum.ExtraKeys[i],
				Signature: wire.Signature(randomBytes(rng,
					64))})
		}
	}
	for i := range rng.IntN(4) {
		d.RevokedAgents = append(d.RevokedAgents, wire.AgentID(fmt.Sprint(i, randomName(rng, "aB9._-", 20))))
	}
	return d
}

func randomJoin(rng *rand.Rand) wire.EnrolmentRequest {
	return wire.EnrolmentRequest{Agent: wire.AgentID(randomName(rng, "aB9._-", wire.MaxAgentID)),
		DeviceKey: wire.SigningPublicKey(randomDigest(rng)), TLSKey: wire.TLSPublicKey(randomBytes(rng, 65)),
		TokenSignature: wire.Signature(randomBytes(rng, 64)), DeviceKeySignature: wire.Signature(randomBytes(rng, 64)),
		TLSKeySignature: randomBytes(rng, 1+rng.IntN(72))}
}

func randomAdmission(rng *rand.Rand) wire.EnrolmentAnswer {
	if rng.IntN(3) == 0 {
		return wire.EnrolmentAnswer{RefusalReason: oneTo(rng, wire.EnrolmentStorageFailed)}
	}
	a := wire.EnrolmentAnswer{RootDocument: randomBytes(rng, 1+rng.IntN(300)), Certificate: randomBytes(rng,
		1+rng.IntN(300)),
		CACertificate: randomBytes(rng, 1+rng.IntN(300))}
	for i := range rng.IntN(4) {
		a.Settings = append(a.Settings, wire.AgentSetting{Name: fmt.Sprint("key.", i), Value: randomString(rng)})
	}
	return a
}
