package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUntil checks that a delayed poll does not postpone later polls, and that Until detects a change in the last
// second of its timeout.
func TestUntil(t *testing.T) {
	for name, comes := range map[string]time.Duration{"soon": time.Second, "in the last second": Patience - 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, looks := time.Now(), 0
				Until(t, "it comes", func() bool {
					if looks++; looks%100 == 0 {
						<-time.After(200 * time.Millisecond) // Simulate a busy host.
					}
					return time.Since(began) >= comes
				})
				if late := time.Since(began) - comes; late > 1200*time.Millisecond {
					t.Errorf("seen after %v and %d looks", late, looks)
				}
			})
		})
	}
}
