package wire

// Limits on what is accepted from a peer. Each is checked before memory is
// allocated for the thing it bounds.
const (
	// ProtocolVersion is the protocol version of this build, the fifth byte of every envelope.
	ProtocolVersion = 2

	// MaxMessage bounds a whole MQTT payload, in bytes.
	MaxMessage = 64 << 10
	// MaxBody bounds the body of an envelope, in bytes.
	MaxBody = MaxMessage - HeaderSize - signatureSize
	// MaxInlineBlobBytes bounds a model that rides inside an announcement, in bytes.
	MaxInlineBlobBytes = 48 << 10
	// MaxInlineUpdate bounds an update that rides inside its own manifest, in
	// bytes: larger ones wait for credit, so that a burst of them cannot
	// overrun the broker's queue.
	MaxInlineUpdate = 8 << 10

	// MaxChunkBytes bounds the payload of one chunk, in bytes: 60 KiB with its header.
	MaxChunkBytes = 60<<10 - ChunkHeaderSize
	// MaxBlobChunks bounds the chunks of one blob, so that its manifest is one message.
	MaxBlobChunks = 1900
	// MaxBlobBytes bounds the length of a blob (a model, a task, an update), in bytes.
	MaxBlobBytes = MaxBlobChunks * MaxChunkBytes

	// MaxFederation bounds the name of a federation, in bytes.
	MaxFederation = 32
	// MaxAgentID bounds the name of an agent, in bytes.
	MaxAgentID = 48
	// MaxName bounds the name of a task, column or tensor, in bytes.
	MaxName = 128
	// MaxFeatures bounds the columns of a task.
	MaxFeatures = 65536
	// MaxHiddenLayers bounds the hidden layers of a model.
	MaxHiddenLayers = 8
	// MaxTensors bounds the tensors of a model that a program of the device's owner trains.
	MaxTensors = 4096
	// MaxTensorRank bounds their axes.
	MaxTensorRank = 8
	// MaxCreditRanges bounds the ranges of one credit.
	MaxCreditRanges = 64
	// MaxSections bounds the sections of one body.
	MaxSections = 64
	// MaxSectionName bounds the name of a section or of an announced blob, in bytes.
	MaxSectionName = 32
	// MaxOutcomeUpdates bounds the updates of one outcome.
	MaxOutcomeUpdates = 1 << 20
	// MaxAnnouncedBlobs bounds the blobs that one announcement names.
	MaxAnnouncedBlobs = 16
)
