package host

import (
	"slices"
	"sync"
)

// SerialQueue runs jobs beside the owner one after another, in the order in which they were given.
type SerialQueue struct {
	owner *EventLoop

	mu      sync.Mutex
	waiting []func() // the first one is under way
}

// NewSerialQueue makes a line of the owner's jobs.
func NewSerialQueue(o *EventLoop) *SerialQueue { return &SerialQueue{owner: o} }

// Do has a job run after those before it. End waits for all of them.
func (l *SerialQueue) Do(job func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting = append(l.waiting, job); len(l.waiting) == 1 {
		l.owner.Go(func() { l.work(job) })
	}
}

// Idle reports whether all jobs are done.
func (l *SerialQueue) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

func (l *SerialQueue) work(job func()) {
	for job != nil {
		job()
		job = l.finishAndNextJob()
	}
}

// finishAndNextJob takes away the job that is done. It returns the one after it, nil if there is none.
func (l *SerialQueue) finishAndNextJob() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting = slices.Delete(l.waiting, 0, 1); len(l.waiting) == 0 { // which lets go of what the job holds
		return nil
	}
	return l.waiting[0]
}
