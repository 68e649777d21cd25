package state

import (
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// maxModelRecord is the maximum size in bytes of a file with two models, or with a model and a task.
const maxModelRecord = 2*wire.MaxBlobBytes + wire.MaxMessage

// Files of the state folder. store.Disk.NextBootEpoch reads and writes StartCounter.
var (
	StartCounter = &store.StateFile{Name: store.BootEpochFile, Version: 1, MaxBytes: 8,
		LossConsequence: "the start counter begins at 1 again until the broker delivers the presence message of an " +
			"earlier start"}
	ObeyedPosition = &store.StateFile{Name: "obeyed", Version: 3, MaxBytes: 256, Slots: 2,
		LossConsequence: "the agent accepts the next announcement signed by the coordinator, even an old announcement"}
	Update = &store.StateFile{Name: "update", Version: 3, MaxBytes: maxModelRecord, Slots: 1, Large: true,
		LossConsequence: "the agent trains again for the current round if the coordinator invites it"}
	ErrorFeedback = &store.StateFile{Name: "unsent", Version: 3, MaxBytes: maxModelRecord, Large: true,
		LossConsequence: "the unsent residual of earlier updates is lost"}
	Block = &store.StateFile{Name: "block", Version: 2, MaxBytes: maxModelRecord, Large: true,
		LossConsequence: "training with neighbours starts from the parameters of a neighbour or of the coordinator"}
	UplinkBudget = &store.StateFile{Name: "budget", Version: 1, MaxBytes: 64,
		LossConsequence: "the traffic count of this month restarts at 0"}
	HeldOutSplit = &store.StateFile{Name: "held-out", Version: 1, MaxBytes: 64,
		LossConsequence: "the held-out rows are chosen again from the current rows"}
	RootDocument = &store.StateFile{Name: "root", Version: 2, MaxBytes: len(wire.Digest{}) + wire.MaxRootDocumentBytes,
		LossConsequence: "the configured root document is used until a later root document arrives"}
	Clock = &store.StateFile{Name: "clock", Version: 2, MaxBytes: 12,
		LossConsequence: "certificates are checked with the system clock until an announcement arrives"}
	GroupKeys = &store.StateFile{Name: "group", Version: 2, MaxBytes: 1 << 10,
		LossConsequence: "the agent requests the group key from the coordinator again"}
	DeviceKeys = &store.StateFile{Name: "key", Version: 2, MaxBytes: 3 * 32,
		LossConsequence: "the configured key is used"}
	Certificate = &store.StateFile{Name: "certificate", Version: 2, MaxBytes: 16 << 10,
		LossConsequence: "the configured certificate is used"}
	Attestation = &store.StateFile{Name: "word", Version: 2,
		MaxBytes: len(wire.SigningPublicKey{}) + len(wire.Signature{}),
		LossConsequence: "neighbours ignore the agent's discovery beacons until the coordinator invites the agent " +
			"again"}
	PersonalModel = &store.StateFile{Name: "personal", Version: 3, MaxBytes: maxModelRecord, Slots: 2, Large: true,
		LossConsequence: "the personal parameters of the model are initialised again"}
)

// Files lists the files whose damage the agent detects when it loads them. Partially fetched models and tasks are not
// listed, because their chunks are verified by hash.
var Files = []*store.StateFile{StartCounter, ObeyedPosition, Update, ErrorFeedback, Block, UplinkBudget, HeldOutSplit,
	RootDocument,
	Clock, GroupKeys, DeviceKeys, Certificate, Attestation, PersonalModel}

// FileNames returns the names of all listed files. The metrics use them as label values.
func FileNames() (names []string) {
	for _, f := range Files {
		names = append(names, f.Name)
	}
	return names
}
