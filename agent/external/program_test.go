package external_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// frame is any frame, as a program sees it.
type frame map[string]any

// play is a program that trains: with each step of μ it brings each parameter the share μ nearer to 1. mode says what
// it does wrong.
func play(mode string) {
	if mode == "waits" {
		<-time.After(time.Hour)
		return
	}
	if mode == "holds the line" {
		_, _ = call().Read(make([]byte, 1))
		return
	}
	var path string
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	say := func(f frame) { _ = out.Encode(f) } // the agent has gone if that fails
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if mode == "says farewell" {
				_ = os.WriteFile(os.Getenv(goodVariable), nil, 0o600)
				call()
			}
			return
		}
		var f struct {
			Frame, Tensors, Round string
			ID, First, Last       int
			Block                 int
			StepSize              float64 `json:"step_size"`
			Proximal              float64
			Seed                  uint64
		}
		if err := json.Unmarshal(line, &f); err != nil {
			panic(err)
		}
		switch f.Frame {
		case "hello":
			path = f.Tensors
			greet(mode, say)
		case "evaluate":
			say(frame{"frame": "evaluated", "id": f.ID, "rows": 10, "risk": 0.5, "metrics": frame{"accuracy": 0.75}})
		case "fit":
			steps := f.Last - f.First + 1
			if wrong := misbehave(mode, path, f.ID, steps, in, say); wrong {
				continue
			}
			if steps > 1<<30 { // nobody has the time: it takes one, and waits for stop
				_, _ = in.ReadBytes('\n')
				steps = 1
			}
			for s := range steps {
				if mode == "idle" {
					break
				}
				pull := float32(0)
				if s > 0 { // at the base there is none; this program takes the second step's share for all
					pull = float32(f.Proximal) / 10
				}
				change(path, func(x float32) float32 { return x + float32(f.StepSize)*(1-x-pull) })
			}
			fitted := frame{"frame": "fitted", "id": f.ID, "steps": steps, "rows": 40,
				"metrics": frame{"accuracy": 0.5}}
			if f.First == 1 {
				fitted["risk_before"] = 2
			}
			if f.Last == f.Block {
				fitted["risk_after"] = 1
			}
			if mode == "a step crosses stop" {
				call()
				_, _ = in.ReadString('\n') // stop, which it answers as any other
			}
			say(fitted)
		}
	}
}

func greet(mode string, say func(frame)) {
	hello := frame{"frame": "hello", "version": 1, "name": "a test", "rows": 40,
		"can": []string{"mixing", "proximal", "evaluate"}}
	switch mode {
	case "no rows":
		hello["rows"] = 0
	case "another version":
		hello["version"] = 2
	case "cannot mix":
		hello["can"] = []string{}
	case "not yet":
		hello = frame{"frame": "failed", "why": "the camera is away"}
	case "no hello":
		os.Exit(3)
	case "never begins":
		conn := call()
		go func() { _, _ = conn.Read(make([]byte, 1)) }()
		for {
			say(frame{"frame": "progress"})
		}
	case "slow":
		say(frame{"frame": "progress"})
	}
	say(hello)
}

// misbehave does what mode says in the place of training, and reports whether it did.
func misbehave(mode, path string, id, steps int, in *bufio.Reader, say func(frame)) bool {
	fitted := func(change frame) {
		f := frame{"frame": "fitted", "id": id, "steps": steps, "rows": 40, "risk_before": 2, "risk_after": 1}
		for k, v := range change {
			f[k] = v
		}
		say(f)
	}
	good := os.Getenv(goodVariable)
	if _, err := os.Stat(good); err == nil {
		return false
	}
	switch mode {
	case "crash once":
		_ = os.WriteFile(good, nil, 0o600)
		os.Exit(7)
	case "crash":
		os.Exit(7)
	case "garbage":
		fmt.Println("Epoch 1/10: loss 0.3")
	case "a long line":
		fmt.Println(strings.Repeat("x", 1<<20))
	case "half a line":
		fmt.Print(`{"frame": "fit`)
		os.Exit(0)
	case "another answer":
		fitted(frame{"id": id + 1})
	case "too many steps":
		fitted(frame{"steps": steps + 1})
	case "rows gone":
		fitted(frame{"rows": -1})
	case "no risk":
		fitted(frame{"risk_after": nil})
	case "NaN":
		change(path, func(float32) float32 { return float32(math.NaN()) })
		fitted(nil)
	case "another header":
		head, _ := os.ReadFile(path)
		copy(head[8:], `{"other"`)
		_ = os.WriteFile(path, head, 0o600)
		fitted(nil)
	case "another length":
		_ = os.Truncate(path, 10)
		fitted(nil)
	case "a pipe in its place":
		_ = os.Remove(path)
		_ = exec.Command("mkfifo", path).Run()
		fitted(nil)
	case "a link in its place":
		_ = os.Remove(path)
		_ = os.Symlink("/dev/zero", path)
		fitted(nil)
	case "no file":
		_ = os.Remove(path)
		fitted(nil)
	case "failed":
		say(frame{"frame": "failed", "id": id, "why": "the GPU is away"})
	case "noise":
		for range 3000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 1000))
		}
		return false
	case "leaves a child":
		child := exec.Command(os.Args[0])
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		child.SysProcAttr = apart
		child.Env = append(os.Environ(), modeVariable+"=holds the line")
		if err := child.Start(); err != nil {
			panic(err)
		}
		os.Exit(0)
	case "children", "escapes":
		child := exec.Command(os.Args[0])
		if mode == "escapes" {
			child = exec.Command("setsid", os.Args[0])
		}
		child.Env = append(os.Environ(), modeVariable+"=holds the line")
		if err := child.Start(); err != nil {
			panic(err)
		}
		_, _ = in.ReadString('\n') // the test has its call, and has the block end
		fmt.Println("and now?")
	case "hog":
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
			if len(all) > 1<<12 {
				fitted(nil) // 4 GB are not bounded
				return true
			}
		}
	case "forks":
		n := 0
		for ; n < 2000; n++ {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), modeVariable+"=waits")
			if child.Start() != nil {
				break
			}
		}
		if n < 2000 {
			say(frame{"frame": "failed", "id": id, "why": fmt.Sprint(n, " processes could be started")})
			return true
		}
		return false
	case "network":
		if _, err := net.DialTimeout("tcp", os.Getenv(callVariable), time.Second); err != nil {
			say(frame{"frame": "failed", "id": id, "why": "no network: " + err.Error()})
			return true
		}
		return false
	case "stops":
		say(frame{"frame": "progress", "id": id, "steps": 1})
		call()
		line, _ := in.ReadString('\n')
		if !strings.Contains(line, `"stop"`) {
			os.Exit(9)
		}
		change(path, func(float32) float32 { return 0.25 })
		fitted(frame{"steps": 2})
	default:
		return false
	}
	return true
}

// call calls the test.
func call() net.Conn {
	conn, err := net.Dial("tcp", os.Getenv(callVariable))
	if err != nil {
		panic(err)
	}
	return conn
}

// change changes each parameter of the file in place.
func change(path string, how func(float32) float32) {
	file, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	at := 8 + binary.LittleEndian.Uint64(file)
	for p := file[at:]; len(p) > 0; p = p[4:] {
		x := math.Float32frombits(binary.LittleEndian.Uint32(p))
		binary.LittleEndian.PutUint32(p, math.Float32bits(how(x)))
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(file, 0)
	}
	if err != nil {
		panic(err)
	}
	_ = f.Close()
}
