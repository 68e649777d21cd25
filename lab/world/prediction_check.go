package world

import (
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// predicts returns the version of the model that an agent uses for predictions. It returns the zero version if the
// agent has no model. It checks that the model file is complete and that the model was announced. Both conditions must
// hold even after a power cut.
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
	if c.w.plan.personal() { // the saved model also contains personal parameters
		_, announced = c.models[at]
	}
	if !announced || wire.BlobDigest(m.ParameterBytes) != m.ParameterDigest {
		c.w.fail("%s predicts with model %d, which was not announced", p.id, at.version)
	}
	return at
}
