package host

import "sync"

const (
	poolJobs    = 8    // beside the owner; a fixed number, so that a simulated host does the same on every machine
	poolBatch   = 16   // tasks that a job takes at a time
	poolWaiting = 1024 // tasks that may wait; with more, the owner works too, and hears no further events meanwhile
)

// Pool does short tasks in several jobs beside the owner. Their results run in the owner's goroutine in the order in
// which the tasks were given, whichever is done first.
type Pool struct {
	owner *EventLoop

	mu    sync.Mutex
	tasks []*task // in the order in which they were given
	begun int     // of tasks, from the first one on
	jobs  int
}

// task is a part of a program that needs nothing of its owner, and what the owner does then.
type task struct {
	work, then func()
	done       bool
}

// NewPool makes a pool of an owner.
func NewPool(owner *EventLoop) *Pool { return &Pool{owner: owner} }

// Do has work done beside the owner, and then its result run by the owner, who calls Do. Without work only the order
// is kept: if nothing is under way, the result runs at once.
func (p *Pool) Do(work, then func()) {
	p.mu.Lock()
	if work == nil && len(p.tasks) == 0 {
		p.mu.Unlock()
		then()
		return
	}
	p.tasks = append(p.tasks, &task{work: work, then: then, done: work == nil})
	begin := p.jobs < poolJobs
	if begin {
		p.jobs++
	}
	full := len(p.tasks) > poolWaiting
	p.mu.Unlock()
	if begin {
		p.owner.Go(p.job)
	}
	if full {
		p.work(p.take(false))
		p.deliver()
	}
}

// job works until all tasks have begun.
func (p *Pool) job() {
	for some := p.take(true); len(some) > 0; some = p.take(true) {
		p.work(some)
		p.owner.RunOnLoop(p.deliver)
	}
}

// take begins some tasks. A job ends if there are none.
func (p *Pool) take(job bool) []*task {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := p.tasks[p.begun:min(p.begun+poolBatch, len(p.tasks))]
	p.begun += len(some)
	if len(some) == 0 && job {
		p.jobs--
	}
	return some
}

func (p *Pool) work(some []*task) {
	for _, t := range some {
		if t.work != nil {
			t.work()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range some {
		t.done = true
	}
}

// deliver runs the results of the tasks that are done, up to the first that is not.
func (p *Pool) deliver() {
	for {
		p.mu.Lock()
		if len(p.tasks) == 0 || !p.tasks[0].done {
			p.mu.Unlock()
			return
		}
		t := p.tasks[0]
		p.tasks = p.tasks[1:]
		p.begun = max(p.begun-1, 0)
		p.mu.Unlock()
		t.then()
	}
}
