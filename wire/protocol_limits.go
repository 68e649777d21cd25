package wire

// Limits on what is accepted from a peer. Each is checked before memory is
// allocated for the thing it bounds.
const (
	// Version is the protocol version of this build, the fifth byte of every envelope.
	Version = 2

	// MaxMessage bounds a whole MQTT payload, in bytes.
	MaxMessage = 64 << 10
	// MaxBody bounds the body of an envelope, in bytes.
	MaxBody = MaxMessage - HeaderSize - signatureSize
	// MaxInline bounds a model that rides inside an announcement, in bytes.
	MaxInline = 48 << 10
	// MaxInlineUpdate bounds an update that rides inside its own manifest, in
	// bytes: larger ones wait for credit, so that a burst of them cannot
	// overrun the broker's queue.
	MaxInlineUpdate = 8 << 10

	// MaxChunk bounds the payload of one chunk, in bytes: 60 KiB with its header.
	MaxChunk = 60<<10 - ChunkHeaderSize
	// MaxChunks bounds the chunks of one blob, so that its manifest is one message.
	MaxChunks = 1900
	// MaxBlob bounds the length of a blob (a model, a task, an update), in bytes.
	MaxBlob = MaxChunks * MaxChunk

	// MaxFederation bounds the name of a federation, in bytes.
	MaxFederation = 32
	// MaxAgentID bounds the name of an agent, in bytes.
	MaxAgentID = 48
	// MaxName bounds the name of a task, column or tensor, in bytes.
	MaxName = 128
	// MaxFeatures bounds the columns of a task.
	MaxFeatures = 65536
	// MaxHidden bounds the hidden layers of a model.
	MaxHidden = 8
	// MaxTensors bounds the tensors of a model that a program of the device's owner trains.
	MaxTensors = 4096
	// MaxRank bounds their axes.
	MaxRank = 8
	// MaxRanges bounds the ranges of one credit.
	MaxRanges = 64
	// MaxSections bounds the sections of one body.
	MaxSections = 64
	// MaxSectionName bounds the name of a section or of an announced blob, in bytes.
	MaxSectionName = 32
	// MaxOutcome bounds the updates of one outcome.
	MaxOutcome = 1 << 20
	// MaxBlobs bounds the blobs that one announcement names.
	MaxBlobs = 16
)
