package wire

// Limits on received messages. Each limit is checked before memory is allocated.
const (
	// ProtocolVersion is the protocol version of this build, the fifth byte of every envelope.
	ProtocolVersion = 2

	// MaxMessage is the maximum size in bytes of an MQTT payload.
	MaxMessage = 64 << 10
	// MaxBody is the maximum size in bytes of the body of an envelope.
	MaxBody = MaxMessage - HeaderSize - signatureSize
	// MaxInlineBlobBytes is the maximum size in bytes of a blob that is contained in an announcement.
	MaxInlineBlobBytes = 48 << 10
	// MaxInlineUpdate is the maximum size, in bytes, of an update inside its own manifest. A larger update waits for
	// the coordinator's permission, so that many updates at the same time cannot overflow the broker's queue.
	MaxInlineUpdate = 8 << 10

	// MaxChunkBytes is the maximum size of a chunk's payload: 60 KiB with its header.
	MaxChunkBytes = 60<<10 - ChunkHeaderSize
	// MaxBlobChunks is the maximum number of chunks of one blob, so that its manifest fits into one message.
	MaxBlobChunks = 1900
	// MaxBlobBytes is the maximum size of a blob (a model, a task or an update).
	MaxBlobBytes = MaxBlobChunks * MaxChunkBytes

	// MaxFederation is the maximum length in bytes of the name of a federation.
	MaxFederation = 32
	// MaxAgentID is the maximum length in bytes of the id of an agent.
	MaxAgentID = 48
	// MaxName is the maximum length in bytes of the name of a task, column or tensor.
	MaxName = 128
	// MaxFeatures is the maximum number of features of a task.
	MaxFeatures = 65536
	// MaxHiddenLayers is the maximum number of hidden layers of a model.
	MaxHiddenLayers = 8
	// MaxTensors is the maximum number of tensors that an external program trains.
	MaxTensors = 4096
	// MaxTensorRank is the maximum number of axes of a tensor that an external program trains.
	MaxTensorRank = 8
	// MaxCreditRanges is the maximum number of chunk ranges in one ChunkCredit message.
	MaxCreditRanges = 64
	// MaxSections is the maximum number of sections of one body.
	MaxSections = 64
	// MaxSectionName is the maximum length in bytes of the name of a section or of an announced blob.
	MaxSectionName = 32
	// MaxOutcomeUpdates is the maximum number of updates in one RoundOutcome.
	MaxOutcomeUpdates = 1 << 20
	// MaxAnnouncedBlobs is the maximum number of blobs in one announcement.
	MaxAnnouncedBlobs = 16
)
