package settings

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/data"
)

// StateFolder is the folder that the agent writes to.
func (a *Agent) StateFolder() string { return a.StateDir }

// Files are the files that the agent reads, by key; a path may be empty.
func (a *Agent) Files() map[string]string {
	files := map[string]string{}
	a.each(func(section string, m *Agent) {
		if section != "" {
			section += "."
		}
		maps.Copy(files, m.Broker.files(section+"broker."))
		files[section+"identity.key_file"] = m.Identity.KeyFile
		files[section+"identity.root_file"] = m.Identity.RootFile
		addFiles(files, section+"data.", &m.Data)
		maps.Copy(files, m.Predict.Broker.files(section+"predict.broker."))
		maps.Copy(files, m.Readings.Broker.files(section+"readings.broker."))
		if m.D2D != nil {
			maps.Copy(files, m.D2D.Broker.files(section+"d2d.broker."))
		}
	})
	return files
}

// StateFolder is the folder that the coordinator writes to.
func (s *Coordinator) StateFolder() string { return s.StateDir }

// Files are the files that the coordinator reads, by key; a path may be empty.
func (s *Coordinator) Files() map[string]string {
	files := s.Broker.files("broker.")
	files["identity.key_file"], files["identity.agents_file"], files["mesh.file"] = s.Identity.KeyFile,
		s.Identity.AgentsFile, s.Mesh.File
	files["api.tokens_file"], files["api.cert_file"], files["api.key_file"] = s.API.TokensFile, s.API.CertFile,
		s.API.KeyFile
	files["history.mlflow.token_file"] = s.History.MLflow.TokenFile
	files["enrol.root_file"], files["enrol.ca_file"], files["enrol.ca_key_file"], files["enrol.devices_file"] =
		s.Enrol.RootFile, s.Enrol.CAFile, s.Enrol.CAKeyFile, s.Enrol.DevicesFile
	files["cluster.password_file"], files["cluster.ca_file"], files["cluster.cert_file"], files["cluster.key_file"] =
		s.Cluster.PasswordFile, s.Cluster.CAFile, s.Cluster.CertFile, s.Cluster.KeyFile
	files["task.model.initial"] = s.Task.Model.Initial
	if s.Held != nil {
		addFiles(files, "held_out.", s.Held)
	}
	return files
}

func addFiles(files map[string]string, section string, d *data.Config) {
	for key, path := range d.Files() {
		files[section+key] = path
	}
}

func (b *Broker) files(section string) map[string]string {
	return map[string]string{
		section + "password_file": b.PasswordFile, section + "ca_file": b.CAFile,
		section + "cert_file": b.CertFile, section + "key_file": b.KeyFile,
	}
}

// secretFile returns the path of systemd's credential with the file's name, if there is one, so that the file itself
// may belong to root; else the path of the file. For a missing file the unit's credential holds only a line break.
func secretFile(path string) string {
	folder := os.Getenv("CREDENTIALS_DIRECTORY")
	if folder == "" || path == "" {
		return path
	}
	credential := filepath.Join(folder, filepath.Base(path))
	if content, err := os.ReadFile(credential); err == nil && len(bytes.TrimSpace(content)) > 0 {
		return credential
	}
	return path
}
