package agentd

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"runtime"

	"github.com/fedmesh/fedmesh/internal/settings"
)

// UseConfiguredDNS makes the process use the configured name server, if one is set. Without cgo, Go reads the name
// server from /etc/resolv.conf. Android has no such file, so Go asks the device itself, which does not answer.
func UseConfiguredDNS(s *settings.Agent, log *slog.Logger) {
	if s.NameServer != "" {
		net.DefaultResolver = &net.Resolver{PreferGo: true,
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, network, s.NameServer)
			}}
		return
	}
	for _, m := range s.SettingsPerFederation() {
		for _, u := range m.Broker.URLs {
			if advice := missingNameServerAdvice(runtime.GOOS, os.DirFS("/"), u); advice != "" {
				log.Warn(advice)
				return
			}
		}
	}
}

// missingNameServerAdvice returns advice if the broker's URL needs a name server and the system does not name one.
func missingNameServerAdvice(goos string, root fs.FS, broker string) string {
	u, err := url.Parse(broker)
	if goos != "android" || err != nil || net.ParseIP(u.Hostname()) != nil || u.Hostname() == "localhost" {
		return ""
	}
	if _, err := fs.Stat(root, "etc/resolv.conf"); err == nil {
		return ""
	}
	return "Android does not tell programs its name server, so " + u.Hostname() +
		" will not be found: set dns to the address and port of a name server, such as the router's at port 53, " +
		"or give the broker's address in broker.url"
}
