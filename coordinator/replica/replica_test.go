package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// plant is a cluster of simulated machines with a common store, and the history of the machines' commits. A commit
// writes the next number into the replicated folder.
type plant struct {
	t        *testing.T
	engine   *engine
	machines []*machine
	dirs     []string

	mu        sync.Mutex
	leads     map[int]*Leadership // current leadership by machine
	epochs    map[wire.Epoch]int
	committed int // highest number that is known to be committed
	commits   []commit
	tried     map[int]int // number of attempts to commit, by committed number
}

func newPlant(t *testing.T, n int, seed uint64) *plant {
	p := &plant{t: t, engine: newEngine(), leads: map[int]*Leadership{}, epochs: map[wire.Epoch]int{},
		tried: map[int]int{}}
	for i := range n {
		p.machines = append(p.machines, &machine{engine: p.engine, rng: rand.New(rand.NewPCG(seed, uint64(i)))})
		p.dirs = append(p.dirs, t.TempDir())
	}
	return p
}

func (p *plant) folder(i int) ReplicatedFolder {
	return ReplicatedFolder{Disk: store.LocalDisk, Dir: p.dirs[i], IsReplicated: func(name string) bool {
		return !strings.HasPrefix(name, "spool")
	}}
}

type nobody struct{}

func (nobody) Observe(observe.Event) {}

// replica returns a replica that represents a process on machine i.
func (p *plant) replica(i int, instance uint64) *Replica {
	m := p.machines[i]
	return New(Config{Store: m, Folder: p.folder(i), Name: fmt.Sprint("n", i), Instance: instance, Runtime: m,
		Observer: nobody{}})
}

const numberFile = "models/1/number"

// number returns the number that the folder of machine i contains.
func (p *plant) number(i int) int {
	b, err := os.ReadFile(filepath.Join(p.dirs[i], filepath.FromSlash(numberFile)))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	n, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil {
		p.t.Errorf("machine %d: the file of the number: %v, %v", i, err, bad)
	}
	return n
}

// write changes the folder like a coordinator: it overwrites, creates and removes files. Some files are large, so that
// they consist of several pieces.
func (p *plant) write(i, n int) error {
	text := []byte(fmt.Sprint(n, strings.Repeat(" ", (n%4)*3000)))
	err := errors.Join(p.writeModel(i, n), p.writeFile(i, numberFile, text),
		p.writeFile(i, "run.a", fmt.Appendf(nil, "%d", n)))
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(p.dirs[i], "models", "1", fmt.Sprint("model-", n-2)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// writeModel writes the largest file of a commit.
func (p *plant) writeModel(i, n int) error {
	return p.writeFile(i, fmt.Sprint("models/1/model-", n), make([]byte, (n%3)*pieceSize+n))
}

func (p *plant) writeFile(i int, name string, content []byte) error {
	path := filepath.Join(p.dirs[i], filepath.FromSlash(name))
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
}

// live simulates a coordinator process. It waits for leadership and then commits increasing numbers until it is killed
// or loses leadership.
func (p *plant) live(ctx context.Context, i int, instance uint64) {
	for ctx.Err() == nil {
		lead, err := p.replica(i, instance).AwaitLeadership(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.t.Errorf("machine %d stands: %v", i, err)
			}
			return
		}
		p.begin(i, lead)
		for p.commit(lead.Context(), i, lead) {
			if p.machines[i].pauseFor(lead.Context(), 700*time.Millisecond) != nil {
				break
			}
		}
		p.mu.Lock()
		delete(p.leads, i)
		p.mu.Unlock()
		instance += 1000
	}
}

func (m *machine) pauseFor(ctx context.Context, d time.Duration) error {
	w := m.NewWaiter()
	for until := m.Now().Add(d); m.Now().Before(until) && ctx.Err() == nil; {
		w.Wait(ctx, until, nil)
	}
	return ctx.Err()
}

// begin checks that the folder of a new leader contains the last committed number.
func (p *plant) begin(i int, lead *Leadership) {
	n := p.number(i)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads[i] = lead
	if by, is := p.epochs[lead.Epoch()]; is {
		p.t.Errorf("machines %d and %d lead in epoch %d", by, i, lead.Epoch())
	}
	p.epochs[lead.Epoch()] = i
	if lead.endedError() == nil && (n < p.committed || n > p.committed && p.tried[n] == 0) {
		p.t.Errorf("machine %d finds %d, committed is %d", i, n, p.committed)
	}
}

// commit commits the next number to the replicated folder and reports whether the replica still leads.
func (p *plant) commit(ctx context.Context, i int, lead *Leadership) bool {
	n := p.number(i) + 1
	p.mu.Lock()
	p.tried[n]++
	p.mu.Unlock()
	if n%3 == 0 && p.writeModel(i, n) == nil {
		lead.PrepareFolderCommit(ctx)
	}
	err := lead.CommitFolderWrite(ctx, 0, func() error { return p.write(i, n) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.committed = max(p.committed, n)
		lead.mu.Lock()
		// A suspended replica may learn only later that its commit succeeded.
		p.commits = append(p.commits, commit{lead.lastPutClusterState.Epoch, i, n})
		lead.mu.Unlock()
	}
	return err == nil
}

// last returns the highest committed number.
func (p *plant) last() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed
}

// commit is a number that a leader committed, with the leader's epoch and machine.
type commit struct {
	epoch      wire.Epoch
	machine, n int
}

// wantOneLine checks that the committed numbers increase strictly from one epoch to the next.
func (p *plant) wantOneLine() {
	slices.SortStableFunc(p.commits, func(a, b commit) int { return cmp.Compare(a.epoch, b.epoch) })
	for i, c := range p.commits[1:] {
		if before := p.commits[i]; c.n <= before.n {
			p.t.Errorf("%+v was committed after %+v", c, before)
		}
	}
}

// speaking returns the indices of the machines that may publish to devices now.
func (p *plant) speaking() (all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.leads {
		p.machines[i].mu.Lock()
		runs := p.machines[i].stopped == nil
		p.machines[i].mu.Unlock()
		if runs && l.MayPublish() {
			all = append(all, i)
		}
	}
	return all
}

// TestFaults runs three replicas that are killed, suspended and disconnected, while calls of the store are lost,
// unanswered or delayed. At most one replica may publish at a time. No committed number may be lost or repeated, each
// epoch has one leader, and after the faults a leader emerges soon.
func TestFaults(t *testing.T) {
	n := uint64(seeds)
	if testing.Short() {
		n = 8
	}
	for seed := range n {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { faults(t, seed) })
		}) {
			return
		}
	}
}

