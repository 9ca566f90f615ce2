package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Frames of HTTP/2, and codes of its errors, see RFC 9113.
const (
	frameHeaders, frameReset, frameSettings, frameGoAway = 1, 3, 4, 7

	flagAck, flagEnd, flagEndHeaders = 1, 1, 4

	codeNone, codeProtocol, codeRefused, codeCancel = 0, 1, 7, 8
)

func writeFrame(w io.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	_, _ = w.Write(append(head, payload...)) // the client may be gone
}

// http2Server answers the requests of HTTP/2: each by what answer returns for its number, from 1.
type http2Server struct {
	addr     string
	requests atomic.Int32
}

func newHTTP2Server(t *testing.T, a *authority, answer func(w io.Writer, stream uint32, request int32) (goOn bool)) *http2Server {
	t.Helper()
	cert := a.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)})
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &http2Server{addr: l.Addr().String()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn, answer)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return s
}

func (s *http2Server) serve(conn net.Conn, answer func(io.Writer, uint32, int32) bool) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, in, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	writeFrame(conn, frameSettings, 0, 0, nil)
	for goOn := true; goOn; {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		size, kind, flags := int64(binary.BigEndian.Uint32(head[:4])>>8), head[3], head[4]
		if _, err := io.CopyN(io.Discard, in, size); err != nil {
			return
		}
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			writeFrame(conn, frameSettings, flagAck, 0, nil)
		case kind == 0 && flags&flagEnd != 0: // the end of a request with a body
			goOn = answer(conn, binary.BigEndian.Uint32(head[5:]), s.requests.Add(1))
		}
	}
	_, _ = io.Copy(io.Discard, in) // until the client closes it: no answer is lost by a reset
}

func code(stream, code uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, stream), code)
}

func fine(w io.Writer, stream uint32) bool {
	writeFrame(w, frameHeaders, flagEnd|flagEndHeaders, stream, []byte{0x88}) // :status 200
	return true
}

// A request that a server of HTTP/2 has not taken is sent again, once, within the attempt. One
// that it may have taken is not.
func TestClient_notTaken(t *testing.T) {
	a := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	goAway := func(last func(stream uint32) uint32) func(io.Writer, uint32) bool {
		return func(w io.Writer, stream uint32) bool {
			writeFrame(w, frameGoAway, 0, 0, code(last(stream), codeNone))
			return false
		}
	}
	reset := func(reason uint32) func(io.Writer, uint32) bool {
		return func(w io.Writer, stream uint32) bool {
			writeFrame(w, frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, reason))
			return true
		}
	}
	for _, c := range []struct {
		name   string
		refuse func(io.Writer, uint32) bool
		times  int32 // how many requests are refused
		sent   int32 // of the second delivery
		ok     bool
	}{
		{"GOAWAY before the stream", goAway(func(s uint32) uint32 { return s - 2 }), 1, 2, true},
		{"REFUSED_STREAM", reset(codeRefused), 1, 2, true},
		{"REFUSED_STREAM twice", reset(codeRefused), 2, 2, false},
		{"PROTOCOL_ERROR", reset(codeProtocol), 1, 1, false},
		{"CANCEL", reset(codeCancel), 1, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newHTTP2Server(t, a, func(w io.Writer, stream uint32, request int32) bool {
				if request > 1 && request <= 1+c.times {
					return c.refuse(w, stream)
				}
				return fine(w, stream)
			})
			client := newClient(clientOptions{allowHTTP: true, allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, rootCAs: roots, timeout: time.Hour})
			defer client.close()
			var err error
			for range 2 {
				if err != nil {
					t.Fatal(err)
				}
				req := post(t, client, "{}")
				req.URL.Scheme, req.URL.Host = "https", s.addr
				_, err = client.send(req)
			}
			if (err == nil) != c.ok || s.requests.Load() != 1+c.sent {
				t.Errorf("error %v, sent %d times: want %d", err, s.requests.Load()-1, c.sent)
			}
		})
	}
}

// deadConn fails to write once it is dead, before a byte is written.
type deadConn struct {
	net.Conn
	dead *atomic.Int32 // how many more writes fail
}

func (c *deadConn) Write(b []byte) (int, error) {
	if c.dead.Add(-1) >= 0 {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(b)
}

// A request on a connection that was dead before a byte was written to it is sent again, once.
func TestClient_nothingWritten(t *testing.T) {
	for _, test := range []struct {
		dead int32
		ok   bool
	}{{0, true}, {1, true}, {2, false}} {
		synctest.Test(t, func(t *testing.T) {
			var requests, dead atomic.Int32
			const idle = 3
			c := (&receiver{}).client(clientOptions{})
			var conns sync.WaitGroup
			answer := make(chan struct{})
			c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				conns.Go(func() {
					defer theirs.Close()
					in := bufio.NewReader(theirs)
					for {
						req, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						if _, err := io.Copy(io.Discard, req.Body); err != nil {
							return
						}
						requests.Add(1)
						<-answer
						_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					}
				})
				return &deadConn{ours, &dead}, nil
			}
			for range idle {
				go func() {
					if _, err := c.send(post(t, c, "{}")); err != nil {
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
			close(answer)
			synctest.Wait() // each request had a connection, which waits for the next one
			dead.Store(test.dead)
			_, err := c.send(post(t, c, "{}"))
			if (err == nil) != test.ok || err == nil && requests.Load() != idle+1 {
				t.Errorf("error %v after %d dead connections, %d requests came", err, test.dead, requests.Load()-idle)
			}
			if err != nil && !errors.Is(err, errSentAgain) {
				t.Errorf("error %v, want %v", err, errSentAgain)
			}
			c.close()
			conns.Wait()
		})
	}
}
