package runs

import "testing"

// TestLasts checks which files of the state folder belong to a backup.
func TestLasts(t *testing.T) {
	for name, want := range map[string]bool{
		"run.a": true, "model.b": true, "control.a": true, "task.b": true, "history.jsonl": true, "root-2": true,
		"models/": true, "models/17/": true, "models/17/model-00000001.safetensors": true, "audit/": true,
		"audit/00000000000000000001.jsonl": true, "spool/": false, "spool/1/a": false, "seals.a": false, "lock": false,
		"models/17/.fedmesh-tmp-X": false, "models/17/x/": false, "models": false, "api.sock": false, "root-x": false,
	} {
		if BelongsToBackup(name) != want {
			t.Errorf("%s: %v, want %v", name, !want, want)
		}
	}
}
