package agent

// AddPart adds a part of a test to an agent that does not run yet.
func (a *Agent) AddPart(p any) { a.parts = append(a.parts, p) }
