package spec

// ClosestSpelling returns the candidate that is most similar to a misspelled name. It returns "" if every candidate has
// more than one mistake per three characters. It applies fold to all names before it compares them.
func ClosestSpelling(name string, candidates []string, fold func(string) string) string {
	name = fold(name)
	best, bestDistance := "", len(name)/3+1
	for _, c := range candidates {
		if d := editDistance(name, fold(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance returns the optimal string alignment distance between a and b: the minimum number of bytes that must be
// inserted, deleted, replaced or swapped with a neighbouring byte to turn a into b.
func editDistance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
