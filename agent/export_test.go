package agent

// AddPart adds a part to an agent that has not started.
func (a *Agent) AddPart(p any) { a.parts = append(a.parts, p) }
