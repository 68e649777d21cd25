package host

import (
	"slices"
	"sync"
)

// SerialJobQueue runs jobs one after another in the order of submission, concurrently with the event loop.
type SerialJobQueue struct {
	owner *EventLoop

	mu             sync.Mutex
	unfinishedJobs []func() // jobs in order of submission; the first job is running
}

// NewSerialJobQueue returns an empty queue for jobs of the event loop o.
func NewSerialJobQueue(o *EventLoop) *SerialJobQueue { return &SerialJobQueue{owner: o} }

// Enqueue runs job after all jobs that were submitted earlier.
func (l *SerialJobQueue) Enqueue(job func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unfinishedJobs = append(l.unfinishedJobs, job); len(l.unfinishedJobs) == 1 {
		l.owner.Go(func() { l.runJobs(job) })
	}
}

// IsIdle reports whether all jobs have finished.
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

// finishAndNextJob removes the finished job from the queue and returns the next job, or nil if the queue is empty.
func (l *SerialJobQueue) finishAndNextJob() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The function slices.Delete clears the removed element, so that the memory of the job can be freed.
	if l.unfinishedJobs = slices.Delete(l.unfinishedJobs, 0, 1); len(l.unfinishedJobs) == 0 {
		return nil
	}
	return l.unfinishedJobs[0]
}
