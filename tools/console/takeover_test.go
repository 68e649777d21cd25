package console

import (
	"fmt"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestTakeover kills the leader of two coordinators and restarts it, as a service manager does. The page then opens the
// console of the new leader, and stays logged in, because both coordinators authenticate sessions with the same key.
func TestTakeover(t *testing.T) {
	t.Parallel()
	engine := brokers.NewNATS(t, 1, 0, "")
	engine.Start(t)
	f := testkit.NewFederation(t, programs, "takeover", brokers.OpenMosquitto(t))
	list := f.AddAgents(t, plane(""), "one", "two")
	tokens := f.Write(t, "tokens", "view "+viewer+"\n")
	urls := map[string]string{"a": "http://" + brokers.FreeAddress(t) + "/",
		"b": "http://" + brokers.FreeAddress(t) + "/"}
	for name, url := range urls {
		f.Write(t, name+".keys", list)
		f.Write(t, name+".yaml", f.CoordinatorText(name, "{name: plane, features: [a, b], target: y}",
			"{participants: 2, quorum: 2, rounds: 0, pause: 300ms, "+
				"gather: {target: 2, minimum: 2, within: 30s, spread: 10ms}}",
			fmt.Sprintf("cluster: {nats: [\"nats://%s\"], name: %s, copies: 1}", engine.Nodes[0].Client, name),
			fmt.Sprintf("console: {listen: %q, tokens_file: %s, urls: {a: %q, b: %q}}",
				url[len("http://"):len(url)-1], tokens, urls["a"], urls["b"])))
	}
	first := f.Daemon(t, "coordinator", "a")
	first.Await(t, "this coordinator is now the leader")
	second := f.Daemon(t, "coordinator", "b")
	second.Await(t, "on standby leader=a")
	f.Agents(t, []string{"one", "two"})

	b := openBrowser(t)
	b.expectProblems("503")
	b.expectProblems("net::ERR_")
	(&site{Federation: f, url: urls["b"]}).logIn(b, viewer) // the standby leads to the console of a
	b.await(".facts", "version 2")
	wantAddress(b, urls["a"])

	first.Kill()
	b.await("#link", "no connection")
	second.Await(t, "this coordinator is now the leader")
	f.Daemon(t, "coordinator", "a").Await(t, "on standby leader=b")
	b.await("#link", "live")
	b.await("h1", "Overview")
	wantAddress(b, urls["b"])
}

// wantAddress waits until the browser shows a page of the console at url.
func wantAddress(b *browser, url string) {
	b.t.Helper()
	testkit.Until(b.t, "the console at "+url, func() bool {
		return evaluate[string](b, "location.href.split('#')[0]") == url
	})
}
