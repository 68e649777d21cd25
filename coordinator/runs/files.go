package runs

import (
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// These are the versioned files of the state folder. If a file's format changes, raise its version: another program
// version then reports the file instead of misreading it. TestFormats of package coordinator checks each file.
var (
	// MaxBytes of the journal suffices for about 10 million edges.
	Journal = &store.StateFile{Name: "run", Version: 3, MaxBytes: 1 << 30, Slots: 2,
		LossConsequence: "the coordinator stops until an operator chooses how the run continues"}
	Model = &store.StateFile{Name: "model", Version: 1, MaxBytes: 16 * wire.MaxBlobBytes, Slots: 2,
		LossConsequence: "the model is read from the archive"}
	// The version of the task file is the version of the encoding of wire.Task.
	Task = &store.StateFile{Name: "task", Version: 2, MaxBytes: wire.MaxBlobBytes, Slots: 2,
		LossConsequence: "the task is rebuilt from the configuration, if the configuration still describes the same " +
			"task"}
	Control = &store.StateFile{Name: "control", Version: 1, MaxBytes: 64 << 20, Slots: 2,
		LossConsequence: "the task of the configuration file is applied, and a paused run continues"}
	SealKeys = &store.StateFile{Name: "seals", Version: 1, MaxBytes: 64 << 10, Slots: 2,
		LossConsequence: "new encryption keys are generated; agents use them after the next announcement"}
	RestandardizeRequest = &store.StateFile{Name: "restandardize", Version: 1, MaxBytes: 1 << 10,
		LossConsequence: "the column means and scales are not recomputed: run `coordinator restandardize` again"}
	Tokens = &store.StateFile{Name: "tokens", Version: 1, MaxBytes: 8 << 20,
		LossConsequence: "unused enrolment tokens become invalid: create new tokens with `coordinator enrol`"}
	DeviceHistory = &store.StateFile{Name: "devices", Version: 2, MaxBytes: 256 << 20,
		LossConsequence: "`status` no longer shows the earlier rounds of devices and the time of their last connection"}
)

// Files lists all versioned files.
var Files = []*store.StateFile{Journal, Model, Task, Control, SealKeys, RestandardizeRequest, Tokens, DeviceHistory}
