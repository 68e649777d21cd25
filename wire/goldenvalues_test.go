package wire_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// The golden files contain the conversation of docs/PROTOCOL.md: agent press-01 of federation plant_7 in round 3 of a
// run.

const (
	goldenRun   wire.RunID = 1760000000000
	goldenNonce uint64     = 0x0123456789abcdef
	// goldenInstance is the coordinator's instance nonce, a random number drawn at each start.
	goldenInstance uint64 = 0xfedcba9876543210
)

// golden describes a file under testdata/golden. The file contains a message body, in an envelope if the kind of body
// has a message type.
type golden struct {
	file, form string
	header     wire.Header
	value      any
}

// message returns the encoded message that the golden file contains: a signed envelope, or only the body if form f has
// no message type.
func (g golden) message(f form) []byte {
	if f.typ == 0 {
		return f.encode(g.value)
	}
	h := g.header
	h.Type = f.typ
	return wire.SignEnvelope(nil, h, f.encode(g.value), testKey())
}

// digest returns the digest by which an invitation refers to a golden announcement.
func (g golden) digest() wire.Digest {
	return sha256.Sum256(wire.SignEnvelope(nil, withType(g.header, wire.TypeAnnouncement),
		g.value.(*wire.Announcement).Body(),
		testKey())[:headerSize])
}

func withType(h wire.Header, t wire.MessageType) wire.Header {
	h.Type = t
	return h
}

func byCoordinator(round wire.RoundID, sequence uint64) wire.Header {
	return wire.Header{Federation: "plant_7", Sender: wire.CoordinatorID, Epoch: 1, Run: goldenRun, Round: round,
		Sequence: sequence, Root: wire.FirstRootVersion}
}

func byAgent(run wire.RunID, round wire.RoundID, sequence uint64) wire.Header {
	return wire.Header{Federation: "plant_7", Sender: "press-01", Epoch: 5, Run: run, Round: round, Sequence: sequence,
		Root: wire.FirstRootVersion}
}

func goldens() []golden {
	manifest := manifestOf(bigVector(), bigSchema())
	return append(slices.Concat(goldensOfCoordinator(), goldensOfAgent(), goldensOfNeighbors(), goldensOfJoining(),
		goldensOfSeals()),
		golden{"task", "task", wire.Header{}, linearTask()},
		golden{"task_logistic", "task", wire.Header{}, lossTask(spec.LossLogistic, 0)},
		golden{"task_huber", "task", wire.Header{}, lossTask(spec.LossHuber, 1.5)},
		golden{"task_network", "task", wire.Header{}, networkTask()},
		golden{"task_signs", "task", wire.Header{}, packedTask(spec.CodecSigns)},
		golden{"task_top_k", "task", wire.Header{}, packedTask(spec.TopKCodec(0.0625))},
		golden{"task_personal", "task", wire.Header{}, personalTask()},
		golden{"task_ditto", "task", wire.Header{}, dittoTask()},
		golden{"task_external", "task", wire.Header{}, externalTask()},
		golden{"task_autoencoder", "task", wire.Header{}, autoencoderTask()},
		golden{"task_conv1d", "task", wire.Header{}, conv1DTask()},
		golden{"task_readings", "task", wire.Header{}, readingsTask()},
		golden{"task_sensors", "task", wire.Header{}, sensorsTask()},
		golden{"manifest", "manifest", wire.Header{}, &manifest},
		golden{"chunk", "chunk", wire.Header{}, &chunk{K: 1, Payload: wire.ChunkPayload(bigVector(), 1)}},
	)
}

func gatheringAnnouncement() golden {
	return golden{"announcement_gathering", "announcement", byCoordinator(3, 10), &wire.Announcement{
		Attempt: 1, Phase: wire.PhaseGathering, Kind: wire.KindTraining, BaseModelVersion: 2,
		Task: inline(linearTask().AppendEncoding(nil)), BaseModel: inline(smallVector()),
		UpdateSchema: smallSchema().Hash(),
		Seed:         42, PriorLocalSteps: 20, HelloSpreadMillis: 5000, RoundTimeoutMillis: 120000,
		InstanceNonce:  goldenInstance,
		LastEndedRound: 2,
	}}
}

