package coordinator

import (
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// encodeModel returns a model's file in pieces; all but the first are views into its vector.
func encodeModel(run wire.RunID, version wire.ModelVersion, p *task.CompiledTask[float32], data []byte,
	hash wire.Digest,
	from runOrigin) ([][]byte, error) {
	m := modelfile.NewModel(&p.Task, p.Model.Architecture(), data, hash)
	m.Run, m.Version, m.ParentModel, m.Personal = run, version, from.Model, p.Task.Personal.Tensors
	return m.Pieces()
}

func shapeAsInts(shape []uint32) []int {
	var all []int
	for _, n := range shape {
		all = append(all, int(n))
	}
	return all
}
