package external

import "time"

// Hurry has the trainer's programs started again without a wait, from now on.
func (t *ProgramTrainer) Hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.programByTrainer {
		p.mu.Lock()
		p.restartAt, p.firstRestartDelay = time.Time{}, 0
		p.mu.Unlock()
	}
}

// Limit bounds the memory of the trainer's programs that start from now on.
func (t *ProgramTrainer) Limit(memory uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.programByTrainer {
		p.cfg.MaxMemoryBytes = memory
	}
}