func openAnnouncement() golden {
	g := gatheringAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.Phase, a.InitialCreditChunks = wire.PhaseOpen, 4
	a.Selection = wire.NewAgentSelection(goldenPlace(3, 1), goldenInstance, []wire.SelectedAgent{
		{Key: goldenKey(), StepSizeWeight: 1.5}, {Key: wire.SelectionKey{1}, StepSizeWeight: 0.75}})
	return golden{"announcement_open", "announcement", byCoordinator(3, 12), &a}
}

// goldenPlace returns the position of an announcement in the open phase of a round.
func goldenPlace(round wire.RoundID, attempt wire.RoundAttempt) wire.AnnouncementPosition {
	return wire.AnnouncementPosition{Root: wire.FirstRootVersion, Epoch: 1, Run: goldenRun, Round: round,
		Attempt: attempt,
		Phase:   wire.PhaseOpen}
}

// goldenKey returns the selection key that the coordinator and the agent share. Both have the same private key in the
// golden files.
func goldenKey() wire.SelectionKey {
	k, err := wire.NewSelectionKey(testKey(), testPublicKey())
	if err != nil {
		panic(err)
	}
	return k
}

func pulledAnnouncement() golden {
	big, task := manifestOf(bigVector(), bigSchema()), networkTask().AppendEncoding(nil)
	return golden{"announcement_pulled", "announcement", byCoordinator(4, 20), &wire.Announcement{
		Attempt: 2, Phase: wire.PhaseOpen, Kind: wire.KindTraining, BaseModelVersion: 3, InitialCreditChunks: 1,
		Task: pulled(manifestOf(task, nil)), BaseModel: pulled(big), UpdateSchema: bigSchema().Hash(),
		Seed: 42, PriorLocalSteps: 30, HelloSpreadMillis: 5000, RoundTimeoutMillis: 120000,
		InstanceNonce:  goldenInstance,
		LastEndedRound: 3,
		UnknownBlobs:   []wire.NamedBlob{{Name: "later_evaluation", BlobRef: inline(smallVector())}},
		Extra: wire.UnknownSections{{Name: "later_rule", UnknownPolicy: wire.DeclineUnknownSection, Body: []byte{1}},
			{Name: "later_word", UnknownPolicy: wire.IgnoreUnknownSection, Body: []byte("hi")}},
	}}
}

func statisticsAnnouncement() golden {
	return golden{"announcement_statistics", "announcement", byCoordinator(1, 2), &wire.Announcement{
		Attempt: 1, Phase: wire.PhaseOpen, Kind: wire.KindStatistics, InitialCreditChunks: 2,
		Selection: wire.NewAgentSelection(goldenPlace(1, 1), goldenInstance, []wire.SelectedAgent{{Key: goldenKey(),
			StepSizeWeight: 1}}),
		Task: inline(networkTask().AppendEncoding(nil)), UpdateSchema: statisticsSchema().Hash(),
		Seed: 42, HelloSpreadMillis: 5000, RoundTimeoutMillis: 120000, InstanceNonce: goldenInstance,
	}}
}

func rolloutAnnouncement() golden {
	g := gatheringAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.Phase, a.LastEndedRound = wire.PhaseIdle, 3
	file := manifestOf(bigVector(), nil)
	a.CandidateModelFile, a.ReleasedModelFile = pulled(file), inline(smallVector())
	a.Rollout = wire.Rollout{
		ReleasedModel: wire.ModelRef{Run: goldenRun - 1, Version: 40,
			ParametersDigest: wire.BlobDigest(smallVector())},
		CandidateModel:      wire.ModelRef{Run: goldenRun, Version: 3, ParametersDigest: wire.BlobDigest(bigVector())},
		CandidateAgentShare: 0.125}
	return golden{"announcement_rollout", "announcement", byCoordinator(3, 17), &a}
}

