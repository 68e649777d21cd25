package d2d

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// blockScript runs the commands of a script on a MixingBlock.
type blockScript struct {
	t   *testing.T
	b   *MixingBlock[float32]
	out strings.Builder
	now time.Duration
}

// TestBlockTranscripts runs every script in testdata/block and compares the effects with the expected ones. The lines
// of a script are comments (#), commands, optionally after "at TIME", and indented expected effects.
//
//	new KEY=N…          every, within, steps (of mixing; 0 means no end), neighbours, join (s); times are 1 s,
//	                    SaveInterval is 10 m
//	start stepped wanted bar free stop tick
//	snapshot ID Q       neighbour ID sends its snapshot q
func TestBlockTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/block/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata/block: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &blockScript{t: t}
			for line := range strings.Lines(string(script)) {
				s.play(strings.TrimSuffix(line, "\n"))
			}
			switch got := s.out.String(); {
			case got == string(script):
			case *update:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s: the transcript differs (go test ./d2d -run Transcripts -update rewrites it), it is "+
					"now:\n%s", file, got)
			}
		})
	}
}

func (s *blockScript) play(line string) {
	if strings.HasPrefix(line, "    ") {
		return
	}
	fmt.Fprintln(&s.out, line)
	words := strings.Fields(line)
	if len(words) == 0 || words[0][0] == '#' {
		return
	}
	if words[0] == "at" {
		at, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now, words = at, words[2:]
	}
	if words[0] == "new" {
		s.begin(words[1:])
		return
	}
	for _, e := range s.b.Step(time.Unix(0, 0).Add(s.now), s.event(words)) {
		fmt.Fprintf(&s.out, "    %s\n", s.show(e))
	}
	if at, ok := s.b.Deadline(); ok {
		fmt.Fprintf(&s.out, "    (wake at %s)\n", at.Sub(time.Unix(0, 0)))
	} else if s.b.IsResting() {
		fmt.Fprintln(&s.out, "    (rest)")
	} else if s.b.HasFinished() {
		fmt.Fprintln(&s.out, "    (over)")
	}
}

func (s *blockScript) number(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *blockScript) begin(words []string) {
	opts := map[string]uint64{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		opts[key] = s.number(value)
	}
	mixing := MessageExchangeConfig[float32]{Self: "a0", Run: 1, Round: 1, MixingConfig: MixingConfig[float32]{
		Boot: 1, BlockSteps: opts["steps"], SnapshotTimeout: time.Second, MaxSilentWaits: 3,
		RepeatInterval: time.Second,
		DrainTimeout:   time.Second,
		JoinTimeout:    time.Duration(opts["join"]) * time.Second,
	}}
	for i := range opts["neighbours"] {
		mixing.Neighbors = append(mixing.Neighbors,
			Neighbor{ID: wire.AgentID(fmt.Sprint("a", i+1)), MixingWeight: 0.25, Boot: 1})
	}
	var err error
	s.now = 0
	s.b, err = NewMixingBlock(MixingBlockConfig{StepsPerMixing: opts["every"], StepsUntilAnswer: opts["within"],
		SaveInterval: 10 * time.Minute}, mixing,
		[]float32{1})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *blockScript) event(words []string) Event {
	switch words[0] {
	case "start":
		return Start{}
	case "stepped":
		return LocalStepTaken{}
	case "wanted":
		return RoundAnswerRequested{}
	case "bar", "free":
		return RestRequirementChanged{words[0] == "bar"}
	case "stop":
		return StopBlock{}
	case "tick":
		return Tick{}
	case "snapshot":
		id, q := wire.AgentID(words[1]), s.number(words[2])
		head := wire.SnapshotPartHeader{Step: q, PartCount: 1,
			Receivers: []wire.SnapshotReceiver{{PeerInstance: wire.PeerInstance{ID: "a0", BootEpoch: 1},
				SnapshotSeq: q}}}
		m := wire.AppendSnapshotPartHeader(nil, wire.PeerMessageHeader{Type: wire.PeerSnapshot, Run: 1, Round: 1,
			Sender: id, SenderBootEpoch: 1},
			&head)
		return MessageReceived{wire.AppendVector(m, []float32{2})}
	}
	s.t.Fatalf("no such command: %s", words[0])
	return nil
}

func (s *blockScript) show(e Effect) string {
	switch e := e.(type) {
	case PublishMessage:
		return fmt.Sprintf("publish part %s", e.TopicPart)
	case TakeLocalSteps:
		return fmt.Sprintf("take local steps %d to %d", e.First, e.Last)
	case BlockStarted:
		return fmt.Sprintf("began, joined=%t", e.JoinedFromSnapshots)
	case AnswerRound:
		return fmt.Sprintf("answer: %d mixing steps, %d flows, %d waits", e.Stats.LocalSteps, e.Stats.AppliedFlows,
			e.Stats.TimedOutWaits)
	case SaveBlock:
		return "save"
	}
	s.t.Fatalf("effect %T", e)
	return ""
}
