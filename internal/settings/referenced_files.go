package settings

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
)

// StateFolder returns the agent's state folder.
func (a *Agent) StateFolder() string { return a.StateDir }

// FilesByKey returns the path of each file that the agent reads, by configuration key. A path is empty if its key is
// not set.
func (a *Agent) FilesByKey() map[string]string {
	files := map[string]string{}
	a.eachFederation(func(section string, m *Agent) {
		if section != "" {
			section += "."
		}
		maps.Copy(files, m.Broker.FilesByKey(section+"broker."))
		files[section+"identity.key_file"] = m.Identity.KeyFile
		files[section+"identity.root_file"] = m.Identity.RootFile
		AddDataFiles(files, section+"data.", &m.Data)
		maps.Copy(files, m.Predict.ForecastBroker.FilesByKey(section+"predict.broker."))
		maps.Copy(files, m.Readings.Broker.FilesByKey(section+"readings.broker."))
		if m.D2D != nil {
			maps.Copy(files, m.D2D.Broker.FilesByKey(section+"d2d.broker."))
		}
	})
	return files
}

// AddDataFiles adds the files named in a data section to files, by configuration key. section is the key prefix of the
// section and ends with a dot.
func AddDataFiles(files map[string]string, section string, d *data.Config) {
	for key, path := range sources.PathByConfigKey(d) {
		files[section+key] = path
	}
}

// FilesByKey returns the files named in the broker section, by configuration key. section is the key prefix of the
// section and ends with a dot.
func (b *BrokerAccess) FilesByKey(section string) map[string]string {
	return map[string]string{
		section + "password_file": b.PasswordFile, section + "ca_file": b.CAFile,
		section + "cert_file": b.CertFile, section + "key_file": b.KeyFile,
	}
}

// ResolveSecretFile returns the path of the systemd credential with the same name as the file. If there is no such
// credential, it returns path. With a credential, the file itself may belong to root. If the file is missing, the
// credential contains only a line break.
func ResolveSecretFile(path string) string {
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
