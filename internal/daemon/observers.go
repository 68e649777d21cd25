package daemon

// Observer is an agent.Observer, or a coordinator.Observer.
type Observer[F, R any] interface {
	Observe(F)
	ObserveRound(R)
}

// Observers passes each fact to every observer that is not nil.
type Observers[F, R any] []Observer[F, R]

// Observe implements Observer.
func (all Observers[F, R]) Observe(fact F) {
	for _, o := range all {
		if o != nil {
			o.Observe(fact)
		}
	}
}

// ObserveRound implements Observer.
func (all Observers[F, R]) ObserveRound(fact R) {
	for _, o := range all {
		if o != nil {
			o.ObserveRound(fact)
		}
	}
}
