package host

import "sync"

const (
	// Maximum number of concurrent workers, not counting the owner; fixed, so that simulations are deterministic.
	maxPoolWorkers    = 8
	workItemsPerBatch = 16 // work items that a worker takes at a time
	// Maximum queue length; above it, the owner processes work items too and receives no events meanwhile.
	maxWaitingWorkItems = 1024
)

// OrderedWorkerPool runs short work items in several jobs. The owner goroutine calls their callbacks in the order of
// submission.
type OrderedWorkerPool struct {
	owner *EventLoop

	mu                 sync.Mutex
	workItems          []*workItem // queue, in the order of submission
	begunItemCount     int         // number of items, from the front of the queue, that have been started
	runningWorkerCount int
}

// workItem is work that may run on any goroutine, with a callback for the owner goroutine.
type workItem struct {
	work, onDone func()
	isDone       bool
}

// NewOrderedWorkerPool returns a pool whose callbacks run on the owner.
func NewOrderedWorkerPool(owner *EventLoop) *OrderedWorkerPool {
	return &OrderedWorkerPool{owner: owner}
}

// RunInOrder runs work in a job and then calls then on the owner goroutine, after the callbacks of all earlier items.
// It must be called by the owner. If work is nil and the queue is empty, then is called at once.
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

// takeWorkItems returns the next batch of work items and marks them as started. An empty batch ends the calling worker
// if job is true.
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

// runFinishedCallbacks calls the callbacks of finished items from the front of the queue. It stops at the first
// unfinished item.
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
