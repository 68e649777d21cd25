package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/fedmesh/fedmesh/spec"
)

// Partition is the method by which the rows of a table are distributed to the agents.
type Partition string

// Ways to distribute rows.
const (
	PartitionColumn  Partition = "column"  // a column names the agent of each row
	PartitionUniform Partition = "uniform" // rows are shuffled, so that all agents have the same distribution
	// PartitionDirichlet draws the agents' shares of each class from a Dirichlet distribution.
	PartitionDirichlet Partition = "dirichlet"
	// rows are sorted by target and cut into pieces; each agent receives a few pieces.
	PartitionShards Partition = "shards"
)

// deal returns the row numbers of each of the K agents. Each agent has at least one row. y contains the targets of the
// rows. classes is the number of classes, or 0 for numeric targets.
func (s *Spec) deal(y []float64, classes, agents int, rng *rand.Rand) ([][]int, error) {
	if len(y) < agents {
		return nil, &spec.FieldError{Key: "agents",
			Problem: fmt.Sprintf("is %d, but the table has only %d rows: every agent requires a row", agents, len(y))}
	}
	switch s.Partition {
	case PartitionUniform:
		return cut(rng.Perm(len(y)), agents), nil
	case PartitionShards:
		return dealShards(y, agents, s.Shards, rng)
	}
	return dealDirichlet(y, classes, agents, s.Alpha, rng)
}

// cut splits a list into n parts whose lengths differ by at most one.
func cut(list []int, n int) [][]int {
	parts := make([][]int, n)
	for k := range parts {
		parts[k] = list[k*len(list)/n : (k+1)*len(list)/n]
	}
	return parts
}

// byTarget returns the row numbers sorted by target. Rows with equal targets are in random order.
func byTarget(y []float64, rng *rand.Rand) []int {
	rows := rng.Perm(len(y)) // random order for rows with equal targets
	slices.SortStableFunc(rows, func(a, b int) int {
		switch {
		case y[a] < y[b]:
			return -1
		case y[a] > y[b]:
			return 1
		}
		return 0
	})
	return rows
}

func dealShards(y []float64, agents, shards int, rng *rand.Rand) ([][]int, error) {
	if len(y) < agents*shards {
		return nil, &spec.FieldError{Key: "data.shards",
			Problem: fmt.Sprintf("is %d, but %d rows provide each of %d agents with at most %d shards", shards, len(y),
				agents,
				len(y)/agents)}
	}
	pieces := cut(byTarget(y, rng), agents*shards)
	parts := make([][]int, agents)
	for i, p := range rng.Perm(len(pieces)) {
		parts[i%agents] = append(parts[i%agents], pieces[p]...)
	}
	return parts, nil
}

// bins is the number of equally large groups into which numeric targets are sorted.
const bins = 10

// dealDirichlet draws, for each class, the agents' shares q ~ Dirichlet(α, …, α) as normalised Gamma(α) variables. It
// repeats the draw until every agent has a row.
func dealDirichlet(y []float64, classes, agents int, alpha float64, rng *rand.Rand) ([][]int, error) {
	const tries = 1000
	members := cut(byTarget(y, rng), bins)
	if classes > 0 {
		members = make([][]int, 0, classes)
		for _, i := range byTarget(y, rng) {
			if n := len(members); n == 0 || y[members[n-1][0]] != y[i] {
				members = append(members, nil)
			}
			members[len(members)-1] = append(members[len(members)-1], i)
		}
	}
	gamma := distuv.Gamma{Alpha: alpha, Beta: 1, Src: rng}
	shares := make([]float64, agents)
	for range tries {
		parts := make([][]int, agents)
		for _, rows := range members {
			total := 0.0
			for k := range shares {
				shares[k] = gamma.Rand()
				total += shares[k]
			}
			if total == 0 {
				// all shares are zero after rounding, so no row of the class would be distributed; the draw is repeated
				total = math.Inf(1)
			}
			from, sum := 0, 0.0
			for k, q := range shares {
				sum += q
				to := int(math.Round(sum / total * float64(len(rows))))
				parts[k] = append(parts[k], rows[from:to]...)
				from = to
			}
		}
		dealt, empty := 0, false
		for _, p := range parts {
			dealt += len(p)
			empty = empty || len(p) == 0
		}
		if dealt == len(y) && !empty {
			return parts, nil
		}
	}
	return nil, &spec.FieldError{Key: "data.alpha",
		Problem: fmt.Sprintf("is %v, but in each of %d draws some of the %d agents received no rows: increase alpha "+
			"or reduce the number of agents",
			alpha, tries, agents)}
}
