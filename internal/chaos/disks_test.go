//go:build chaos

package chaos

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// small mounts a file system with a size of kib KiB over a folder until the end of the test. small requires root.
func (p *plant) small(folder string, kib int) {
	p.t.Helper()
	if os.Getuid() != 0 {
		p.t.Skip("mounting a small file system takes root")
	}
	dir := p.Path(folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dk,mode=0700", kib),
		"tmpfs", dir).CombinedOutput(); err != nil {
		p.t.Fatalf("mount: %v: %s", err, out)
	}
	p.t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			p.t.Errorf("umount: %v: %s", err, out)
		}
	})
}

// fill uses up all free space of a folder. fill returns a function that frees the space again.
func (p *plant) fill(folder string) (free func()) {
	p.t.Helper()
	path := filepath.Join(p.Path(folder), "ballast")
	f, err := os.Create(path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(block)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			p.t.Fatal(err)
		}
	}
}

func TestDisks(t *testing.T) {
	results.run(t, fault{"full_coordinator", "the coordinator's disk is full for 10 s",
		"rounds wait, and resume by themselves; no data is lost", func(t *testing.T) string {
			l := layout{agents: 4}
			p := newPlant(t, l)
			p.small("state", 4096)
			p.start()
			p.await(3, time.Minute)
			free := p.fill("state")
			p.within(time.Minute, "not ready", func() bool { return p.answers("/-/ready") == 503 })
			if got := p.answers("/-/healthy"); got != 200 {
				t.Errorf("healthy is %d: a restart would not make room", got)
			}
			if text := p.status(); !strings.Contains(text, "no space left") {
				t.Errorf("the status does not name the disk:\n%s", text)
			}
			stood := p.version()
			pause(10 * time.Second)
			if v := p.version(); v > stood+1 {
				t.Errorf("from version %d to %d on a full disk", stood, v)
			}
			free()
			after := p.goOn(2, time.Minute)
			p.within(time.Minute, "ready", func() bool { return p.answers("/-/ready") == 200 })
			p.stop()
			p.checkHistory()
			p.sameAsUndisturbed(l)
			return fmt.Sprintf("two more rounds %s after there is room; bit-equal", after.Round(100*time.Millisecond))
		}})
	results.run(t, fault{"full_agent", "an agent's disk is full",
		"no round waits for it; it participates again when there is room", func(t *testing.T) string {
			p := newPlant(t, layout{agents: 4, quorum: 3, deadline: 20 * time.Second})
			p.small("state-agent-2", 64)
			p.start()
			p.await(3, time.Minute)
			free := p.fill("state-agent-2")
			first := p.goOn(1, time.Minute)
			many := p.goOn(10, time.Minute)
			free()
			p.within(2*time.Minute, "all four in a round", func() bool {
				h := p.history()
				return h[len(h)-1].Accepted == 4
			})
			return fmt.Sprintf("the next round after %s, ten more in %s", first.Round(100*time.Millisecond),
				many.Round(100*time.Millisecond))
		}})
	damages := []string{"deleted", "empty", "truncated", "flipped", "older"}
	results.run(t, fault{"damaged_coordinator",
		"each file of the coordinator's folder is deleted, emptied, truncated, changed by one bit, or replaced by an " +
			"older copy",
		"it continues, or exits with status 78 and the command to run", func(t *testing.T) string {
			return damageEach(t, damages, "state", true)
		}})
	results.run(t, fault{"damaged_agent", "each file of an agent's folder is damaged in the same ways",
		"the agent continues by itself and reports the damage", func(t *testing.T) string {
			return damageEach(t, damages, "state-agent-1", false)
		}})
}

// damageEach stops a daemon, damages one file of its folder in one way, and restarts the daemon. damageEach repeats
// this for each file and each way.
func damageEach(t *testing.T, damages []string, folder string, coordinator bool) string {
	t.Helper()
	p := newPlant(t, layout{agents: 3, quorum: 2, deadline: 20 * time.Second})
	p.start()
	p.await(3, time.Minute)
	older := p.Path("older")
	p.killOne(coordinator)
	p.copyFolder(folder, older)
	p.startOne(coordinator)
	p.goOn(5, time.Minute)
	p.killOne(coordinator)
	tried, stopped := 0, 0
	for _, name := range p.filesOf(folder) {
		for _, how := range damages {
			sound := p.Path("sound")
			p.copyFolder(folder, sound)
			if !p.damage(filepath.Join(p.Path(folder), name), filepath.Join(older, name), how) {
				continue
			}
			tried++
			models := p.models()
			if p.survives(coordinator, name+" "+how) {
				p.killOne(coordinator)
			} else {
				stopped++
			}
			if n := p.models(); n < models-1 { // a damaged model may have been moved aside
				t.Errorf("%s %s: of %d models %d are left", name, how, models, n)
			}
			p.copyFolder(sound, folder)
			p.startOne(coordinator) // start the agents and the coordinator, so that they agree on the restored state
			p.takeOver(coordinator)
			p.killOne(coordinator)
		}
	}
	if stopped > 0 {
		return fmt.Sprintf("%d damages: %d continue, %d exit with 78", tried, tried-stopped, stopped)
	}
	return fmt.Sprintf("%d damages: all continue", tried)
}

// takeOver makes the restored copy of the coordinator's folder the newest state.
func (p *plant) takeOver(coordinator bool) {
	p.t.Helper()
	if !coordinator {
		p.goOn(1, time.Minute)
		return
	}
	select {
	case <-p.lead.Ended: // the coordinator rejects an outdated copy with exit status 78
		p.startLead("--take-over")
	case <-time.After(3 * time.Second):
	}
	p.goOn(1, time.Minute)
}