func restingAnnouncement() golden {
	g := gatheringAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.Phase, a.LastEndedRound, a.MinNewRows = wire.PhaseIdle, 3, 100
	return golden{"announcement_resting", "announcement", byCoordinator(3, 18), &a}
}

func respondAnnouncement() golden {
	g := gatheringAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.ResponsePolicy = wire.AgentResponsePolicy{AnswerProbability: 5583458, DisconnectMillis: 60_000,
		AbsenceSpreadMillis: 600_000,
		PresenceInRoundOnly: true}
	return golden{"announcement_respond", "announcement", byCoordinator(3, 21), &a}
}

func evaluatedAnnouncement() golden {
	g := gatheringAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.Phase, a.LastEndedRound, a.MinEvaluationRows = wire.PhaseFinished, 3, 20
	return golden{"announcement_evaluated", "announcement", byCoordinator(3, 20), &a}
}

// goldenBins returns a histogram that contains 3, 20 and 8 residuals in three bins.
func goldenBins() []uint32 {
	bins := make([]uint32, wire.ResidualHistogramBins)
	bins[0], bins[33], bins[63] = 3, 20, 8
	return bins
}

func issuedAnnouncement() golden {
	g := gatheringAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.IssuedAt = 1_790_000_000
	return golden{"announcement_issued", "announcement", byCoordinator(3, 19), &a}
}

func goldensOfCoordinator() []golden {
	announcement, update := openAnnouncement().digest(), wire.BlobDigest(smallUpdate())
	return []golden{
		gatheringAnnouncement(), openAnnouncement(), pulledAnnouncement(), statisticsAnnouncement(),
		rolloutAnnouncement(), restingAnnouncement(), respondAnnouncement(), issuedAnnouncement(),
		evaluatedAnnouncement(),
		{"standing", "standing", byCoordinator(3, 11),
			&wire.HelloAnswer{Announcement: gatheringAnnouncement().digest(),
				SelectionStatus: wire.StatusSelectionPending,
				ReportedRows:    1234}},
		{"invitation", "invitation", byCoordinator(3, 13),
			&wire.Invitation{Agent: "press-01", Announcement: announcement, RemainingMillis: 119500,
				StepSizeWeight:   1.5,
				MustSendUpdate:   true,
				MixingBlockRound: 2, Peers: []wire.MixingPeer{{ID: "press-02", BootEpoch: 3,
					PublicKey:    wire.X25519PublicKey{1, 2},
					MixingWeight: 0.25}}}},
		{"invitation_proofs", "invitation", byCoordinator(3, 13),
			&wire.Invitation{Agent: "press-01", Announcement: announcement, RemainingMillis: 119500,
				StepSizeWeight:   1.5,
				MustSendUpdate:   true,
				MixingBlockRound: 2, KeyAttestation: goldenWord("press-01").CoordinatorSignature,
				Peers: []wire.MixingPeer{{ID: "press-02", BootEpoch: 3, PublicKey: wire.X25519PublicKey{1, 2},
					MixingWeight:         0.25,
					RequiresSenderProofs: true}}}},
		{"accepted", "accepted", byCoordinator(3, 14), &wire.UpdateAccepted{Update: update}},
		{"settled", "settled", byCoordinator(2, 16), &wire.UpdateFateAnswer{Update: update,
			Fate: wire.FateMissedRoundEnd}},
		{"outcome", "outcome", wire.Header{}, &wire.RoundOutcome{Round: 2, UpdateFates: []wire.TaggedUpdateFate{
			{Tag: wire.UpdateTagOf(goldenRun, 2, "press-01", update), Fate: wire.FateDominantNorm},
			{Tag: wire.UpdateTagOf(goldenRun, 2, "press-07", update), Fate: wire.FateAggregated}}}},
		{"rejection", "rejection", byCoordinator(0, 17),
			&wire.MessageRejection{MessageDigest: announcement, Reason: wire.RejectedOldEpoch}},
		{"renewed", "renewed", byCoordinator(0, 18),
			&wire.CredentialRenewalAnswer{RequestDigest: announcement, Certificate: []byte("a certificate in DER")}},
		{"renewed_refused", "renewed", byCoordinator(0, 19),
			&wire.CredentialRenewalAnswer{RequestDigest: announcement, RefusalReason: wire.RenewalStorageFailed,
				Certificate: []byte{}}},
		{"refused", "refused", byCoordinator(3, 15), &wire.UpdateRefused{Update: update, Reason: wire.RefuseLate}},
		{"credit", "credit", byCoordinator(4, 21), &wire.ChunkCredit{
			Update: wire.BlobDigest(bigVector()), LeaseMillis: 20000,
			Chunks: []wire.ChunkRange{{First: 0, Last: 0}, {First: 1, Last: 1}},
		}},
	}
}

