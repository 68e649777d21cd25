package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent"
)

// slowness is the value of --slow.
type slowness struct{ fraction, factor float64 }

// String implements pflag.Value.
func (s *slowness) String() string {
	if s.factor == 0 {
		return ""
	}
	return fmt.Sprintf("%v:%v", s.fraction, s.factor)
}

// Type implements pflag.Value.
func (s *slowness) Type() string { return "FRACTION:FACTOR" }

// Set implements pflag.Value.
func (s *slowness) Set(text string) error {
	fraction, factor, _ := strings.Cut(text, ":")
	var errs [2]error
	s.fraction, errs[0] = strconv.ParseFloat(fraction, 64)
	s.factor, errs[1] = strconv.ParseFloat(factor, 64)
	if errors.Join(errs[:]...) != nil || !(s.fraction >= 0 && s.fraction <= 1 && s.factor >= 1 && s.factor <= 1e6) {
		return errors.New("want FRACTION:FACTOR, such as 0.3:10 for three of ten agents that are ten times as slow")
	}
	return nil
}

// draw returns a source of chance of its own for each purpose.
func (f *fleet) draw(what string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

// mischief makes an agent vanish before it trains, or sleep past the deadline
// before it sends.
func (f *fleet) mischief(i int) func(agent.Moment, time.Time) time.Duration {
	if f.drop == 0 && f.late == 0 {
		return nil
	}
	rng := f.draw(fmt.Sprintf("mischief of %d", i))
	return func(m agent.Moment, deadline time.Time) time.Duration {
		chance := f.drop
		if m == agent.BeforeSubmitting {
			chance = f.late
		}
		if rng.Float64() >= chance {
			return 0
		}
		return time.Until(deadline) + time.Second
	}
}
