package host

import "sync"

const (
	// maxPoolWorkers is the maximum number of concurrent workers, in addition to the event loop. The number does not
	// depend on the machine, so that simulations are deterministic.
	maxPoolWorkers    = 8
	workItemsPerBatch = 16 // number of work items that a worker processes at a time
	// maxWaitingWorkItems is the queue length above which the event loop helps to process work items before it receives
	// more events.
	maxWaitingWorkItems = 1024
)

// OrderedWorkerPool runs short work items concurrently. It calls their callbacks on the event loop in the order of
// submission.
type OrderedWorkerPool struct {
	owner *EventLoop

	mu                 sync.Mutex
	workItems          []*workItem // work items whose callbacks have not finished, in order of submission
	begunItemCount     int         // number of started items at the front of workItems
	runningWorkerCount int
}

// workItem is work that any goroutine may do, with a callback that runs on the event loop.
type workItem struct {
	work, onDone func()
	isDone       bool
}

// NewOrderedWorkerPool returns a pool whose callbacks run on the event loop owner.
func NewOrderedWorkerPool(owner *EventLoop) *OrderedWorkerPool {
	return &OrderedWorkerPool{owner: owner}
}

// RunInOrder runs work in a job and then calls then on the event loop, after the callbacks of all earlier work items.
// If work is nil and the queue is empty, it calls then at once. RunInOrder must be called on the event loop.
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

// runWorker processes work items until all items in the queue have been started.
func (p *OrderedWorkerPool) runWorker() {
	for some := p.takeWorkItems(true); len(some) > 0; some = p.takeWorkItems(true) {
		p.runWorkItems(some)
		p.owner.RunOnLoop(p.runFinishedCallbacks)
	}
}

// takeWorkItems returns the next batch of work items and marks the items as started. The parameter job is true if a job
// calls it. If a job receives no items, the job must end.
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

// runFinishedCallbacks calls the callbacks of finished items in order of submission. It stops at the first unfinished
// item.
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