func goldensOfAgent() []golden {
	gathering, open := gatheringAnnouncement().digest(), openAnnouncement().digest()
	base := wire.BlobDigest(smallVector())
	return []golden{
		{"presence_online", "presence", byAgent(0, 0, 1),
			&wire.Presence{State: wire.PresenceOnline, InstanceNonce: goldenNonce, MaxProtocolVersion: 2,
				SoftwareVersion: "agentd 0.1.0"}},
		{"presence_lost", "presence", byAgent(0, 0, 2),
			&wire.Presence{State: wire.PresenceLost, InstanceNonce: goldenNonce, MaxProtocolVersion: 2,
				SoftwareVersion: "agentd 0.1.0"}},
		{"renew", "renew", byAgent(0, 0, 11), goldenRenew()},
		{"hello", "hello", byAgent(goldenRun, 3, 3),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: gathering, Samples: 12,
				Location:        wire.AgentLocation{IsKnown: true, X: 3.5, Y: -7},
				ChosenNeighbors: []wire.AgentID{"press-02", "press-04"}}},
		{"hello_unfit", "hello", byAgent(goldenRun, 3, 3),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: gathering, UnfitReason: wire.DeclineBadData,
				DataProblem: wire.DataProblem{Column: "vibration", Reason: "out_of_range",
					ExampleLocation: "site/press: line 12", UnusableValues: 30,
					TotalValues: 100}}},
		{"hello_residuals", "hello", byAgent(goldenRun, 3, 9),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: rolloutAnnouncement().digest(), Samples: 12,
				Residuals: wire.CandidateResiduals{Run: goldenRun, ModelVersion: 3, LabeledRows: 31,
					CandidateMeanSquare: 0.75,
					ReleasedMeanSquare:  0.5}}},
		{"hello_evaluation", "hello", byAgent(goldenRun, 3, 12),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: evaluatedAnnouncement().digest(), Samples: 12,
				Evaluation: wire.Evaluation{Run: goldenRun, ModelVersion: 2, Rows: 31, RiskSum: 15.5, CorrectRows: 28,
					ConfusionMatrix: []uint32{20, 1, 2, 8}}}},
		{"hello_evaluation_regression", "hello", byAgent(goldenRun, 3, 13),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: evaluatedAnnouncement().digest(), Samples: 12,
				Evaluation: wire.Evaluation{Run: goldenRun, ModelVersion: 2, Rows: 31, RiskSum: 15.5, SSE: 31,
					TargetSum:       -0.5,
					TargetSquareSum: 62, ResidualHistogram: goldenBins()}}},
		{"hello_evaluation_figures", "hello", byAgent(goldenRun, 3, 14),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: evaluatedAnnouncement().digest(), Samples: 12,
				Evaluation: evaluationOfProgram()}},
		{"hello_new_rows", "hello", byAgent(goldenRun, 3, 10),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: restingAnnouncement().digest(), Samples: 12,
				NewRows: wire.NewRowsReport{IsKnown: true, UnusedRows: 5, LastUsedRound: 3}}},
		{"hello_lacks", "hello", byAgent(goldenRun, 4, 16),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: pulledAnnouncement().digest(), Samples: 12,
				MissingParts: wire.MissingBlobParts{BlobDigest: manifestOf(bigVector(), bigSchema()).Hash,
					ManifestMissing: true,
					Chunks:          []uint32{0, 2}}}},
		{"hello_respond", "hello", byAgent(goldenRun, 3, 15),
			&wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: respondAnnouncement().digest(), Samples: 12,
				AnswerProbability: 5583458}},
		{"joined", "joined", byAgent(goldenRun, 3, 4), &wire.InvitationAccepted{Announcement: open}},
		{"declined", "declined", byAgent(goldenRun, 3, 4),
			&wire.InvitationDeclined{Announcement: open, Reason: wire.DeclineNoTime}},
		{"report", "report", byAgent(0, 0, 8), &wire.AgentMetricsReport{
			IntervalSeconds: 300, SoftwareVersion: "agentd 0.1.0", ScrapeAddress: "192.0.2.7:9465",
			Metrics: []wire.ReportMetric{{ID: 7, Value: 0.001953125}, {ID: 8, Value: 10}},
		}},
		{"update", "update", byAgent(goldenRun, 3, 5), &wire.Update{
			Kind: wire.KindTraining, BaseModelDigest: base, PayloadManifest: manifestOf(smallUpdate(), smallSchema()),
			InlinePayload: smallUpdate(),
			LocalSteps:    10, Samples: 12, RiskBefore: 0.75, RiskAfter: 0.5, SecondsPerLocalStep: 0.001953125,
		}},
		{"update_chunked", "update", byAgent(goldenRun, 4, 7), &wire.Update{
			Kind: wire.KindTraining, BaseModelDigest: wire.BlobDigest(bigVector()),
			PayloadManifest: manifestOf(bigVector(), bigSchema()),
			LocalSteps:      10, Samples: 12, RiskBefore: 0.75, RiskAfter: 0.5, SecondsPerLocalStep: 0.25,
			UnsolicitedChunks: 1,
		}},
		{"update_signs", "update", byAgent(goldenRun, 4, 7), &wire.Update{
			Kind: wire.KindTraining, BaseModelDigest: base, PayloadManifest: packedAs(spec.CodecSigns, make([]byte,
				13)),
			InlinePayload: make([]byte, 13),
			LocalSteps:    10, Samples: 12, RiskBefore: 0.75, RiskAfter: 0.5, SecondsPerLocalStep: 0.25,
		}},
		{"update_top_k", "update", byAgent(goldenRun, 4, 7), &wire.Update{
			Kind: wire.KindTraining, BaseModelDigest: base, PayloadManifest: packedAs(spec.TopKCodec(0.375),
				make([]byte, 8)),
			InlinePayload: make([]byte, 8), LocalSteps: 10, Samples: 12, RiskBefore: 0.75, RiskAfter: 0.5,
			SecondsPerLocalStep: 0.25,
		}},
		{"update_statistics", "update", byAgent(goldenRun, 1, 6), &wire.Update{
			Kind: wire.KindStatistics, PayloadManifest: manifestOf(statisticsVector(), statisticsSchema()),
			InlinePayload: statisticsVector(), Samples: 12,
		}},
	}
}

