package coordinatorsettings

import "github.com/fedmesh/fedmesh/internal/settings"

// StateFolder returns the coordinator's state folder.
func (s *ConfigFile) StateFolder() string { return s.StateDir }

// FilesByKey returns the path of each file that the coordinator reads, by configuration key. A path is empty if its key
// is not set.
func (s *ConfigFile) FilesByKey() map[string]string {
	files := s.Broker.FilesByKey("broker.")
	files["identity.key_file"], files["identity.agents_file"], files["mesh.file"] = s.Identity.KeyFile,
		s.Identity.AgentListFile, s.Mesh.EdgeFile
	files["console.tokens_file"], files["console.cert_file"], files["console.key_file"],
		files["console.client_ca_file"] = s.Console.TokensFile, s.Console.CertFile, s.Console.KeyFile,
		s.Console.ClientCAFile
	files["history.mlflow.token_file"] = s.History.MLflow.TokenFile
	files["enrol.root_file"], files["enrol.ca_file"], files["enrol.ca_key_file"], files["enrol.devices_file"] =
		s.Enrolment.RootFile, s.Enrolment.CAFile, s.Enrolment.CAKeyFile, s.Enrolment.DeviceTemplateFile
	files["cluster.password_file"], files["cluster.ca_file"], files["cluster.cert_file"], files["cluster.key_file"] =
		s.Cluster.PasswordFile, s.Cluster.CAFile, s.Cluster.CertFile, s.Cluster.KeyFile
	files["task.model.initial"] = s.Task.Model.InitialModelFile
	if s.HeldOutData != nil {
		settings.AddDataFiles(files, "held_out.", s.HeldOutData)
	}
	return files
}
