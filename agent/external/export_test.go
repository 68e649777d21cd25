package external

import "time"

// Hurry makes the trainer restart its current programs without delay.
func (t *ProgramTrainer) Hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.programByTrainer {
		p.mu.Lock()
		p.restartAt, p.firstRestartDelay = time.Time{}, 0
		p.mu.Unlock()
	}
}

// Limit sets the memory limit of the trainer's programs for their next start.
func (t *ProgramTrainer) Limit(memory uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.programByTrainer {
		p.cfg.MaxMemoryBytes = memory
	}
}