func (p *plant) killOne(coordinator bool) {
	if coordinator {
		p.lead.Kill()
	} else {
		p.agents[p.ids[1]].Kill()
	}
}

func (p *plant) startOne(coordinator bool) {
	if coordinator {
		p.startLead()
	} else {
		p.startAgent(p.ids[1])
	}
}

// survives starts a daemon with damaged files and reports whether the daemon continues to work. If it does not, it must
// exit with status 78 and name a command that repairs the state.
func (p *plant) survives(coordinator bool, what string) bool {
	p.t.Helper()
	if !coordinator {
		p.startOne(false)
		p.within(time.Minute, what+": the agent has a part in a round", func() bool {
			h := p.history()
			return strings.Contains(p.agents[p.ids[1]].Log(), "result=accepted") && h[len(h)-1].Accepted == 3
		})
		return true
	}
	before := p.version()
	p.lead = p.Daemon(p.t, "coordinator", "coordinator", "--set", "metrics.listen=127.0.0.1:0")
	late := time.After(90 * time.Second)
	for {
		select {
		case <-p.lead.Ended:
			log := p.lead.Log()
			if code := p.lead.Cmd.ProcessState.ExitCode(); code != 78 || !strings.Contains(log, "`coordinator r") {
				p.t.Errorf("%s: exit %d, want 78 and a command to run:\n%s", what, code, log)
			}
			return false
		case <-late:
			p.t.Fatalf("%s: stands still, and has not ended:\n%s\n%s", what, p.status(), p.lead.Log())
		case <-time.After(50 * time.Millisecond):
			if h := p.history(); len(h) > 0 &&
				(p.version() > before || h[len(h)-1].Run != 0 && strings.Contains(p.lead.Log(), "round closed")) {
				return true
			}
		}
	}
}

// filesOf returns the regular files of a folder that the test damages: the newest model with its record, and all files
// that are not models.
func (p *plant) filesOf(folder string) (names []string) {
	p.t.Helper()
	var models []string
	err := filepath.WalkDir(p.Path(folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "lock" {
			return err
		}
		name, err := filepath.Rel(p.Path(folder), path)
		if strings.HasPrefix(name, "models") {
			models = append(models, name)
		} else {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(models)
	return append(names, models[max(0, len(models)-2):]...) // keep only the newest model and its record
}

// damage damages a file in the way that how names. It returns false if the file cannot be damaged in this way.
func (p *plant) damage(path, older, how string) bool {
	p.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return false // the restored folder does not contain the file
	}
	switch how {
	case "deleted":
		err = os.Remove(path)
	case "empty":
		err = os.Truncate(path, 0)
	case "truncated":
		err = os.Truncate(path, int64(len(data)/2))
	case "flipped":
		if len(data) == 0 {
			return false
		}
		data[p.rng.IntN(len(data))] ^= 1 << p.rng.IntN(8)
		err = os.WriteFile(path, data, 0o600)
	case "older":
		old, missing := os.ReadFile(older)
		if missing != nil || bytes.Equal(old, data) {
			return false
		}
		err = os.WriteFile(path, old, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return true
}

// copyFolder replaces the folder to by a copy of the folder from. Relative names refer to the federation's folder.
func (p *plant) copyFolder(from, to string) {
	p.t.Helper()
	abs := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return p.Path(name)
	}
	if err := os.RemoveAll(abs(to)); err != nil {
		p.t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", abs(from), abs(to)).CombinedOutput(); err != nil {
		p.t.Fatalf("cp: %v: %s", err, out)
	}
}

func TestSecondCoordinator(t *testing.T) {
	results.run(t, fault{"two_coordinators", "a second coordinator starts with a copy of the state folder and the key",
		"one exits with status 78 and names the cause; rounds continue with the other", func(t *testing.T) string {
			p := newPlant(t, layout{agents: 4})
			p.start()
			p.await(3, time.Minute)
			p.lead.Kill()
			p.copyFolder("state", "state-copy")
			p.startLead()
			p.goOn(3, time.Minute)
			second := p.Daemon(t, "coordinator", "coordinator", "--set", "state_dir="+p.Path("state-copy"), "--set",
				"metrics.listen=127.0.0.1:0")
			select {
			case <-second.Ended:
			case <-p.lead.Ended:
				t.Fatalf("the one that was ahead ended:\n%s", p.lead.Log())
			case <-time.After(time.Minute):
				t.Fatalf("both go on:\n%s\n%s", p.lead.Log(), second.Log())
			}
			second.Wait(t, 78)
			if !strings.Contains(second.Log(), "another coordinator") {
				t.Errorf("the cause is not named:\n%s", second.Log())
			}
			after := p.goOn(3, time.Minute)
			p.stop()
			p.checkHistory()
			return fmt.Sprintf("the copy exits with 78; three more rounds %s later", after.Round(100*time.Millisecond))
		}})
	results.run(t, fault{"lost_folder", "the coordinator's folder is lost, and an older backup is restored",
		"status 78 with the command; after `coordinator run --take-over` rounds continue", func(t *testing.T) string {
			p := newPlant(t, layout{agents: 4})
			p.start()
			p.await(3, time.Minute)
			p.lead.Kill()
			p.copyFolder("state", "backup")
			p.startLead()
			p.goOn(5, time.Minute)
			p.lead.Stop(t, syscall.SIGTERM, 0)
			p.copyFolder("backup", "state")
			p.startLead()
			p.lead.Wait(t, 78)
			if !strings.Contains(p.lead.Log(), "--take-over") {
				t.Errorf("no command is named:\n%s", p.lead.Log())
			}
			p.startLead("--take-over")
			after := p.goOn(3, time.Minute)
			p.stop()
			return fmt.Sprintf("three more rounds %s after the take-over", after.Round(100*time.Millisecond))
		}})
}
