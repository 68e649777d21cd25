package testkit

// Observer is a program's observer that calls a function with each fact, of the program (F) and of its machine (R).
type Observer[F, R any] func(fact any)

// Observe calls the function.
func (o Observer[F, R]) Observe(fact F) { o(fact) }

// ObserveRound calls the function.
func (o Observer[F, R]) ObserveRound(fact R) { o(fact) }

// NotifyObserver gives an observer a fact of either kind. It panics on anything else.
func NotifyObserver[F, R any](o interface {
	Observe(F)
	ObserveRound(R)
}, fact any) {
	if f, ok := fact.(F); ok {
		o.Observe(f)
		return
	}
	o.ObserveRound(fact.(R))
}
