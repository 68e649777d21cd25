package console

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

var programs testkit.Programs

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, "../..", &programs)) }

const viewer, operator = "view-0123456789abcdef", "operate-0123456789abcdef"

// plane returns rows of y = 2a − b + 1, with a wrong value in each column named bad.
func plane(bad string) string {
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range 60 {
		x, y := float64(i%7)/7, float64(i%5)/5
		fmt.Fprintf(&b, "%g,%s,%g\n", x, bad+fmt.Sprint(y), 2*x-y+1)
	}
	return b.String()
}

// site is a federation with a console at an address that stays the same after a restart.
type site struct {
	*testkit.Federation
	lead *testkit.Process
	url  string
}

// startSite starts a coordinator and the agents one to three, of which three has unusable values in column b, and a
// fourth device that is enrolled but does not run. The run has no end, and agents mix with their neighbours.
func startSite(t testing.TB) *site {
	t.Helper()
	f := testkit.NewFederation(t, programs, "site", brokers.OpenMosquitto(t))
	s := &site{Federation: f}
	address := brokers.FreeAddress(t)
	s.url = "http://" + address + "/"
	list := f.AddAgent(t, "one", plane("")) + f.AddAgent(t, "two", plane("")) + f.AddAgent(t, "three", plane("x")) +
		f.AddAgent(t, "four", plane(""))
	tokens := f.Write(t, "tokens", "view "+viewer+" viewer\noperate "+operator+" operator\n")
	held := f.Write(t, "held.csv", plane(""))
	f.ConfigureCoordinator(t, "{name: plane, features: [a, b], target: y, "+
		"step_size: {constant: 0.05, normalize: false}, steps: {budget: 50ms, min: 1, max: 5}}",
		list, "{algorithm: feddec, sampling: with_replacement, participants: 2, quorum: 2, rounds: 0, pause: 300ms, "+
			"deadline: 60s, gather: {target: 2, minimum: 2, within: 30s, spread: 10ms}, "+
			"evaluation: {every: 3, min_rows: 1}}",
		"console: {listen: "+address+", control: true, tokens_file: "+tokens+"}",
		"mesh: {edges: complete}", "held_out: {csv: "+held+"}")
	for _, id := range []string{"one", "two", "three"} {
		f.Write(t, id+".yaml", f.AgentYAML(id, "{url: "+f.Broker+"}", "data: {csv: "+f.Path(id+".csv")+"}\n"+
			"metrics: {listen: \"\", report_every: 5s}\nd2d: {uplink: true}\nevaluation: {held_out: 0.2}"))
	}
	s.start(t)
	f.Agents(t, []string{"one", "two", "three"})
	return s
}

func (s *site) start(t testing.TB) {
	t.Helper()
	s.lead = s.Daemon(t, "coordinator", "coordinator")
	s.lead.Await(t, "serving the console")
}

// logIn opens the console, logs in with a token, and waits for the overview.
func (s *site) logIn(b *browser, token string) {
	b.t.Helper()
	b.expectProblems("401")
	b.open(s.url, "overview")
	b.await("h1", "Log in")
	b.do(chromedp.SetValue("#token", token), chromedp.Click("form button"))
	b.await("h1", "Overview")
}

// pages lists the pages with an element and a text that show that the page has its data.
var pages = []struct{ path, selector, text string }{
	{"overview", ".facts", "Stop rule"},
	{"overview", ".u-legend", "held-out rows"},
	{"devices", ".row", "never seen"},
	{"devices/three", ".condition", "agentd data check"},
	{"neighbours", ".facts", "Spectral gap"},
	{"models", "table", "safetensors"},
	{"enrolment", ".facts", "Key of the coordinator"},
	{"task", "table", "started"},
	{"events", ".events", "round opened"},
}

// TestPages shows each page in light and dark colours and at the width of a phone. It checks the accessibility rules of
// axe-core, and that no page is wider than the window or reports an error.
func TestPages(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	b := openBrowser(t)
	s.logIn(b, operator)
	b.await(".facts", "version 6") // so that the chart has some points, and models have been evaluated
	for _, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 740}} {
		b.size(look.width, look.height, look.scheme)
		for _, p := range pages {
			what := strings.ReplaceAll(p.path, "/", "-") + "-" + look.name
			b.open(s.url, p.path)
			b.await(p.selector, p.text)
			b.checkAccessibility(what)
			b.checkWidth(what)
			b.photograph(what)
		}
	}
}

// TestDevicePage shows the page of a device, in both colours and at the width of a phone.
func TestDevicePage(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	address := brokers.FreeAddress(t)
	s.Daemon(t, "agentd", "four", "--set", "console.listen="+address).Await(t, "serving the console")
	b := openBrowser(t)
	for _, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"phone", "light", 360, 740}} {
		b.size(look.width, look.height, look.scheme)
		b.open("http://"+address+"/", "")
		b.await("section", "Federation site")
		b.await("td", "60 of 60")
		b.checkAccessibility("agent-" + look.name)
		b.checkWidth("agent-" + look.name)
		b.photograph("agent-" + look.name)
	}
}

