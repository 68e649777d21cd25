package external_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net"
	"os"
	"time"
)

// frame is a decoded frame, a message between agentd and an external program.
type frame map[string]any

// asked contains the fields of a frame that agentd has sent.
type asked struct {
	Frame, Tensors, Round string
	ID, First, Last       int
	Block                 int
	StepSize              float64 `json:"step_size"`
	Proximal              float64
	Seed                  uint64
}

// play runs a simulated training program. A local step with the step size μ reduces the distance of each parameter from
// 1 by the share μ. The mode selects a fault to simulate.
func play(mode string, from io.Reader, to io.Writer) {
	if mode == "waits" {
		<-time.After(time.Hour)
		return
	}
	if mode == "holds the line" {
		_, _ = call().Read(make([]byte, 1))
		return
	}
	var path string
	in, out := bufio.NewReader(from), json.NewEncoder(to)
	say := func(f frame) { _ = out.Encode(f) } // Encoding fails if the agent has ended.
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if mode == "says farewell" {
				_ = os.WriteFile(os.Getenv(goodVariable), nil, 0o600)
				call()
			}
			return
		}
		var f asked
		if err := json.Unmarshal(line, &f); err != nil {
			panic(err)
		}
		switch f.Frame {
		case "hello":
			path = f.Tensors
			greet(mode, say)
		case "initial":
			if mode == "no beginning" {
				say(frame{"frame": "failed", "id": f.ID, "why": "no weights"})
				continue
			}
			n := float32(0)
			change(path, func(float32) float32 { n++; return n })
			say(frame{"frame": "initial", "id": f.ID})
		case "rows":
			count(mode, f.ID, say)
		case "predict":
			predict(mode, f.ID, say)
		case "evaluate":
			say(frame{"frame": "evaluated", "id": f.ID, "rows": 10, "risk": 0.5, "metrics": frame{"accuracy": 0.75}})
		case "fit":
			if r := (request{path, f.ID, f.Last - f.First + 1, in, say}); !misbehave(mode, &r) {
				fit(mode, &r, &f)
			}
		}
	}
}

// fit takes the local steps that a request asks for.
func fit(mode string, r *request, f *asked) {
	if r.steps > 1<<30 { // The request asks for too many steps: take one step and wait for the stop request.
		_, _ = r.in.ReadBytes('\n')
		r.steps = 1
	}
	for s := range r.steps {
		if mode == "idle" {
			break
		}
		pull := float32(0)
		// The proximal term is zero at the base model; for all further steps, this program uses the term of the second
		// step.
		if s > 0 {
			pull = float32(f.Proximal) / 10
		}
		change(r.path, func(x float32) float32 { return x + float32(f.StepSize)*(1-x-pull) })
	}
	fitted := frame{"frame": "fitted", "id": r.id, "steps": r.steps, "rows": 40, "metrics": frame{"accuracy": 0.5}}
	if f.First == 1 {
		fitted["risk_before"] = 2
	}
	if f.Last == f.Block {
		fitted["risk_after"] = 1
	}
	if mode == "a step crosses stop" {
		call()
		_, _ = r.in.ReadString('\n') // Read the stop request, which the program answers like any other request.
	}
	r.say(fitted)
}

// count sends the number of rows: 40, plus one row for each byte of the test's file.
func count(mode string, id int, say func(frame)) {
	file, _ := os.ReadFile(os.Getenv(goodVariable)) // The file does not exist at first.
	switch {
	case len(file) == 0:
	case mode == "rows are lost":
		say(frame{"frame": "rows", "id": id, "rows": 0})
		return
	case mode == "rows are away":
		say(frame{"frame": "failed", "id": id, "why": "the disk is away"})
		return
	case mode == "ends when asked":
		os.Exit(4)
	}
	say(frame{"frame": "rows", "id": id, "rows": 40 + len(file)})
}

// predict sends two predictions in a first answer and a third prediction in a second answer, or an error.
func predict(mode string, id int, say func(frame)) {
	at := "2026-03-01T06:00:00Z"
	answer := frame{"frame": "predicted", "id": id, "predictions": []frame{{"time": at, "value": 2.5},
		{"time": at, "value": 1, "probabilities": []float64{0.25, 0.75}, "residual": -0.25}}, "more": true}
	switch {
	case mode == "no value":
		answer["predictions"] = []frame{{"time": at}}
	case mode == "no time":
		answer["predictions"] = []frame{{"time": "yesterday", "value": 2}}
	case predicted:
		answer = frame{"frame": "predicted", "id": id, "predictions": []frame{{"value": 3}}}
	}
	predicted = true
	say(answer)
}

// predicted is true after the program has made predictions for the first time.
var predicted bool

func greet(mode string, say func(frame)) {
	hello := frame{"frame": "hello", "version": 1, "name": "a test", "rows": 40,
		"can": []string{"mixing", "proximal", "evaluate", "initial", "rows", "predict"}}
	switch mode {
	case "counts when it fits":
		hello["can"] = []string{}
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

// call connects the program to the test.
func call() net.Conn {
	conn, err := net.Dial("tcp", os.Getenv(callVariable))
	if err != nil {
		panic(err)
	}
	return conn
}

// change applies a function to each parameter in the file.
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