func packedAs(word spec.Codec, p []byte) wire.Manifest {
	m := manifestOf(p, smallSchema())
	m.Codec = word
	return m
}

func goldensOfNeighbors() []golden {
	head := wire.PeerMessageHeader{Run: goldenRun, Round: 3, Sender: "press-01", SenderBootEpoch: 5}
	of := func(t wire.PeerMessageType) wire.PeerMessageHeader { h := head; h.Type = t; return h }
	to := wire.PeerInstance{ID: "press-02", BootEpoch: 4}
	key := wire.WrappedSenderKey{Receiver: to, HoldsNeighborKey: true}
	copy(key.WrappedKey[:], testPublicKey())
	return []golden{
		{"peer_greeting", "greeting", wire.Header{},
			&greeting{of(wire.PeerGreeting), wire.KeyGreeting{WrappingSalt: [16]byte{1, 2, 3},
				WrappedKeys: []wire.WrappedSenderKey{key}}}},
		{"peer_snapshot", "snapshot", wire.Header{}, &snapshot{of(wire.PeerSnapshot), wire.SnapshotPartHeader{
			Step: 9, PartIndex: 0, PartCount: 1, Receivers: []wire.SnapshotReceiver{{PeerInstance: to, SnapshotSeq: 8}},
		}, smallVector()}},
		{"peer_ask", "control", wire.Header{},
			&control{of(wire.PeerSnapshotRequest), wire.PeerControlMessage{Receiver: to, SealCounter: 1,
				SnapshotSeq: 8}, make([]byte,
				wire.PeerSealOverhead)}},
		{"peer_finish", "control", wire.Header{},
			&control{of(wire.PeerFinish), wire.PeerControlMessage{Receiver: to, SealCounter: 2, SnapshotSeq: 10,
				AppliedFlowSeq: 9,
				IsEdgeDrained:  true},
				make([]byte, wire.PeerSealOverhead)}},
		{"peer_beacon", "beacon", wire.Header{},
			&beacon{wire.PeerMessageHeader{Type: wire.PeerBeacon, Sender: "press-01", SenderBootEpoch: 5}, wire.Beacon{
				NextBeaconMillis: 10000, SentAtMicros: 1 << 33, MaxNeighbors: 6,
				Location: wire.AgentLocation{IsKnown: true,
					X: 3.5, Y: -7},
				PeerEchoes: []wire.BeaconEcho{{PeerInstance: to, BeaconSentAtMicros: 1 << 32, HoldMicros: 250000,
					RTTMicros: 1900}},
			}}},
		{"peer_beacon_signed", "signed_beacon", wire.Header{}, &signedBeacon{
			beacon{wire.PeerMessageHeader{Type: wire.PeerSignedBeacon, Sender: "press-01", SenderBootEpoch: 5},
				wire.Beacon{
					NextBeaconMillis: 10000, SentAtMicros: 1 << 33, MaxNeighbors: 6,
					PeerEchoes: []wire.BeaconEcho{{PeerInstance: to, BeaconSentAtMicros: 1 << 32, HoldMicros: 250000,
						RTTMicros: 1900}},
				}},
			goldenWord("press-01")}},
	}
}

