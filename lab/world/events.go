package world

import (
	"container/heap"
	"time"
)

// event is a function that is called at a given simulated time.
type event struct {
	at  time.Time
	seq uint64 // order of events with equal times
	do  func()
}

// agenda is a heap of events, ordered by time.
type agenda struct {
	seq  uint64
	heap []event
}

func (a *agenda) Len() int { return len(a.heap) }
func (a *agenda) Less(i, j int) bool {
	x, y := &a.heap[i], &a.heap[j]
	return x.at.Before(y.at) || x.at.Equal(y.at) && x.seq < y.seq
}
func (a *agenda) Swap(i, j int) { a.heap[i], a.heap[j] = a.heap[j], a.heap[i] }
func (a *agenda) Push(x any)    { a.heap = append(a.heap, x.(event)) }
func (a *agenda) Pop() any {
	last := a.heap[len(a.heap)-1]
	a.heap[len(a.heap)-1].do = nil
	a.heap = a.heap[:len(a.heap)-1]
	return last
}

func (a *agenda) add(at time.Time, do func()) {
	a.seq++
	heap.Push(a, event{at, a.seq, do})
}

func (a *agenda) next() event { return heap.Pop(a).(event) }
