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

// UseConfiguredDNS makes the process use the configured name server, if one is set. This is necessary on Android, which
// has no /etc/resolv.conf: there, Go without cgo would send DNS requests to the device itself, and nothing answers.
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

// missingNameServerAdvice returns advice if the host name in the broker's URL cannot be resolved because the system
// does not report a name server. Otherwise it returns "".
func missingNameServerAdvice(goos string, root fs.FS, broker string) string {
	u, err := url.Parse(broker)
	if goos != "android" || err != nil || net.ParseIP(u.Hostname()) != nil || u.Hostname() == "localhost" {
		return ""
	}
	if _, err := fs.Stat(root, "etc/resolv.conf"); err == nil {
		return ""
	}
	return "Android does not report its name server to programs, so " + u.Hostname() + " cannot be resolved. Set dns " +
		"to the address and port of a name server, such as the router at port 53, or use the broker's IP address in " +
		"broker.url"
}
