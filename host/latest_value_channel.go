package host

// ReplaceLatest sends newest to a channel with capacity 1 and discards a value that has not been received yet. There
// must be only one sender.
func ReplaceLatest[T any](c chan T, newest T) {
	select {
	case <-c:
	default:
	}
	c <- newest
}

// TryReceive receives a value from c without blocking. ok is false if no value is pending.
func TryReceive[T any](c <-chan T) (x T, ok bool) {
	select {
	case x, ok = <-c:
	default:
	}
	return x, ok
}
