package host

// ReplaceLatest puts a value into a channel with capacity 1. A value that has not been received yet is replaced. Only
// one goroutine sends.
func ReplaceLatest[T any](c chan T, newest T) {
	select {
	case <-c:
	default:
	}
	c <- newest
}

// TryReceive receives a value if one waits in the channel.
func TryReceive[T any](c <-chan T) (x T, ok bool) {
	select {
	case x, ok = <-c:
	default:
	}
	return x, ok
}
