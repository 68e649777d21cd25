package e2e

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	shipped "github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/store"
)

// side is one of two federations that share a broker and whose agents have the same names.
type side struct {
	*federation
	name   string
	column int // index of the column that the agents of this federation learn to copy
	lead   *testkit.Process
	all    []*testkit.Process
}

var sideAgents = []string{"one", "two"}

func newSide(t *testing.T, name, url string, column int) *side {
	t.Helper()
	s := &side{federation: newFederation(t, url), name: name, column: column}
	var rows strings.Builder
	rows.WriteString("a,b,y\n")
	for i := range 40 {
		x := []int{i%7 - 3, i%11 - 5}
		fmt.Fprintf(&rows, "%d,%d,%d\n", x[0], x[1], x[column])
	}
	list := s.AddAgents(t, rows.String(), sideAgents...)
	s.ConfigureCoordinator(t,
		"{name: plane, features: [a, b], target: y, standardize: false, steps: {budget: 100ms, max: 20}, "+
			"step_size: {constant: 0.05}}", list,
		`{participants: 2, quorum: 2, rounds: 3, deadline: 30s, gather: {target: 2, minimum: 2, within: 20s, spread: 10ms}}`)
	return s
}

// rules returns the access rules that the coordinator generates for Mosquitto.
func (s *side) rules(t *testing.T) string {
	return programs.MustRun(t, "coordinator", "acl", "--config", s.Path("coordinator.yaml"), "--set",
		"federation="+s.name)
}

func (s *side) users() []string {
	users := []string{s.name + "-coordinator"}
	for _, id := range sideAgents {
		users = append(users, s.name+"-"+id)
	}
	return users
}

// start starts all programs with their credentials.
func (s *side) start(t *testing.T, proof func(user string) []string) {
	for _, user := range s.users() {
		id := strings.TrimPrefix(user, s.name+"-")
		program := "agentd"
		if id == "coordinator" {
			program = "coordinator"
		}
		args := []string{"--set", "federation=" + s.name, "--set", "broker.url=" + s.Broker}
		for _, p := range proof(user) {
			args = append(args, "--set", p)
		}
		p := s.Daemon(t, program, id, args...)
		s.all = append(s.all, p)
		if id == "coordinator" {
			s.lead = p
		}
	}
}

// check checks that the federation has learned a model from its own agents only.
func (s *side) check(t *testing.T) {
	t.Helper()
	s.lead.Await(t, "run finished version=3")
	for _, p := range s.all {
		p.Stop(t, syscall.SIGTERM, 0)
		for line := range strings.Lines(p.Log()) {
			if !strings.Contains(line, " INFO ") && !strings.Contains(line, "round") {
				t.Errorf("%s of %s: %s", p.Name, s.name, line)
			}
		}
	}
	out := s.Path("model.safetensors")
	programs.MustRun(t, "coordinator", "model", "export", "--state-dir", s.Path("state"), "--out", out)
	file, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := store.DecodeSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tensors, func(x store.Tensor) bool { return x.Name == "layer0.weight" })
	weight := func(k int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(tensors[i].Data[4*k:])) }
	if own, other := weight(s.column), weight(1-s.column); own-other < 0.3 {
		t.Errorf("%s learned the weights %v and %v, the first for what is to be copied", s.name, own, other)
	}
}

// TestTwoFederations runs two federations on one Mosquitto with the configuration files that we ship. The agents and
// coordinators of both federations have the same names. The test runs once with passwords and once with certificates.
func TestTwoFederations(t *testing.T) {
	t.Run("passwords", func(t *testing.T) {
		t.Parallel()
		m := brokers.NewMosquitto(t, shipped.PlainConf)
		air, land := newSide(t, "air", "tcp://"+m.Address, 0), newSide(t, "land", "tcp://"+m.Address, 1)
		m.AddUsers(t, append(air.users(), land.users()...)...)
		sideBySide(t, m, air, land, func(user string) []string {
			return []string{"broker.password=password of " +
				user}
		})
	})
	t.Run("certificates", func(t *testing.T) {
		t.Parallel()
		m := brokers.NewMosquitto(t, shipped.Conf)
		authority := acltest.NewAuthority(t)
		m.AddCertificates(t, authority)
		air, land := newSide(t, "air", "tls://"+m.Address, 0), newSide(t, "land", "tls://"+m.Address, 1)
		ca := air.Write(t, "ca.crt", block("CERTIFICATE", authority.Certificate.Raw))
		sideBySide(t, m, air, land, func(user string) []string {
			c := authority.Issue(t, user)
			key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
			if err != nil {
				t.Fatal(err)
			}
			return []string{
				"broker.ca_file=" + ca, "broker.cert_file=" +
					air.Write(t, user+".crt", block("CERTIFICATE", c.Certificate[0])),
				"broker.key_file=" + air.Write(t, user+".pem", block("PRIVATE KEY", key)),
			}
		})
	})
}

func sideBySide(t *testing.T, m *brokers.Mosquitto, air, land *side, proof func(user string) []string) {
	t.Helper()
	m.Write(t, "acl", []byte(air.rules(t)+land.rules(t)))
	m.Start(t)
	air.start(t, proof)
	land.start(t, proof)
	air.check(t)
	land.check(t)
}

func block(typ string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}))
}
