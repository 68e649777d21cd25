package testkit

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// NoisyPlane returns n CSV rows of the function y = 2a − b + 1 plus noise. The noise depends on the number agent, so
// that each agent has different data.
func NoisyPlane(n, agent int) string {
	rng := rand.New(rand.NewPCG(uint64(agent), 5))
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for range n {
		x, z := 3*rng.NormFloat64(), 5*rng.NormFloat64()
		fmt.Fprintf(&b, "%.4f,%.4f,%.4f\n", x, z, 2*x-z+1+0.5*rng.NormFloat64())
	}
	return b.String()
}