// goldenWord returns the coordinator's attestation of the test key for an agent.
func goldenWord(agent wire.AgentID) wire.AgentKeyAttestation {
	w := wire.AgentKeyAttestation{AgentKey: wire.SigningPublicKeyOf(testKey())}
	w.CoordinatorSignature = wire.Signature(ed25519.Sign(testKey(), wire.AgentKeyAttestationText("plant_7", agent,
		w.AgentKey)))
	return w
}

func linearTask() *wire.Task {
	return &wire.Task{
		Name: "bearing wear", Features: []string{"temperature", "vibration"}, TargetColumn: "wear",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true,
			Ridge: 0.01},
		Training: wire.TrainingSettings{
			ExchangeKind: spec.ExchangeParameters, GradientNoise: spec.GradientNoise{Law: spec.NoiseNone}, BatchSize: 4,
			UpdateCodec: spec.CodecRaw,
			StepSize:    0.05, NormalizesStepSize: true, StepTimeBudgetMillis: 2000, MinLocalSteps: 1,
			MaxLocalSteps: 50,
		},
		Mixing: wire.MixingSettings{IntervalSteps: 5, SnapshotWaitMillis: 500, SnapshotRetryMillis: 100,
			LateSnapshotMillis: 2000,
			SnapshotCodec:      spec.CodecBFloat16,
			IsUnsealed:         true, HasEndlessBlocks: true},
		MinSamples:      10,
		Standardization: wire.Standardization{Mean: []float64{20.5, 0.25, 7}, Scale: []float64{4, 0.125, 1}, Clip: 8},
	}
}

