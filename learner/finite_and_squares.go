package learner

// FirstNonFiniteIndex returns the index of the first element that is not finite, or −1. It tests four elements at a
// time.
func FirstNonFiniteIndex[T Float](v []T) int {
	at := 0
	for rest := v; len(rest) >= 4; rest = rest[4:] {
		x := (*[4]T)(rest)
		if (x[0]-x[0])+(x[1]-x[1])+(x[2]-x[2])+(x[3]-x[3]) != 0 { // 0, or not a number
			break
		}
		at += 4
	}
	for i, x := range v[at:] {
		if x-x != 0 {
			return at + i
		}
	}
	return -1
}

// AddSquares returns sum + Σ v_j². The squared norm ‖v‖₂² is the same for every division of v into pieces, because the
// elements are added one after another.
func AddSquares[T Float](sum float64, v []T) float64 {
	for _, x := range v {
		sum += float64(float64(x) * float64(x))
	}
	return sum
}