func faults(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	p := newPlant(t, 3, seed)
	var processes sync.WaitGroup
	kill := make([]context.CancelFunc, len(p.machines))
	before := make([]chan struct{}, len(p.machines)) // closed when the process has ended and released its folder
	start := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		kill[i] = cancel
		instance := rng.Uint64()
		last, ended := before[i], make(chan struct{})
		before[i] = ended
		processes.Go(func() {
			defer close(ended)
			if last != nil {
				<-last
			}
			p.live(ctx, i, instance)
		})
	}
	for i := range p.machines {
		start(i)
	}
	look := func(d time.Duration) {
		for range d / (100 * time.Millisecond) {
			<-time.After(100 * time.Millisecond) // lets time pass on the simulated clock of the synctest bubble
			if all := p.speaking(); len(all) > 1 {
				t.Errorf("machines %v speak", all)
			}
		}
	}
	look(5 * time.Second)
	for range 6 {
		i := rng.IntN(len(p.machines))
		m := p.machines[i]
		switch rng.IntN(4) {
		case 0:
			kill[i]()
			start(i)
		case 1:
			m.stop()
			look(time.Duration(rng.IntN(30)) * time.Second)
			m.goOn()
		case 2:
			m.setCut(true)
			look(time.Duration(rng.IntN(30)) * time.Second)
			m.setCut(false)
		case 3: // the store has no quorum
			for _, m := range p.machines {
				m.setCut(true)
			}
			look(time.Duration(rng.IntN(20)) * time.Second)
			for _, m := range p.machines {
				m.setCut(false)
			}
		}
		look(time.Duration(rng.IntN(20)) * time.Second)
	}
	for _, m := range p.machines {
		m.mu.Lock()
		m.calm = true
		m.mu.Unlock()
	}
	committed := p.last()
	look(TTL + 5*time.Second)
	if after := p.last(); len(p.speaking()) != 1 || after == committed {
		t.Errorf("%d lead, and committed are %d, before %d", len(p.speaking()), after, committed)
	}
	for _, end := range kill {
		end()
	}
	processes.Wait()
	<-time.After(time.Minute) // wait until all delayed requests have been executed
	p.wantPieces()
	p.wantOneLine()
}