// lossTask returns a task with a linear model and the given loss.
func lossTask(loss spec.LossKind, huberDelta float64) *wire.Task {
	t := linearTask()
	t.Model.Risk, t.Model.HuberDelta = loss, huberDelta
	return t
}

func packedTask(word spec.Codec) *wire.Task {
	t := networkTask()
	t.Training.UpdateCodec = word
	return t
}

func networkTask() *wire.Task {
	return &wire.Task{
		Name: "fault class", Features: []string{"temperature", "vibration", "Strom in Ampère"}, TargetColumn: "class",
		Model: wire.ModelSpec{HiddenUnits: []uint32{8, 4}, Outputs: 3, Activation: spec.ActivationReLU,
			Risk:    spec.LossSoftmax,
			HasBias: true, FrozenTensors: []string{"layer0", "layer2.bias"}, HuberDelta: 1.5},
		Training: wire.TrainingSettings{
			ExchangeKind: spec.ExchangeGradient, UpdateCodec: spec.CodecInt8, LocalStepProbability: 0.5,
			GradientNoise:   spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.25},
			StrongConvexity: 0.5, StepSizeDecayOffset: 15, Proximal: 0.125, StepTimeBudgetMillis: 1000,
			MinLocalSteps: 1,
			MaxLocalSteps: 1,
		},
		MinSamples: 1,
	}
}

// personalTask returns a task with a network in which the last layer and a part of another layer are personal, which
// means that agents do not share them.
func personalTask() *wire.Task {
	t := networkTask()
	t.Training.ExchangeKind, t.FinetuneSteps = spec.ExchangeParameters, 100
	t.Personal.PersonalTensors = []string{"layer0.bias", "layer2"}
	return t
}

// dittoTask returns a task in which each agent has a personal model in addition to the shared one.
func dittoTask() *wire.Task {
	t := networkTask()
	t.Training.ExchangeKind, t.Personal = spec.ExchangeParameters, wire.PersonalModelSettings{UsesDitto: true,
		DittoLambda: 0.1}
	return t
}

// autoencoderTask returns a task whose rows have no target.
func autoencoderTask() *wire.Task {
	t := linearTask()
	t.Name, t.TargetColumn, t.Model.Kind, t.Model.HiddenUnits = "odd bearings", "", spec.ModelAutoencoder, []uint32{4,
		1, 4}
	t.Standardization = wire.Standardization{Mean: []float64{20.5, 0.25, 0}, Scale: []float64{4, 0.125, 1}, Clip: 8}
	return t
}

// conv1DTask returns a task whose rows are windows of two streams with four steps each.
func conv1DTask() *wire.Task {
	t := networkTask()
	t.Name, t.Model.Kind, t.Model.HiddenUnits = "which motif", spec.ModelConv1D, []uint32{6}
	t.Features = []string{"x 0", "x 1", "x 2", "x 3", "y 0", "y 1", "y 2", "y 3"}
	t.Model.Convolution = wire.ConvolutionLayers{InputChannels: 2, KernelSteps: 3, PoolSteps: 2,
		FiltersPerLayer: []uint32{5}}
	return t
}

// externalTask returns a task that a program of the device's owner trains.
func externalTask() *wire.Task {
	t := networkTask()
	t.Name, t.Features, t.TargetColumn, t.Model = "defects", nil, "", wire.ModelSpec{Outputs: 1,
		Activation: spec.ActivationTanh,
		Risk:       spec.LossSquared}
	t.Training.ExchangeKind = spec.ExchangeParameters
	t.External = wire.ExternalTraining{TrainerName: "defects-cnn", TrainedTensors: wire.TensorSchema{
		{Name: "conv.weight", DType: wire.Float32, Shape: []uint32{4, 1, 3, 3}},
		{Name: "scale", DType: wire.Float32}, {Name: "out.bias", DType: wire.Float32, Shape: []uint32{2}}}}
	return t
}

