package host

// ReplaceLatest sends newest to the channel c, whose capacity must be 1, and discards an earlier value that has not
// been received yet. The channel must have only one sender.
func ReplaceLatest[T any](c chan T, newest T) {
	select {
	case <-c:
	default:
	}
	c <- newest
}

// TryReceive receives a value from the channel c without blocking. The result ok is false if no value is pending.
func TryReceive[T any](c <-chan T) (x T, ok bool) {
	select {
	case x, ok = <-c:
	default:
	}
	return x, ok
}
