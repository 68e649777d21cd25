package modelfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	activeModelFile  = "model.safetensors" // in the state folder: other programs read it, too
	keptModelDir     = "models"
	pinFile          = "pinned"
	pinRecordVersion = 1
)

// ActiveModelPath is where an agent's model in use is.
func ActiveModelPath(stateDir string) string { return filepath.Join(stateDir, activeModelFile) }

// ModelLockDir is the folder that whoever changes an agent's models locks for that long. It is not the state folder,
// whose lock the daemon holds as long as it runs: so a command may change them at any time.
func ModelLockDir(stateDir string) string { return filepath.Join(stateDir, keptModelDir) }

// KeptModels is the models that an agent has taken, the last few, and which is in use. They are numbered in the order
// in which they were taken. The one in use is a file of its own, replaced atomically; unless the device's owner has
// pinned another one, it is the newest.
type KeptModels struct {
	disk     store.Disk
	stateDir string
	models   *store.ModelFolder
}

// KeptModel describes a model that is kept.
type KeptModel struct {
	InstallNumber uint64
	FileBytes     int64
	Metadata      map[string]string
	IsInUse       bool
}

// Name names the model as the coordinator's commands do: RUN/VERSION.
func (k *KeptModel) Name() string { return k.Metadata["run"] + "/" + k.Metadata["version"] }

// ErrNoEarlierModel is the error of Rollback when there is no model from before the one in use.
var ErrNoEarlierModel = errors.New("there is no earlier model")

// OpenKeptModels opens the models in a state folder, and makes their folder.
func OpenKeptModels(disk store.Disk, stateDir string) (*KeptModels, error) {
	models, err := disk.OpenModelFolder(ModelLockDir(stateDir))
	if err != nil {
		return nil, err
	}
	return &KeptModels{disk, stateDir, models}, nil
}

// ActiveModel returns the model in use, or store.ErrNoModel.
func (k *KeptModels) ActiveModel() (*Model, error) {
	path := ActiveModelPath(k.stateDir)
	file, err := k.disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in use in %s", store.ErrNoModel, k.stateDir)
	}
	if err != nil {
		return nil, err
	}
	m, err := Decode(file)
	if err != nil {
		return nil, &store.CorruptError{Path: path, Reason: err.Error()}
	}
	return m, nil
}

// List returns the models that are kept, the oldest first. When some are damaged the error names them, and the others
// are still returned.
func (k *KeptModels) List() ([]KeptModel, error) {
	infos, err := k.models.List()
	file, missing := k.disk.ReadFile(ActiveModelPath(k.stateDir))
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		err = errors.Join(err, missing)
	}
	inUse := sha256.Sum256(file)
	var all []KeptModel
	for _, i := range infos {
		all = append(all, KeptModel{InstallNumber: i.Version, FileBytes: i.Size, Metadata: i.Metadata,
			IsInUse: i.Digest == inUse})
	}
	return all, err
}

// Find returns a model that is kept; nil if it is not there.
func (k *KeptModels) Find(name wire.ModelRef) (*Model, error) {
	number, err := k.installNumberOf(name)
	if number == 0 || err != nil {
		return nil, err
	}
	file, err := k.models.Get(number)
	if err != nil {
		return nil, err
	}
	return Decode(file)
}

// installNumberOf returns the newest number of a model; 0 if it is not there.
func (k *KeptModels) installNumberOf(name wire.ModelRef) (uint64, error) {
	if !name.IsSet() {
		return 0, nil
	}
	all, err := k.List()
	for _, m := range slices.Backward(all) {
		if m.Name() == name.String() && m.Metadata["hash"] == name.ParametersDigest.String() {
			return m.InstallNumber, nil
		}
	}
	return 0, err
}

// Install keeps a model, puts it into use, and removes the oldest so that keep are left, and the model spare if it is
// there.
func (k *KeptModels) Install(m *Model, keep int, spare wire.ModelRef) error {
	file, err := m.Encode()
	if err != nil {
		return err
	}
	versions, err := k.models.Versions()
	if err != nil {
		return err
	}
	number := uint64(1)
	if n := len(versions); n > 0 {
		number = versions[n-1] + 1
	}
	if err := k.models.Put(number, sha256.Sum256(file), true, file); err != nil {
		return err
	}
	if err := k.disk.WriteFileDurably(ActiveModelPath(k.stateDir), file, 0o644); err != nil {
		return err
	}
	stays, _ := k.installNumberOf(spare) // of damaged ones nobody knows
	return k.models.Prune(keep, number, stays)
}

// Activate puts the model of that number into use, and pins it; number 0 puts the newest into use, and ends the pin.
func (k *KeptModels) Activate(number uint64) error {
	pin := filepath.Join(ModelLockDir(k.stateDir), pinFile)
	if number == 0 {
		versions, err := k.models.Versions()
		if err != nil {
			return err
		}
		if len(versions) == 0 {
			return fmt.Errorf("%w in %s", store.ErrNoModel, ModelLockDir(k.stateDir))
		}
		if err := k.writeActiveModel(slices.Max(versions)); err != nil {
			return err
		}
		if err := k.disk.Remove(pin); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if _, err := k.models.Get(number); err != nil {
		return err
	}
	// before: else the daemon may take another one
	if err := k.disk.SaveRecord(pin, pinRecordVersion, nil); err != nil {
		return err
	}
	return k.writeActiveModel(number)
}

func (k *KeptModels) writeActiveModel(number uint64) error {
	file, err := k.models.Get(number)
	if err != nil {
		return err
	}
	return k.disk.WriteFileDurably(ActiveModelPath(k.stateDir), file, 0o644)
}

// Rollback puts the model from before the one in use into use, pins it, and returns its number.
func (k *KeptModels) Rollback() (uint64, error) {
	all, err := k.List()
	at := slices.IndexFunc(all, func(m KeptModel) bool { return m.IsInUse })
	if at < 1 {
		return 0, errors.Join(ErrNoEarlierModel, err)
	}
	return all[at-1].InstallNumber, k.Activate(all[at-1].InstallNumber)
}

// IsPinned reports whether the device's owner has said which model is in use.
func (k *KeptModels) IsPinned() bool {
	_, err := k.disk.Lstat(filepath.Join(ModelLockDir(k.stateDir), pinFile))
	return err == nil
}
