package mosquitto_test

import (
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt/broker/acl/acltest"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// systemdDescriptors is what a service may have open unless its unit says otherwise.
const systemdDescriptors = 1024

// idle is how many connections that say nothing hold all of these.
const idle = 1015

// Connections that say nothing do not keep the devices out: with our drop-in, but they do without it.
func TestIdleConnections(t *testing.T) {
	limit := regexp.MustCompile(`(?m)^LimitNOFILE=([0-9]+)$`).FindSubmatch(mosquitto.DropIn)
	if limit == nil {
		t.Fatalf("no limit in\n%s", mosquitto.DropIn)
	}
	raised, err := strconv.Atoi(string(limit[1]))
	if err != nil {
		t.Fatal(err)
	}
	for descriptors, comesIn := range map[int]bool{systemdDescriptors: false, raised: true} {
		t.Run(strconv.Itoa(descriptors), func(t *testing.T) {
			p, a, with := secured(t, everyone(t))
			p.Descriptors = descriptors
			p.Start(t)
			for range idle {
				conn, err := net.Dial("tcp", p.Address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			o := with(a.Issue(t, "air-press"))
			o.ConnectTimeout = 2 * time.Second
			failure, s := acltest.Attempt(t, o)
			if s != nil {
				_ = s.Close()
			}
			if (s != nil) != comesIn {
				t.Errorf("beside %d idle connections a device comes in: %v (%s), want %v", idle, s != nil, failure, comesIn)
			}
		})
	}
}