// readingsTask returns a network task whose agents make rows from readings.
func readingsTask() *wire.Task {
	t := networkTask()
	t.Features, t.TargetColumn = []string{"vibration lag 1h", "hour sin", "mode = idle"}, "vibration in 6h"
	t.Recipe = spec.RowRecipe{
		Grid: spec.TimeGrid{Step: time.Hour, Lateness: 10 * time.Minute, TimeZone: "Asia/Shanghai"},
		Inputs: []spec.InputSeries{
			{Name: "vibration", Unit: "µm/s", ValidRange: []float64{0, 1000}, Resampling: spec.ResampleMax,
				Transform: spec.TransformLog1p},
			{Name: "mode", Resampling: spec.ResampleLast, Transform: spec.TransformNone, Classes: []string{"idle",
				"at work"}},
			{Name: "fault", Resampling: spec.ResampleSum, Transform: spec.TransformNone, LabelLateness: 24 * time.Hour},
		},
	}
	return t
}

// sensorsTask returns a task with plausibility limits for its sensors.
func sensorsTask() *wire.Task {
	t := readingsTask()
	t.Recipe.Inputs[0].StuckAfter, t.Recipe.Inputs[0].MaxJump = 6*time.Hour, 250
	t.Recipe.Inputs[1].StuckAfter = 48 * time.Hour
	return t
}

func smallSchema() wire.TensorSchema { return linearSchema(2) }
func bigSchema() wire.TensorSchema   { return linearSchema(15378) }

func linearSchema(features uint32) wire.TensorSchema {
	return wire.TensorSchema{
		{Name: "layer0.weight", DType: wire.Float32, Shape: []uint32{1, features}},
		{Name: "layer0.bias", DType: wire.Float32, Shape: []uint32{1}},
	}
}

// statisticsSchema returns the statistics schema of the network task: three features and a target.
func statisticsSchema() wire.TensorSchema {
	return wire.TensorSchema{
		{Name: "count", DType: wire.Float64, Shape: []uint32{1}},
		{Name: "mean", DType: wire.Float64, Shape: []uint32{4}},
		{Name: "squares", DType: wire.Float64, Shape: []uint32{4}},
	}
}

func smallVector() []byte { return wire.AppendVector(nil, []float32{0.5, -1.25, 2}) }
func smallUpdate() []byte { return wire.AppendVector(nil, []float32{0.125, -0.5, 0.0625}) }

// bigVector returns a vector with two chunks, the second of 100 bytes. Element i is i/128.
func bigVector() []byte {
	v := make([]float32, bigSchema().ElementCount())
	for i := range v {
		v[i] = float32(i) / 128
	}
	return wire.AppendVector(nil, v)
}

// statisticsVector returns [n, means, sums of squared deviations] of 12 rows.
func statisticsVector() []byte {
	return wire.AppendVector(nil, []float64{12, 20.5, 0.25, -0.125, 0.875, 57, 0.125, 0.0625, 5.8125})
}

func digestOf(p []byte) wire.Digest { return sha256.Sum256(p) }

func inline(p []byte) wire.BlobRef {
	return wire.BlobRef{Hash: wire.BlobDigest(p), Length: uint32(len(p)), Inline: p}
}

func pulled(m wire.Manifest) wire.BlobRef {
	return wire.BlobRef{Hash: m.Hash, ManifestHash: digestOf(m.AppendEncoding(nil)), Length: m.BlobLength}
}

// manifestOf returns the manifest of the blob p. A nil schema means that the blob is a task.
func manifestOf(p []byte, s wire.TensorSchema) wire.Manifest {
	var schema wire.Digest
	if s != nil {
		schema = s.Hash()
	}
	m, err := wire.NewManifest(p, schema)
	if err != nil {
		panic(err)
	}
	return m
}

// seeded returns a random generator with the given seed.
func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
