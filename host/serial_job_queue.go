package host

import (
	"slices"
	"sync"
)

// SerialJobQueue runs jobs beside the owner one after another, in the order in which they were given.
type SerialJobQueue struct {
	owner *EventLoop

	mu             sync.Mutex
	unfinishedJobs []func() // the first one is under way
}

// NewSerialJobQueue makes a line of the owner's jobs.
func NewSerialJobQueue(o *EventLoop) *SerialJobQueue { return &SerialJobQueue{owner: o} }

// Enqueue has a job run after those before it. End waits for all of them.
func (l *SerialJobQueue) Enqueue(job func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unfinishedJobs = append(l.unfinishedJobs, job); len(l.unfinishedJobs) == 1 {
		l.owner.Go(func() { l.runJobs(job) })
	}
}

// IsIdle reports whether all jobs are done.
func (l *SerialJobQueue) IsIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unfinishedJobs) == 0
}

func (l *SerialJobQueue) runJobs(job func()) {
	for job != nil {
		job()
		job = l.finishAndNextJob()
	}
}

// finishAndNextJob takes away the job that is done. It returns the one after it, nil if there is none.
func (l *SerialJobQueue) finishAndNextJob() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// which lets go of what the job holds
	if l.unfinishedJobs = slices.Delete(l.unfinishedJobs, 0, 1); len(l.unfinishedJobs) == 0 {
		return nil
	}
	return l.unfinishedJobs[0]
}
