package mosquitto_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/wire"
)

// BenchmarkReload measures how long Mosquitto is blocked while it reloads its access rules. It also reports the CPU
// time, which depends less on other programs.
func BenchmarkReload(b *testing.B) {
	for _, devices := range []int{1250, 2500, 5000, 10_000} {
		for _, mix := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/mix=%v", devices, mix), func(b *testing.B) {
				var ids []wire.AgentID
				for i := range devices {
					ids = append(ids, wire.AgentID(fmt.Sprintf("device-%06d", i)))
				}
				text := written(b, "air", ids, mix)
				p := brokers.NewMosquitto(b, mosquitto.PlainConf)
				p.Write(b, "acl", slices.Concat([]byte("user "+acltest.ObserverUser+"\ntopic readwrite #\n"), text))
				p.AddUsers(b, acltest.ObserverUser)
				p.Start(b)
				s := mqtttest.Dial(b, mqtt.Options{URL: "tcp://" + p.Address, ClientID: acltest.ObserverUser,
					Username: acltest.ObserverUser, Password: "password of " + acltest.ObserverUser})
				began := p.CPU()
				for b.Loop() {
					p.Reload(b)
					// Send two messages, because Mosquitto may process the first message before the signal.
					for range 2 {
						mqtttest.SyncWithBroker(b, s)
					}
				}
				b.ReportMetric((p.CPU()-began).Seconds()/float64(b.N), "processor-s/op")
			})
		}
	}
}
