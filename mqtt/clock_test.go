package mqtt_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// TestTime checks that the broker's certificate must be valid at the time that Options.CertificateCheckTime returns,
// also over WebSocket.
func TestTime(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	certificate, pool := selfSigned(t) // the certificate is valid from an hour ago until an hour from now
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	plain := strings.Replace(startProxy(t, server.URL(), config).url(), "tcp://", "mqtts://", 1)
	web := strings.Replace(startProxy(t, startWebsocket(t), config).url(), "tcp://", "wss://", 1)
	for _, url := range []string{plain, web} {
		for _, tt := range []struct {
			now  time.Time
			good bool
		}{
			{time.Unix(12, 0), false}, {time.Now(), true}, {time.Now().Add(2 * time.Hour), false},
		} {
			failed := make(chan error, 10)
			s := dialing(t, mqtt.Options{URL: url, ClientID: "s", TLS: &tls.Config{RootCAs: pool},
				CertificateCheckTime: func() time.Time { return tt.now }, MaxReconnectDelay: time.Hour,
				OnConnectFailure: func(err error) { failed <- err }})
			if tt.good {
				mqtttest.WantUp(t, s)
			} else if err := <-failed; !strings.Contains(err.Error(), "has expired or is not yet valid") {
				t.Errorf("%s at %s: %v", url, tt.now.UTC(), err)
			}
			_ = s.Close()
		}
	}
}
