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
	activeModelFile  = "model.safetensors" // in the state folder itself, because other programs read this file
	keptModelDir     = "models"
	pinFile          = "pinned"
	pinRecordVersion = 1
)

// ActiveModelPath returns the path of the file with the model that the agent uses for predictions.
func ActiveModelPath(stateDir string) string { return filepath.Join(stateDir, activeModelFile) }

// ModelLockDir returns the folder that must be locked to change an agent's models. It is not the state folder, which
// the daemon locks while it runs, so that a command can change the models at any time.
func ModelLockDir(stateDir string) string { return filepath.Join(stateDir, keptModelDir) }

// KeptModels manages the last models that an agent has installed, numbered in the order of installation, and the active
// model. The active model is a separate file that is replaced atomically, and it is the newest model unless the
// device's owner has pinned another model.
type KeptModels struct {
	disk     store.Disk
	stateDir string
	models   *store.ModelFolder
}

// KeptModel describes an installed model.
type KeptModel struct {
	InstallNumber uint64
	FileBytes     int64
	Metadata      map[string]string
	IsInUse       bool
}

// Name returns the model name in the form RUN/VERSION, as used in the coordinator's commands.
func (k *KeptModel) Name() string { return k.Metadata["run"] + "/" + k.Metadata["version"] }

// ErrNoEarlierModel is returned by Rollback if no model is older than the active one.
var ErrNoEarlierModel = errors.New("no earlier model is available")

// OpenKeptModels opens the models in a state folder. It creates their folder if necessary.
func OpenKeptModels(disk store.Disk, stateDir string) (*KeptModels, error) {
	models, err := disk.OpenModelFolder(ModelLockDir(stateDir))
	if err != nil {
		return nil, err
	}
	return &KeptModels{disk, stateDir, models}, nil
}

// ActiveModel returns the model in use for predictions. It returns the error store.ErrNoModel if no model is in use.
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

// List returns the installed models, oldest first. If some models are damaged, it returns the others and an error that
// names the damaged models.
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

// Find returns the stored model with the given name, or nil if it is not stored.
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

// installNumberOf returns the number of the newest installation of the named model, or 0 if the model is not stored.
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

// Install stores a model and makes it the active model. It then removes the oldest models, but keeps the newest keep
// models and the model spare.
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
	stays, _ := k.installNumberOf(spare) // ignore the error, which only concerns damaged models
	return k.models.Prune(keep, number, stays)
}

// Activate makes the model with the given number the active model and pins it. If number is 0, it activates the newest
// model and removes the pin.
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
	// Create the pin first, so that the daemon cannot replace the model.
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

// Rollback activates and pins the model that precedes the active model. It returns the number of the activated model.
func (k *KeptModels) Rollback() (uint64, error) {
	all, err := k.List()
	at := slices.IndexFunc(all, func(m KeptModel) bool { return m.IsInUse })
	if at < 1 {
		return 0, errors.Join(ErrNoEarlierModel, err)
	}
	return all[at-1].InstallNumber, k.Activate(all[at-1].InstallNumber)
}

// IsPinned reports whether the device's owner has pinned the active model.
func (k *KeptModels) IsPinned() bool {
	_, err := k.disk.Lstat(filepath.Join(ModelLockDir(k.stateDir), pinFile))
	return err == nil
}
