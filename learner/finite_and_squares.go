package learner

// FirstNonFiniteIndex returns the index of the first element of v that is infinite or NaN, or −1 if all are finite.
func FirstNonFiniteIndex[T Float](v []T) int {
	at := 0
	for rest := v; len(rest) >= 4; rest = rest[4:] {
		x := (*[4]T)(rest)
		// The sum is 0 if all four elements are finite; otherwise it is NaN.
		if (x[0]-x[0])+(x[1]-x[1])+(x[2]-x[2])+(x[3]-x[3]) != 0 {
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

// AddSquares returns sum + Σ v_j². It adds the elements one after another, so that a vector processed in several parts
// gives the same result.
func AddSquares[T Float](sum float64, v []T) float64 {
	for _, x := range v {
		sum += float64(float64(x) * float64(x))
	}
	return sum
}
