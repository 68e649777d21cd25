package world

import (
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// predicts returns the model that an agent predicts with, zero if it has none. It is whole at each moment, and after
// each power cut, and was announced.
func (c *invariantChecker) predicts(p *party) version {
	file := p.disk.file(modelfile.ActiveModelPath(stateDir))
	if file == nil {
		return version{}
	}
	m, err := modelfile.Decode(file)
	if err != nil {
		c.w.fail("the model that %s predicts with cannot be read: %v", p.id, err)
		return version{}
	}
	at := version{m.Run, uint64(m.Version)}
	announced := c.models[at] == m.ParameterDigest
	if c.w.plan.personal() { // the device has it with what is its own
		_, announced = c.models[at]
	}
	if !announced || wire.BlobDigest(m.ParameterBytes) != m.ParameterDigest {
		c.w.fail("%s predicts with a model %d that was not announced", p.id, at.version)
	}
	return at
}
