package launch

import (
	"os/exec"
	"testing"
)

// TestKeepRunning checks that a program that ends at once is restarted at least twice and can then be stopped.
func TestKeepRunning(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip("this system has no program that does nothing")
	}
	started := make(chan struct{})
	stop, err := KeepRunning(0, func() (*Process, error) {
		select {
		case started <- struct{}{}:
		default: // The test ignores all further starts.
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
