package round

// draw decides by chance whether the agent answers an announcement. One that is named takes part, and answers.
func (a *Agent) draw(e *AnnouncementCame) {
	of := e.Announcement.Respond.Of
	a.undrawn = e.Weight == 0 && !a.drawn(of)
	if a.drew = of; a.undrawn || e.Weight > 0 {
		a.drew = 0
	}
}

// drawn is true with probability of/2³²; 0 is certain.
func (a *Agent) drawn(of uint32) bool { return of == 0 || a.rng.Uint32() < of }

// silent reports whether the agent says no hello until it is drawn. With an update, or at work, it does.
func (a *Agent) silent() bool { return a.undrawn && a.work == nil && a.saved == nil && a.parted == nil }
