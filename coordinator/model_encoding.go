package coordinator

import (
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// encodeModel returns a model's file in pieces; all but the first are views into its vector.
func encodeModel(run wire.RunID, version wire.ModelVersion, p *task.CompiledTask[float32], data []byte,
	hash wire.Digest,
	from runs.Origin) ([][]byte, error) {
	m := modelfile.NewModel(&p.Task, p.Model.Architecture(), data, hash)
	m.Run, m.Version, m.ParentModel, m.Personal = run, version, from.Model, p.Task.Personal.Tensors
	return m.Pieces()
}
