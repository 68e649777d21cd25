package host

import "sync"

const (
	// Beside the owner; a fixed number, so that a simulated host does the same on every machine.
	maxPoolWorkers    = 8
	workItemsPerBatch = 16 // tasks that a job takes at a time
	// Tasks that may wait; with more, the owner works too, and hears no further events meanwhile.
	maxWaitingWorkItems = 1024
)

// OrderedWorkerPool does short tasks in several jobs beside the owner. Their results run in the owner's goroutine in
// the order in which the tasks were given, whichever is done first.
type OrderedWorkerPool struct {
	owner *EventLoop

	mu                 sync.Mutex
	workItems          []*workItem // in the order in which they were given
	begunItemCount     int         // of tasks, from the first one on
	runningWorkerCount int
}

// workItem is a part of a program that needs nothing of its owner, and what the owner does then.
type workItem struct {
	work, onDone func()
	isDone       bool
}

// NewOrderedWorkerPool makes a pool of an owner.
func NewOrderedWorkerPool(owner *EventLoop) *OrderedWorkerPool {
	return &OrderedWorkerPool{owner: owner}
}

// RunInOrder has work done beside the owner, and then its result run by the owner, who calls RunInOrder. Without work
// only the order is kept: if nothing is under way, the result runs at once.
func (p *OrderedWorkerPool) RunInOrder(work, then func()) {
	p.mu.Lock()
	if work == nil && len(p.workItems) == 0 {
		p.mu.Unlock()
		then()
		return
	}
	p.workItems = append(p.workItems, &workItem{work: work, onDone: then, isDone: work == nil})
	begin := p.runningWorkerCount < maxPoolWorkers
	if begin {
		p.runningWorkerCount++
	}
	full := len(p.workItems) > maxWaitingWorkItems
	p.mu.Unlock()
	if begin {
		p.owner.Go(p.runWorker)
	}
	if full {
		p.runWorkItems(p.takeWorkItems(false))
		p.runFinishedCallbacks()
	}
}

// runWorker works until all tasks have begun.
func (p *OrderedWorkerPool) runWorker() {
	for some := p.takeWorkItems(true); len(some) > 0; some = p.takeWorkItems(true) {
		p.runWorkItems(some)
		p.owner.RunOnLoop(p.runFinishedCallbacks)
	}
}

// takeWorkItems begins some tasks. A job ends if there are none.
func (p *OrderedWorkerPool) takeWorkItems(job bool) []*workItem {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := p.workItems[p.begunItemCount:min(p.begunItemCount+workItemsPerBatch, len(p.workItems))]
	p.begunItemCount += len(some)
	if len(some) == 0 && job {
		p.runningWorkerCount--
	}
	return some
}

func (p *OrderedWorkerPool) runWorkItems(some []*workItem) {
	for _, t := range some {
		if t.work != nil {
			t.work()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range some {
		t.isDone = true
	}
}

// runFinishedCallbacks runs the results of the tasks that are done, up to the first that is not.
func (p *OrderedWorkerPool) runFinishedCallbacks() {
	for {
		p.mu.Lock()
		if len(p.workItems) == 0 || !p.workItems[0].isDone {
			p.mu.Unlock()
			return
		}
		t := p.workItems[0]
		p.workItems = p.workItems[1:]
		p.begunItemCount = max(p.begunItemCount-1, 0)
		p.mu.Unlock()
		t.onDone()
	}
}
