package host

import "sync"

const (
	poolJobs    = 8    // beside the owner; a fixed number, so that a simulated host does the same on every machine
	poolBatch   = 16   // tasks that a job takes at a time
	poolWaiting = 1024 // tasks that may wait; with more, the owner works too, and hears no further events meanwhile
)

// TaskPool does short tasks in several jobs beside the owner. Their results run in the owner's goroutine in the order
// in which the tasks were given, whichever is done first.
type TaskPool struct {
	owner *EventLoop

	mu         sync.Mutex
	tasks      []*task // in the order in which they were given
	begunTasks int     // of tasks, from the first one on
	jobs       int
}

// task is a part of a program that needs nothing of its owner, and what the owner does then.
type task struct {
	work, onDone func()
	done         bool
}

// NewTaskPool makes a pool of an owner.
func NewTaskPool(owner *EventLoop) *TaskPool { return &TaskPool{owner: owner} }

// Do has work done beside the owner, and then its result run by the owner, who calls Do. Without work only the order
// is kept: if nothing is under way, the result runs at once.
func (p *TaskPool) Do(work, then func()) {
	p.mu.Lock()
	if work == nil && len(p.tasks) == 0 {
		p.mu.Unlock()
		then()
		return
	}
	p.tasks = append(p.tasks, &task{work: work, onDone: then, done: work == nil})
	begin := p.jobs < poolJobs
	if begin {
		p.jobs++
	}
	full := len(p.tasks) > poolWaiting
	p.mu.Unlock()
	if begin {
		p.owner.Go(p.runWorker)
	}
	if full {
		p.runTasks(p.takeTasks(false))
		p.deliver()
	}
}

// runWorker works until all tasks have begun.
func (p *TaskPool) runWorker() {
	for some := p.takeTasks(true); len(some) > 0; some = p.takeTasks(true) {
		p.runTasks(some)
		p.owner.RunOnLoop(p.deliver)
	}
}

// takeTasks begins some tasks. A job ends if there are none.
func (p *TaskPool) takeTasks(job bool) []*task {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := p.tasks[p.begunTasks:min(p.begunTasks+poolBatch, len(p.tasks))]
	p.begunTasks += len(some)
	if len(some) == 0 && job {
		p.jobs--
	}
	return some
}

func (p *TaskPool) runTasks(some []*task) {
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
func (p *TaskPool) deliver() {
	for {
		p.mu.Lock()
		if len(p.tasks) == 0 || !p.tasks[0].done {
			p.mu.Unlock()
			return
		}
		t := p.tasks[0]
		p.tasks = p.tasks[1:]
		p.begunTasks = max(p.begunTasks-1, 0)
		p.mu.Unlock()
		t.onDone()
	}
}