// TestControls uses each control: login, pause, resume, a change of the task, a token, revoke, compare, stop. It checks
// that a viewer sees no control, and that the audit log names the token.
func TestControls(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	b := openBrowser(t)
	b.expectProblems("401")
	b.open(s.url, "task")
	b.await("h1", "Log in")
	b.do(chromedp.SetValue("#token", "wrong-0123456789"), chromedp.Click("form button"))
	b.await("[role=alert]", "wrong token")
	b.do(chromedp.SetValue("#token", viewer), chromedp.Click("form button"))
	b.await("h1", "Task")
	b.await("#who", "read only")
	if n := evaluate[int](b, "document.querySelectorAll('main button').length"); n != 0 {
		t.Errorf("a viewer sees %d buttons", n)
	}
	b.click("button", "Log out")
	b.await("h1", "Log in")
	s.logIn(b, operator)
	b.await(".facts", "version 3")

	b.open(s.url, "task")
	b.await(".facts", "Version")
	b.click("button", "Pause")
	b.await(".facts", "paused")
	b.click("button", "Resume")
	b.await(".facts", "collecting")
	evaluate[bool](b, `(() => {
		const yaml = document.getElementById('yaml');
		yaml.value = yaml.value.replace('quorum: 2', 'quorum: 1');
		return yaml.dispatchEvent(new Event('input'));
	})()`)
	b.click("button", "Show the changes")
	b.await("td", "round.quorum")
	b.click("button", "Apply")
	b.await("[role=status]", "Version 2 takes effect")
	b.await(".facts", "2, applied")
	b.await("td", "token operator")

	b.open(s.url, "models")
	b.await("table", "onnx")
	b.click("button", "Compare")
	b.await("table", "layer0.weight")
	for _, format := range []string{"safetensors", "onnx"} {
		size := evaluate[int](b, fmt.Sprintf("fetch([...document.querySelectorAll('a.download')].find((a) => "+
			"a.innerText === %q).href).then((r) => r.ok ? r.arrayBuffer() : 0).then((x) => x.byteLength || 0)", format))
		if size < 100 {
			t.Errorf("the %s file has %d bytes", format, size)
		}
	}

	b.open(s.url, "devices/four")
	b.await(".condition", "agentd service start")
	b.click("button", "Revoke")
	b.await("dialog", "Revoke four?")
	b.click("dialog button", "Revoke")
	b.await("[role=status]", "four is revoked")
	b.await("[role=alert]", "not enrolled")

	b.open(s.url, "enrolment")
	b.await(".warn", "enrol.listen is not set")

	b.open(s.url, "task")
	b.await("button", "Stop")
	b.click("button", "Stop")
	b.await("dialog", "End the run?")
	b.click("dialog button", "Stop")
	b.await(".facts", "finished")
}

// TestRestart kills the coordinator. The page reports this, and continues without a reload when the coordinator runs
// again.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	b := openBrowser(t)
	s.logIn(b, viewer)
	b.await("#link", "live")
	b.await(".facts", "version 2")
	b.expectProblems("net::ERR_")
	s.lead.Kill()
	b.await("#link", "no connection")
	s.start(t)
	b.await("#link", "live")
	before := evaluate[int](b, "Number(/version (\\d+)/.exec(document.querySelector('.facts').innerText)[1])")
	b.await(".facts", fmt.Sprint("version ", before+2))
}

// TestHostileTexts checks that a column name with HTML is shown as text, and runs no script.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	const hostile = `<img src=x onerror="document.title='owned'">`
	f := testkit.NewFederation(t, programs, "hostile", brokers.OpenMosquitto(t))
	address := brokers.FreeAddress(t)
	rows := strings.Replace(plane("x"), "a,b,y", `a,"`+strings.ReplaceAll(hostile, `"`, `""`)+`",y`, 1)
	list := f.AddAgent(t, "one", rows)
	f.ConfigureCoordinator(t, `{name: '`+strings.ReplaceAll(hostile, "'", "''")+`', features: [a, '`+
		strings.ReplaceAll(hostile, "'", "''")+`'], target: y}`, list,
		"{participants: 1, quorum: 1, rounds: 0, gather: {target: 1, minimum: 1, within: 30s, spread: 10ms}}",
		"console: {listen: "+address+"}")
	f.Daemon(t, "coordinator", "coordinator").Await(t, "serving the console")
	f.Agents(t, []string{"one"})
	b := openBrowser(t)
	b.open("http://"+address+"/", "devices/one")
	b.await(".condition", "<img src=x")
	b.open("http://"+address+"/", "events")
	b.await(".events", "<img src=x")
	if title := evaluate[string](b, "document.title"); title != "Events – fedmesh" {
		t.Errorf("the page has the title %q", title)
	}
	if n := evaluate[int](b, "document.querySelectorAll('main img').length"); n != 0 {
		t.Errorf("the page has %d pictures", n)
	}
}
