package mqtt_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// startHTTPProxy starts a proxy that accepts one user and connects only to the allowed address, like the proxy of a
// plant that opens only port 443.
func startHTTPProxy(t *testing.T, allowed string) (withUser *url.URL) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := parseProxyAuth(r)
		switch {
		case r.Method != http.MethodConnect:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case user != "fed" || password != "hush":
			w.WriteHeader(http.StatusProxyAuthRequired)
		case r.Host != allowed:
			w.WriteHeader(http.StatusForbidden)
		default:
			connect(w, allowed)
		}
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("fed", "hush")
	return u
}

func parseProxyAuth(r *http.Request) (user, password string, ok bool) {
	r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
	return r.BasicAuth()
}

// connect forwards data until either end closes the connection.
func connect(w http.ResponseWriter, address string) {
	far, err := net.Dial("tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close()
		return
	}
	_, _ = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
	go forward(far, near)
	forward(near, far)
}

// front returns the URL of a broker with the given scheme, and the TLS configuration that trusts it.
func front(t *testing.T, scheme string) (string, *tls.Config) {
	t.Helper()
	broker, path := "", ""
	if strings.HasPrefix(scheme, "ws") {
		broker, path = startWebsocket(t), "/mqtt"
	} else {
		b := newEmbedded(t, 128<<10)
		b.start(t)
		t.Cleanup(b.stop)
		broker = b.url()
	}
	var server, client *tls.Config
	if scheme == "tls" || scheme == "wss" {
		certificate, pool := selfSigned(t)
		server = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		client = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	p := startProxy(t, broker, server)
	return strings.Replace(p.url(), "tcp://", scheme+"://", 1) + path, client
}

// TestEverySchemeThroughAProxyAndWithout checks connections with all URL schemes, directly and through a proxy. Sites
// that open only one port, or that allow connections only through a proxy, can use wss.
func TestEverySchemeThroughAProxyAndWithout(t *testing.T) {
	for _, scheme := range []string{"tcp", "tls", "ws", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			broker, config := front(t, scheme)
			direct := dial(t, mqtt.Options{URL: broker, ClientID: "direct", TLS: config})
			mqtttest.SyncWithBroker(t, direct)

			u, _ := url.Parse(broker)
			proxy := startHTTPProxy(t, u.Host)
			s := dial(t, mqtt.Options{URL: broker, ClientID: "s", TLS: config, Proxy: proxy})
			s.Subscribe(mqtt.AtMostOnce, "large")
			mqtttest.SyncWithBroker(t, s)
			mqtttest.Publish(t, direct, mqtt.Message{Topic: "large", Payload: make([]byte, 60<<10)})
			if m := mqtttest.Received(t, s); len(m.Payload) != 60<<10 {
				t.Errorf("got %d bytes", len(m.Payload))
			}

			stranger := *proxy
			stranger.User = url.UserPassword("fed", "wrong")
			for want, o := range map[string]mqtt.Options{
				"Proxy Authentication Required": {URL: broker, Proxy: &stranger},
				"Forbidden":                     {URL: strings.Replace(broker, u.Host, "127.0.0.1:1", 1), Proxy: proxy},
			} {
				logger, lines := logged()
				o.ClientID, o.TLS, o.Logger = "refused", config, logger
				s := dialing(t, o)
				l := line(t, lines)
				if !strings.Contains(l, want) || !strings.Contains(l, " through the proxy at "+proxy.Host+": ") ||
					strings.Contains(l, "wrong") || strings.Contains(l, "hush") {
					t.Errorf("logged %s, want %s", l, want)
				}
				wantQuickClose(t, s)
			}
		})
	}
}

// TestProxyUser checks that a user name is also sent without a password, and that no user name is sent by default.
func TestProxyUser(t *testing.T) {
	for _, scheme := range []string{"tcp", "ws"} {
		for want, user := range map[string]*url.Userinfo{"": nil, "fed:": url.User("fed"),
			"fed:a:b": url.UserPassword("fed", "a:b")} {
			t.Run(scheme+" "+want, func(t *testing.T) {
				asked := make(chan string, 1)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					select {
					case asked <- r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization"):
					default: // further attempts are not examined
					}
					w.WriteHeader(http.StatusProxyAuthRequired)
				}))
				t.Cleanup(server.Close)
				proxy := &url.URL{Scheme: "http", Host: strings.TrimPrefix(server.URL, "http://"), User: user}
				logger, lines := logged()
				dialing(t, mqtt.Options{URL: scheme + "://127.0.0.1:1", ClientID: "s", Proxy: proxy, Logger: logger})
				if l := line(t, lines); !strings.Contains(l, "Proxy Authentication Required") {
					t.Errorf("logged %s", l)
				}
				login := ""
				if user != nil {
					login = "Basic " + base64.StdEncoding.EncodeToString([]byte(want))
				}
				if got := <-asked; got != "CONNECT 127.0.0.1:1 "+login {
					t.Errorf("the proxy is asked %q, want the login %q", got, login)
				}
			})
		}
	}
}

