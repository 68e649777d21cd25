package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay is the baseline of the benchmark. It is a minimal broker that only forwards frames between one center and all
// agents. A frame is a four-byte length and a payload. Each connection has a reading goroutine. At the relay's end, it
// also has a writing goroutine.
type relay struct {
	listener net.Listener
	conns    []net.Conn // both ends of every connection
	center   net.Conn
	agents   []net.Conn
	payload  []byte
	current  atomic.Pointer[exchange]
	readers  sync.WaitGroup
}

func connectRelay(n int, payload []byte) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, payload: payload}
	near, far, err := r.pair()
	if err != nil {
		return r, err
	}
	r.center = near
	var up sync.Mutex // serialises the frames that are sent to the central connection
	var down []chan []byte
	for range n {
		agent, broker, err := r.pair()
		if err != nil {
			return r, err
		}
		r.agents = append(r.agents, agent)
		frames := make(chan []byte, 1)
		down = append(down, frames)
		r.readers.Go(func() { write(broker, frames) })
		r.read(broker, func(frame []byte) {
			up.Lock()
			defer up.Unlock()
			_, _ = far.Write(frame)
		})
		r.read(agent, func([]byte) { r.current.Load().out.done() })
	}
	r.readers.Go(func() {
		defer func() {
			for _, frames := range down {
				close(frames)
			}
		}()
		each(far, func(frame []byte) {
			frame = bytes.Clone(frame)
			for _, frames := range down {
				frames <- frame
			}
		})
	})
	r.read(near, func([]byte) { r.current.Load().back.done() })
	return r, nil
}

// pair opens a connection to the relay and returns the client end (near) and the relay end (far).
func (r *relay) pair() (near, far net.Conn, err error) {
	if near, err = net.Dial("tcp", r.listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	if far, err = r.listener.Accept(); err != nil {
		return nil, nil, err
	}
	r.conns = append(r.conns, near, far)
	return near, far, nil
}

func (r *relay) read(c net.Conn, came func(frame []byte)) {
	r.readers.Go(func() { each(c, came) })
}

// each reads frames until the connection is closed, and calls came for each frame. The frame is valid only during the
// call.
func each(c net.Conn, came func(frame []byte)) {
	frame := make([]byte, 4)
	for {
		if _, err := io.ReadFull(c, frame[:4]); err != nil {
			return
		}
		size := 4 + int(binary.BigEndian.Uint32(frame))
		if cap(frame) < size {
			frame = append(make([]byte, 0, size), frame[:4]...)
		}
		frame = frame[:size]
		if _, err := io.ReadFull(c, frame[4:]); err != nil {
			return
		}
		came(frame)
	}
}

func write(c net.Conn, frames <-chan []byte) {
	for frame := range frames {
		_, _ = c.Write(frame)
	}
}

func (r *relay) close() {
	_ = r.listener.Close()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.readers.Wait()
}

func (r *relay) round(ctx context.Context) (s sample, err error) {
	x := &exchange{out: newCount(len(r.agents)), back: newCount(len(r.agents))}
	r.current.Store(x)
	used, begun := meter{}.now(), time.Now()
	if err := r.send(r.center); err != nil {
		return s, err
	}
	if err := x.out.wait(ctx, nil); err != nil {
		return s, fmt.Errorf("model not received by all agents: %w", err)
	}
	var senders sync.WaitGroup
	failed := make(chan error, len(r.agents))
	for _, c := range r.agents {
		senders.Go(func() {
			if err := r.send(c); err != nil {
				failed <- err
			}
		})
	}
	senders.Wait()
	if err := x.back.wait(ctx, failed); err != nil {
		return s, fmt.Errorf("updates not received: %w", err)
	}
	return sample{time.Since(begun), meter{}.now() - used}, nil
}

func (r *relay) send(c net.Conn) error {
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(r.payload)), uint32(len(r.payload)))
	_, err := c.Write(append(frame, r.payload...))
	return err
}
