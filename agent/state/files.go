package state

import (
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// FileSpec is a file of the state folder. The package that uses the file encodes and decodes it.
type FileSpec struct {
	Name string
	// Version is the version of the format. A file of another version counts as damaged.
	Version uint16
	// MaxBytes limits the length of the content.
	MaxBytes int
	// Slots is the number of copies that are written in turn, so that one is complete at any time
	// (store.RecordSlots). 0 = a single file that is replaced as a whole.
	Slots int
	// LossConsequence is the behaviour of the agent if the file is lost.
	LossConsequence string
	// Large files are removed when they are damaged. The others are set aside, so that a person can examine them.
	Large bool
}

// maxModelRecord is the limit of a file with two models, or a model and a task.
const maxModelRecord = 2*wire.MaxBlobBytes + wire.MaxMessage

// The files. store.Disk.NextBootEpoch reads and writes StartCounter.
var (
	StartCounter = &FileSpec{Name: store.BootEpochFile, Version: 1, MaxBytes: 8,
		LossConsequence: "starts are counted from 1 until the broker delivers a presence of an earlier start"}
	ObeyedPosition = &FileSpec{Name: "obeyed", Version: 3, MaxBytes: 256, Slots: 2,
		LossConsequence: "the agent obeys the next announcement that the coordinator has signed, even an old one"}
	Update = &FileSpec{Name: "update", Version: 3, MaxBytes: maxModelRecord, Slots: 1, Large: true,
		LossConsequence: "the agent trains again for the round if it is invited"}
	ErrorFeedback = &FileSpec{Name: "unsent", Version: 3, MaxBytes: maxModelRecord, Large: true,
		LossConsequence: "the unsent residual of earlier updates is lost"}
	Block = &FileSpec{Name: "block", Version: 2, MaxBytes: maxModelRecord, Large: true,
		LossConsequence: "mixing begins with the parameters of a neighbour or of the coordinator"}
	UplinkBudget = &FileSpec{Name: "budget", Version: 1, MaxBytes: 64,
		LossConsequence: "the bytes of this month are counted from 0"}
	HeldOutSplit = &FileSpec{Name: "held-out", Version: 1, MaxBytes: 64,
		LossConsequence: "the held-out rows are chosen again from the present rows"}
	RootDocument = &FileSpec{Name: "root", Version: 2, MaxBytes: len(wire.Digest{}) + wire.MaxRootDocumentBytes,
		LossConsequence: "the root document of the configuration is in force until later ones arrive again"}
	Clock = &FileSpec{Name: "clock", Version: 2, MaxBytes: 12,
		LossConsequence: "certificates are checked with the machine's clock until an announcement arrives"}
	GroupKeys = &FileSpec{Name: "group", Version: 2, MaxBytes: 1 << 10,
		LossConsequence: "the agent asks the coordinator for the group key again"}
	DeviceKeys = &FileSpec{Name: "key", Version: 2, MaxBytes: 3 * 32,
		LossConsequence: "the key of the configuration is used"}
	Certificate = &FileSpec{Name: "certificate", Version: 2, MaxBytes: 16 << 10,
		LossConsequence: "the certificate of the configuration is used"}
	Attestation = &FileSpec{Name: "word", Version: 2,
		MaxBytes:        len(wire.SigningPublicKey{}) + len(wire.Signature{}),
		LossConsequence: "neighbours ignore the agent's beacons until the coordinator invites it again"}
	PersonalModel = &FileSpec{Name: "personal", Version: 3, MaxBytes: maxModelRecord, Slots: 2, Large: true,
		LossConsequence: "the personal parameters of the model are initialised again"}
)

// Files lists all files that may be damaged. Files into which a model or a task is fetched are not listed: their chunks
// are checked against hashes that come from elsewhere.
var Files = []*FileSpec{StartCounter, ObeyedPosition, Update, ErrorFeedback, Block, UplinkBudget, HeldOutSplit,
	RootDocument,
	Clock, GroupKeys, DeviceKeys, Certificate, Attestation, PersonalModel}

// FileNames returns the names of all files, as label values.
func FileNames() (names []string) {
	for _, f := range Files {
		names = append(names, f.Name)
	}
	return names
}
