package world

import (
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// predicts returns the version of the model with which an agent predicts, or the zero version if it has none. It checks
// that the model file is complete and was announced, also after a power cut.
func (c *invariantChecker) predicts(p *party) version {
	file := p.disk.file(modelfile.ActiveModelPath(stateDir))
	if file == nil {
		return version{}
	}
	m, err := modelfile.Decode(file)
	if err != nil {
		c.w.fail("cannot read the prediction model of %s: %v", p.id, err)
		return version{}
	}
	at := version{m.Run, uint64(m.Version)}
	announced := c.models[at] == m.ParameterDigest
	if c.w.plan.personal() { // the saved model includes personal parameters
		_, announced = c.models[at]
	}
	if !announced || wire.BlobDigest(m.ParameterBytes) != m.ParameterDigest {
		c.w.fail("%s predicts with model %d, which was not announced", p.id, at.version)
	}
	return at
}
