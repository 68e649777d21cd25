package agentd

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestNameAdvice(t *testing.T) {
	none, some := fstest.MapFS{}, fstest.MapFS{"etc/resolv.conf": {}}
	for _, c := range []struct {
		goos, url string
		root      fstest.MapFS
		advises   bool
	}{
		{"android", "tls://broker.example:8883", none, true},
		{"android", "tls://broker.example:8883", some, false},
		{"android", "tcp://192.0.2.7:1883", none, false},
		{"android", "tcp://[2001:db8::7]:1883", none, false},
		{"android", "tcp://localhost:1883", none, false},
		{"linux", "tls://broker.example:8883", none, false},
	} {
		got := missingNameServerAdvice(c.goos, c.root, c.url)
		if (got != "") != c.advises || c.advises &&
			!strings.Contains(got, "so broker.example cannot be resolved. Set dns") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
