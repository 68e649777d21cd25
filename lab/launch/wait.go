package launch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// Until polls ok until it returns true. The pause after the n-th call is n times the duration of that call, at most a
// second, so that slow calls do not keep a core busy. After the timeout ok is called once more.
func Until(ctx context.Context, timeout time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timeout after %s", timeout))
	defer cancel()
	for n := time.Duration(1); ; n++ {
		began, last := time.Now(), ctx.Err() != nil
		if ok() {
			return nil
		}
		if last {
			return context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(max(time.Millisecond, n*time.Since(began)), time.Second)):
		}
	}
}

// Listens reports whether a TCP server accepts connections at an address.
func Listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// Answers reports whether an HTTP server responds to a GET request for url with status 200.
func Answers(url string) bool {
	resp, err := http.Get(url)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err == nil && resp.StatusCode == http.StatusOK
}

// FreeAddresses returns n loopback addresses where no server listens. Their ports are outside of the range that the
// system gives to clients: a client that reconnects could otherwise take the port, or even connect to itself.
func FreeAddresses(n int) ([]string, error) {
	draw := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	var all []string
	for tries := 0; len(all) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+draw.IntN(20_000)))
		if err == nil {
			defer l.Close()
			all = append(all, l.Addr().String())
		} else if tries > 100+10*n {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	return all, nil
}

// FindProgram returns the path of a program. It also searches /usr/sbin, where Debian installs daemons and which is
// often missing in PATH.
func FindProgram(name string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", MissingProgram(name)
}

// MissingProgram returns the error for a program that is not installed.
func MissingProgram(name string) error {
	return fmt.Errorf("%s is not installed: install the Debian package with this name", name)
}
