package enrol

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	// Path is the URL path to which devices post join requests.
	Path = "/join"

	mostConns = 64
	mostOfOne = 4                // maximum number of open connections per source address
	patience  = 10 * time.Second // time limit for a whole request
	greeting  = 4 * time.Second  // time limit for the TLS handshake and the request header
)

// newListenerCertificate creates the listener's certificate. The certificate has the coordinator's key and contains the
// root document (the signed list of trusted keys) as a comment. A device that knows the pin of the root can verify the
// listener without an authority or a clock.
func (d *Registrar) newListenerCertificate(root []byte) (tls.Certificate, error) {
	comment, err := asn1.MarshalWithParams(RootComment+base64.StdEncoding.EncodeToString(root), "ia5")
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: string(wire.CoordinatorID)},
		NotBefore: time.Unix(0, 0).UTC(), NotAfter: d.cfg.Now().Add(Lifetime),
		ExtraExtensions: []pkix.Extension{{Id: Comment, Value: comment}},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, d.cfg.CoordinatorKey.Public(), d.cfg.CoordinatorKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: d.cfg.CoordinatorKey}, err
}

// Comment is the OID of the netscape-comment extension. The comment with the root document consists of RootComment and
// base64 data.
var Comment = asn1.ObjectIdentifier{2, 16, 840, 1, 113730, 1, 13}

// RootComment is the prefix of a certificate comment that contains the root document.
const RootComment = "fedmesh root "

// ListenForJoins starts a TLS listener for join requests and serves it until ctx is cancelled. It returns the
// listener's address.
func (d *Registrar) ListenForJoins(ctx context.Context, address string, log *slog.Logger) (net.Addr, error) {
	plain, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("enrol.listen: %w", err)
	}
	s := d.newJoinServer(log)
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		if err := s.Serve(d.newBoundedTLSListener(plain)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("enrolment listener failed; devices can no longer join", "err", err)
		}
	}()
	return plain.Addr(), nil
}

func (d *Registrar) newJoinServer(log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler: http.HandlerFunc(d.serveJoinRequest), ReadTimeout: patience, WriteTimeout: 2 * patience,
		MaxHeaderBytes:    4 << 10,
		ReadHeaderTimeout: greeting, // this timeout also limits the TLS handshake
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.SetKeepAlivesEnabled(false)
	return s
}

func (d *Registrar) newBoundedTLSListener(plain net.Listener) net.Listener {
	blocked := func(a netip.Addr) bool { return d.attemptLimiter.IsSourceBlocked(a, d.cfg.Now()) }
	return tls.NewListener(&boundedListener{Listener: plain, slots: make(chan struct{}, mostConns),
		isSourceBlocked:     blocked,
		connectionsBySource: map[netip.Prefix]int{}}, &tls.Config{MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &d.presentedRootDocument.Load().listenerCertificate, nil
		}})
}

func (d *Registrar) serveJoinRequest(w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || r.TLS == nil {
		http.Error(w, "unknown client address", http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != Path {
		http.Error(w, "this listener accepts only requests from `agentd join`", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxEnrolmentRequestBytes))
	var j wire.EnrolmentRequest
	var binding []byte
	if err == nil {
		j, err = wire.DecodeEnrolmentRequest(body)
	}
	if err == nil {
		binding, err = r.TLS.ExportKeyingMaterial(wire.EnrolmentExporterLabel, nil, 32)
	}
	if err != nil {
		d.CountMalformedRequest(from.Addr())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience) // r.Context ends only when the client disconnects
	defer cancel()
	a := d.Join(ctx, &j, binding, from.Addr())
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(a.Bytes()) // a disconnected device repeats its request
}

// boundedListener limits the number of open connections. Further connections wait until one closes. A connection is
// closed at once if its source has too many connections or is blocked, so that a stranger cannot exclude others.
type boundedListener struct {
	net.Listener
	slots           chan struct{}
	isSourceBlocked func(netip.Addr) bool

	mu                  sync.Mutex
	connectionsBySource map[netip.Prefix]int
}

// acquireSlot reserves a connection for a source. It returns false if the source has too many or is blocked.
func (b *boundedListener) acquireSlot(a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connectionsBySource[host.SourcePrefix(a)] >= mostOfOne || b.isSourceBlocked(a) {
		return false
	}
	b.connectionsBySource[host.SourcePrefix(a)]++
	return true
}

func (b *boundedListener) releaseSlot(a netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connectionsBySource[host.SourcePrefix(a)]--; b.connectionsBySource[host.SourcePrefix(a)] == 0 {
		delete(b.connectionsBySource, host.SourcePrefix(a))
	}
	<-b.slots
}

func (b *boundedListener) Accept() (net.Conn, error) {
	b.slots <- struct{}{}
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			<-b.slots
			return nil, err
		}
		from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if b.acquireSlot(from.Addr()) {
			return slotHoldingConn{c, sync.OnceFunc(func() { b.releaseSlot(from.Addr()) })}, nil
		}
		_ = c.Close()
	}
}

// slotHoldingConn is a connection that releases its slot when closed.
type slotHoldingConn struct {
	net.Conn
	releaseSlot func()
}

func (s slotHoldingConn) Close() error {
	defer s.releaseSlot()
	return s.Conn.Close()
}
