package launch

import (
	"os/exec"
	"testing"
)

// TestKeepRunning starts a program that ends at once, waits until it was started three times, and stops it.
func TestKeepRunning(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip("this system has no program that does nothing")
	}
	started := make(chan struct{})
	stop, err := KeepRunning(0, func() (*Process, error) {
		select {
		case started <- struct{}{}:
		default: // the test does not wait for this start
		}
		return Start(exec.Command(program), Options{})
	}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-started
	}
	stop()
}
