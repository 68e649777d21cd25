package daemon

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"runtime"

	"github.com/fedmesh/fedmesh/cmd/internal/settings"
)

// ResolveNames has the process ask the configured name server, if there is
// one. Programs without cgo read where to ask in /etc/resolv.conf, which
// Android has not; they then ask this host, in vain.
func ResolveNames(s *settings.Agent, log *slog.Logger) {
	if s.DNS != "" {
		net.DefaultResolver = &net.Resolver{PreferGo: true,
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, network, s.DNS)
			}}
		return
	}
	for _, u := range s.Broker.URLs {
		if advice := nameAdvice(runtime.GOOS, os.DirFS("/"), u); advice != "" {
			log.Warn(advice)
			return
		}
	}
}

// nameAdvice says what to do on a system that tells of no name server, if the
// broker's URL needs one.
func nameAdvice(goos string, root fs.FS, broker string) string {
	u, err := url.Parse(broker)
	if goos != "android" || err != nil || net.ParseIP(u.Hostname()) != nil || u.Hostname() == "localhost" {
		return ""
	}
	if _, err := fs.Stat(root, "etc/resolv.conf"); err == nil {
		return ""
	}
	return "Android tells programs of no name server, so " + u.Hostname() +
		" will not be found: set dns to one, such as the router's address and port 53, " +
		"or give the broker's address in broker.url"
}