// TestProxyOfTheEnvironmentIsNotAsked checks that the proxy in the environment variables is not used, although paho
// would use it. A Go process reads these variables only once, so the test starts its own process.
func TestProxyOfTheEnvironmentIsNotAsked(t *testing.T) {
	const inside = "FEDMESH_TEST_PROXY_IN_ENVIRONMENT"
	if os.Getenv(inside) != "" {
		for _, scheme := range []string{"tcp", "tls", "ws", "wss"} {
			logger, lines := logged()
			// Go never uses a proxy for 127.0.0.1, but it would use a proxy for 0.0.0.0, which leads to the same host.
			s := dialing(t, mqtt.Options{URL: scheme + "://0.0.0.0:1", ClientID: "s", Logger: logger,
				ConnectTimeout: 100 * time.Millisecond})
			line(t, lines) // wait until a connection attempt has failed
			wantQuickClose(t, s)
		}
		return
	}
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=yes", "no_proxy=", "NO_PROXY=")
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		cmd.Env = append(cmd.Env, name+"="+proxy.URL, strings.ToUpper(name)+"="+proxy.URL)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the proxy of the environment was asked %d times", n)
	}
}

// TestBadProxy checks that an invalid, oversized or missing answer of a proxy causes a normal error.
func TestBadProxy(t *testing.T) {
	for name, c := range map[string]struct{ answer, tcp, ws string }{
		"not HTTP":       {"SSH-2.0-x\r\n\r\n", "invalid HTTP response from the proxy", "malformed HTTP"},
		"without a text": {"HTTP/1.1 407\r\n\r\n", `proxy returned \"407\"`, "invalid response"},
		"hangs up":       {"", "proxy closed the connection", "EOF"},
		"no end": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 20_000), "response exceeds the limit of 16384 bytes",
			""},
		"too eager": {"HTTP/1.1 200 OK\r\n\r\n\x20\x02\x00\x00", "proxy sent unexpected data after its response", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for scheme, want := range map[string]string{"tcp": c.tcp, "ws": c.ws} {
				if want == "" {
					continue
				}
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer listener.Close()
				go answerAll(listener, c.answer)
				logger, lines := logged()
				s := dialing(t, mqtt.Options{
					URL: scheme + "://127.0.0.1:1", ClientID: "s", Logger: logger,
					Proxy: &url.URL{Scheme: "http", Host: listener.Addr().String()},
				})
				if l := line(t, lines); !strings.Contains(l, want) {
					t.Errorf("%s: logged %s, want %s", scheme, l, want)
				}
				wantQuickClose(t, s)
			}
		})
	}
}

// answerAll reads a request on each connection, sends the answer and closes the connection.
func answerAll(listener net.Listener, answer string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, answer)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
}

// TestCloseInterruptsAProxy checks that Close does not wait for a proxy.
func TestCloseInterruptsAProxy(t *testing.T) {
	for _, scheme := range []string{"tcp", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			s := dialing(t, mqtt.Options{
				URL: scheme + "://127.0.0.1:1", ClientID: "s",
				Proxy: &url.URL{Scheme: "http", Host: listener.Addr().String()},
			})
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.ReadFull(conn, make([]byte, len("CONNECT "))); err != nil {
				t.Fatal(err)
			}
			wantQuickClose(t, s)
		})
	}
}

func TestDialRefusesBadProxies(t *testing.T) {
	for proxy, want := range map[string]string{
		"https://proxy:443":      "only http:// proxies",
		"socks5://proxy:1080":    "only http:// proxies",
		"http://u:hush@proxy":    "is not http://host:port",
		"http://:3128":           "is not http://host:port",
		"http://u:hush@proxy:0":  "is not http://host:port",
		"ftp://u:hush@proxy:123": "only http:// proxies",
	} {
		u, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		s, err := mqtt.Dial(context.Background(), mqtt.Options{URL: "tcp://broker:1883", ClientID: "s", Proxy: u})
		if err == nil {
			_ = s.Close()
			t.Fatalf("%s is accepted", proxy)
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %s", proxy, err, want)
		}
	}
}
