package external_test

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// request is a request for local steps that the program must answer.
type request struct {
	path      string // path of the file through which tensors are exchanged
	id, steps int
	in        *bufio.Reader
	say       func(frame)
}

// fitted sends a valid answer in which the fields in change are replaced.
func (r *request) fitted(change frame) {
	f := frame{"frame": "fitted", "id": r.id, "steps": r.steps, "rows": 40, "risk_before": 2, "risk_after": 1}
	maps.Copy(f, change)
	r.say(f)
}

// failed answers that the program refuses the request.
func (r *request) failed(why string) { r.say(frame{"frame": "failed", "id": r.id, "why": why}) }

// misbehave simulates the fault selected by mode instead of training, and reports whether it did. It does nothing once
// the test has created the file named by goodVariable.
func misbehave(mode string, r *request) bool {
	if _, err := os.Stat(os.Getenv(goodVariable)); err == nil {
		return false
	}
	switch does := wrongs[mode]; {
	case does != nil:
		return does(r)
	case damages[mode] != nil:
		damages[mode](r.path)
		r.fitted(nil)
	case answers[mode] != nil:
		r.fitted(answers[mode](r))
	case noise[mode] != "":
		fmt.Print(noise[mode])
		if !strings.HasSuffix(noise[mode], "\n") {
			os.Exit(0)
		}
	default:
		return false
	}
	return true
}

// noise contains invalid frames (messages), by mode. After a frame without a line end, the program exits.
var noise = map[string]string{
	"garbage": "Epoch 1/10: loss 0.3\n", "a long line": strings.Repeat("x", 1<<20) + "\n",
	"half a line": `{"frame": "fit`,
}

// answers contains answers in which one field is wrong, by mode.
var answers = map[string]func(r *request) frame{
	"another answer": func(r *request) frame { return frame{"id": r.id + 1} },
	"too many steps": func(r *request) frame { return frame{"steps": r.steps + 1} },
	"rows gone":      func(*request) frame { return frame{"rows": -1} },
	"no risk":        func(*request) frame { return frame{"risk_after": nil} },
}

// damages contains functions that damage the tensor file before a valid answer is sent, by mode.
var damages = map[string]func(path string){
	"NaN": func(path string) { change(path, func(float32) float32 { return float32(math.NaN()) }) },
	"another header": func(path string) {
		head, _ := os.ReadFile(path)
		copy(head[8:], `{"other"`)
		_ = os.WriteFile(path, head, 0o600)
	},
	"another length": func(path string) { _ = os.Truncate(path, 10) },
	"a pipe in its place": func(path string) {
		_ = os.Remove(path)
		_ = exec.Command("mkfifo", path).Run()
	},
	"a link in its place": func(path string) {
		_ = os.Remove(path)
		_ = os.Symlink("/dev/zero", path)
	},
	"no file": func(path string) { _ = os.Remove(path) },
}

// wrongs contains all other simulated faults, by mode. A function returns true if it has answered the request or the
// request must remain unanswered.
var wrongs = map[string]func(r *request) bool{
	"crash": func(*request) bool { os.Exit(7); return true },
	"crash once": func(*request) bool {
		_ = os.WriteFile(os.Getenv(goodVariable), nil, 0o600)
		os.Exit(7)
		return true
	},
	"failed": func(r *request) bool { r.failed("the GPU is away"); return true },
	"noise": func(*request) bool {
		for range 3000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 1000))
		}
		return false
	},
	"leaves a child": func(*request) bool {
		child := again("holds the line")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		child.SysProcAttr = apart
		start(child)
		os.Exit(0)
		return true
	},
	"children": func(r *request) bool { return withChild(r, again("holds the line")) },
	"escapes":  func(r *request) bool { return withChild(r, again("holds the line", "setsid")) },
	"hog":      hog,
	"forks":    forks,
	"network": func(r *request) bool {
		_, err := net.DialTimeout("tcp", os.Getenv(callVariable), time.Second)
		if err != nil {
			r.failed("no network: " + err.Error())
		}
		return err != nil
	},
	"stops": func(r *request) bool {
		r.say(frame{"frame": "progress", "id": r.id, "steps": 1})
		call()
		if line, _ := r.in.ReadString('\n'); !strings.Contains(line, `"stop"`) {
			os.Exit(9)
		}
		change(r.path, func(float32) float32 { return 0.25 })
		r.fitted(frame{"steps": 2})
		return true
	},
}

// again returns a command that runs this test program in another mode, optionally through the command by.
func again(mode string, by ...string) *exec.Cmd {
	words := append(by, os.Args[0])
	child := exec.Command(words[0], words[1:]...)
	child.Env = append(os.Environ(), modeVariable+"="+mode)
	return child
}

func start(child *exec.Cmd) {
	if err := child.Start(); err != nil {
		panic(err)
	}
}

// withChild starts a child process. After the test has connected, it writes an invalid frame, which ends the block.
func withChild(r *request, child *exec.Cmd) bool {
	start(child)
	_, _ = r.in.ReadString('\n')
	fmt.Println("and now?")
	return true
}

// hog allocates up to 4 GB of memory, or until the process is killed.
func hog(r *request) bool {
	var all [][]byte
	for range 1 << 12 {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		all = append(all, b)
	}
	r.fitted(frame{"rows": len(all)})
	return true
}

// forks starts processes until starting a process fails.
func forks(r *request) bool {
	for n := range 2000 {
		if again("waits").Start() != nil {
			r.failed(fmt.Sprint(n, " processes could be started"))
			return true
		}
	}
	return false
}
