package mqtt

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxProxyAnswer is the maximum size in bytes of a proxy's answer to CONNECT.
const maxProxyAnswer = 16 << 10

// openProxyTunnel requests a tunnel to address from an HTTP proxy over an open connection (RFC 9110, 9.3.6). It returns
// early when ctx ends.
func openProxyTunnel(ctx context.Context, conn net.Conn, proxy *url.URL, address string) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	err := requestProxyTunnel(conn, proxy, address)
	if !stop() {
		<-interrupted // Wait for the AfterFunc, so that it cannot set the deadline on a tunnel that is already in use.
		return ctx.Err()
	}
	return err
}

func requestProxyTunnel(conn net.Conn, proxy *url.URL, address string) error {
	header := make(http.Header)
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: header}
	if err := request.Write(conn); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: conn, N: maxProxyAnswer}
	reader := bufio.NewReader(limited)
	response, err := http.ReadResponse(reader, request)
	switch {
	case err != nil && limited.N == 0:
		return fmt.Errorf("proxy response exceeds the limit of %d bytes", maxProxyAnswer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("proxy closed the connection")
	case err != nil:
		return fmt.Errorf("invalid HTTP response from the proxy: %w", err)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("proxy returned %.100q", response.Status)
	case reader.Buffered() > 0: // in MQTT and TLS the client sends first, so the proxy must not have sent any data yet
		return errors.New("proxy sent unexpected data after its response")
	}
	return nil
}

// checkProxyURL returns an error if the proxy's URL is invalid. A nil URL is valid and means no proxy.
func checkProxyURL(proxy *url.URL) error {
	switch {
	case proxy == nil:
		return nil
	case proxy.Scheme != "http":
		return fmt.Errorf("mqtt: proxy %q: only http:// proxies are supported: for encryption, use a tls:// or "+
			"wss:// broker URL", proxy.Redacted())
	case proxy.Hostname() == "" || proxy.Port() == "" || !hasValidPort(proxy):
		return fmt.Errorf("mqtt: proxy %q is not http://host:port (common ports are 3128 and 8080)", proxy.Redacted())
	}
	return nil
}
