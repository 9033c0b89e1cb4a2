package taskdiag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// connection is a connection to the broker. Requests are answered one after the other.
type connection struct {
	socket *net.UnixConn
	path   string
	seq    uint32
	bits   brokerBits
	// The maximum size of a table, in bytes.
	limit int
	// A buffer for packets of answers of unknown length.
	packet []byte
	// Closed with the client.
	closing <-chan struct{}
	// An answer was not received completely, so the connection can't be used any more.
	isBroken bool
}

// Limits for answers: any program may listen on the broker's path.
const (
	// How long to wait for a packet, and for a whole answer. An answer has one more second for each
	// minRate bytes.
	patience = 30 * time.Second
	minRate  = 1 << 20
	// The maximum length of the packet with, or instead of, an opened file.
	maxFilePacket = 4 << 10
	// The maximum number of packets of the answer about bits. The broker sends one.
	maxBitsPackets = 4
	// What an answer may have before the number of tasks is looked up.
	smallAnswer = 1 << 20
	// How long to wait while the broker has many connections to accept.
	fullPause = 10 * time.Millisecond
	// How long to wait for a refusal that was sent before the connection was closed.
	refusalPatience = 100 * time.Millisecond
)

// errEnded is returned if the broker closed the connection without a reason, which it may do at any
// time.
var errEnded = errors.New("the broker ended the connection")

// dial connects, and asks for the supported bits.
func dial(ctx context.Context, path string, closing <-chan struct{}) (*connection, error) {
	dialer := net.Dialer{Deadline: time.Now().Add(patience)}
	socket, err := dialer.DialContext(ctx, "unixpacket", path)
	// The kernel does not let a non-blocking socket wait while the broker has many connections to
	// accept.
	for errors.Is(err, syscall.EAGAIN) && time.Now().Before(dialer.Deadline) && endOf(ctx) == nil {
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
		case <-closing:
			return nil, errClosed
		}
		socket, err = dialer.DialContext(ctx, "unixpacket", path)
	}
	if err != nil {
		if err := endOf(ctx); err != nil {
			return nil, stoppedRequest(path, err)
		}
		// The sockets of other programs are often of another type.
		if errors.Is(err, syscall.EPROTOTYPE) {
			return nil, failf(ErrMalformed, "the server at %s is not a broker", path)
		}
		return nil, noBroker(path, err)
	}
	c := &connection{socket: socket.(*net.UnixConn), path: path, limit: answerLimit(), closing: closing}
	err = c.run(ctx, c.askBits)
	if err == nil && c.bits.version != recordVersion {
		err = failf(ErrVersion, "the broker at %s sends records of version %d, but this client reads version %d: "+
			"install both in the same version", path, c.bits.version, recordVersion)
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return c, nil
}

// endOf returns the error of an ended context. A deadline ends the system calls that know it before
// the context says so.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, found := ctx.Deadline(); found && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// stopped returns the error for an ended context. errors.Is finds the context's error.
func stopped(what string, cause error) error {
	return &failure{nil, what + " was stopped", cause}
}

func stoppedRequest(path string, cause error) error {
	return stopped("the request to the broker at "+path, cause)
}

// run calls ask. If the context or the client ends during the call, it closes the socket to end
// ask.
func (c *connection) run(ctx context.Context, ask func() error) error {
	if err := ctx.Err(); err != nil {
		return stoppedRequest(c.path, err)
	}
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		var why error
		select {
		case <-ctx.Done():
			why = stoppedRequest(c.path, ctx.Err())
		case <-c.closing:
			why = errClosed
		case <-end:
		}
		if why != nil {
			c.socket.Close()
		}
		ended <- why
	}()
	err := ask()
	close(end)
	if why := <-ended; why != nil {
		c.isBroken = true
		if err != nil {
			return why
		}
	}
	return err
}

// answeredErrno is an error that the broker sent, not one of this process's system calls.
type answeredErrno struct{ errno syscall.Errno }

func (a answeredErrno) Error() string { return a.errno.Error() }

func (a answeredErrno) Unwrap() error { return a.errno }

// send sends a request and returns its number.
func (c *connection) send(show uint64, which strategy, pid uint32) (uint32, error) {
	c.seq++
	if c.seq == 0 {
		c.seq = 1
	}
	packet := request{c.seq, show, which, pid}.encode()
	if err := c.socket.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, errEnded
	}
	if _, err := c.socket.Write(packet[:]); err != nil {
		if isEnd(err) {
			return 0, c.refusal()
		}
		return 0, err
	}
	return c.seq, nil
}

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// refusal returns the reason why the broker closed the connection, if it refused this client and
// sent one.
func (c *connection) refusal() error {
	packet := make([]byte, maxFilePacket)
	if err := c.socket.SetReadDeadline(time.Now().Add(refusalPatience)); err != nil {
		return errEnded
	}
	// If the broker left a request unread, the first read returns ECONNRESET.
	for i := 0; i < 2; i++ {
		if n, err := c.socket.Read(packet); err == nil {
			return refused(packet[:n])
		}
	}
	return errEnded
}

// refused returns the error in the packet that a refused client receives.
func refused(packet []byte) error {
	if m, _, err := nextMessage(packet, 0, 0); err == nil && m.kind == messageErr {
		return answeredErrno{m.errno}
	}
	return errEnded
}

// receive appends a packet to bytes.
func (c *connection) receive(bytes []byte) ([]byte, error) {
	// The extra byte detects packets that are too long.
	into, isOwn := c.packet, true
	if room := bytes[len(bytes):cap(bytes)]; len(room) > maxPacket {
		into, isOwn = room[:maxPacket+1], false
	} else if into == nil {
		into = make([]byte, maxPacket+1)
		c.packet = into
	}
	n, err := c.socket.Read(into)
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		return bytes, c.refusal()
	case err != nil && isEnd(err), err == nil && n == 0:
		return bytes, errEnded
	case err != nil:
		return bytes, err
	case n > maxPacket:
		return bytes, malformed("a packet that is too long")
	case isOwn:
		return append(bytes, into[:n]...), nil
	}
	return bytes[:len(bytes)+n], nil
}

func (c *connection) askBits() error {
	seq, err := c.send(showBits, allProcesses, 0)
	if err != nil {
		return c.explain(err, 0)
	}
	var packet []byte
	for i := 0; i < maxBitsPackets; i++ {
		if packet, err = c.receive(packet[:0]); err != nil {
			return c.explain(err, 0)
		}
		done, err := c.takeBits(packet, seq)
		if err != nil || done {
			return c.explain(err, 0)
		}
	}
	return c.explain(malformed("an answer without end"), 0)
}

func (c *connection) takeBits(packet []byte, seq uint32) (bool, error) {
	done, err := eachMessage(packet, 0, seq, func(m message) {
		if told, found := decodeBits(findWire(m.attributes, wireBits)); found {
			c.bits = told
		}
	})
	switch {
	case err != nil:
		// The error for a refused client has no request number.
		if refusal := refused(packet); refusal != errEnded {
			err = refusal
		}
	case done && c.bits.version == 0:
		err = malformed("an answer without bits")
	}
	return done, err
}

// ask appends the answer to a request to a table.
func (c *connection) ask(t *Table, show uint64, which strategy, pid uint32) error {
	seq, err := c.send(show, which, pid)
	if err != nil {
		return c.explain(err, pid)
	}
	began, first, most := time.Now(), len(t.bytes), smallAnswer
	for {
		start := len(t.bytes)
		if t.bytes, err = c.receive(t.bytes); err != nil {
			return c.explain(err, pid)
		}
		done, err := t.take(start, seq)
		if err != nil {
			return c.explain(err, pid)
		}
		if t.size() > c.limit {
			return c.explain(malformed("an answer that is larger than a quarter of this machine's memory"), pid)
		}
		if done {
			return nil
		}
		if len(t.bytes)-first > most {
			// More tasks may start meanwhile.
			if most = mostBytes(uint32(show>>groupsShift), which); len(t.bytes)-first > most {
				return c.explain(malformed("more than all tasks of this machine can have"), pid)
			}
		}
		earned := time.Duration(len(t.bytes)-first) * (time.Second / minRate)
		if time.Since(began) > patience+earned {
			return c.explain(os.ErrDeadlineExceeded, pid)
		}
		if err := c.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return c.explain(errEnded, pid)
		}
	}
}

// mostBytes returns how large an answer can be: the fixed values of a task take less than 4 KiB, a
// path at most 1 KiB, and a record at most 32 KiB.
func mostBytes(groups uint32, which strategy) int {
	tasks, kib := 1, 4
	if which != oneProcess {
		text, _ := os.ReadFile("/proc/loadavg")
		var load, all string
		if n, _ := fmt.Sscan(string(text), &load, &load, &load, &all); n < 4 {
			return maxAnswer
		}
		_, all, _ = strings.Cut(all, "/")
		running, err := strconv.Atoi(all)
		if err != nil {
			return maxAnswer
		}
		tasks = 2*running + 1000
	}
	for group, size := range map[uint32]int{groupGroups: 2, groupCgroup: 2, groupPaths: 4, groupArgs: 28, groupText: 28} {
		if groups&group != 0 {
			kib += size
		}
	}
	if most := tasks*kib<<10 + smallAnswer; most < maxAnswer {
		return most
	}
	return maxAnswer
}

// answerLimit returns the maximum size of a table: a quarter of this machine's memory.
func answerLimit() int {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		if quarter := uint64(info.Totalram) * uint64(info.Unit) / 4; quarter < maxAnswer {
			return int(quarter)
		}
	}
	return maxAnswer
}

// askFile requests an opened file of /proc. It returns nil if the process has no memory.
func (c *connection) askFile(show uint64, which strategy, pid uint32, name string) (*os.File, error) {
	seq, err := c.send(show, which, pid)
	if err != nil {
		return nil, c.explain(err, pid)
	}
	packet, control := make([]byte, maxFilePacket), make([]byte, syscall.CmsgSpace(4))
	n, controls, flags, _, err := c.socket.ReadMsgUnix(packet, control)
	// A file may also come with the end of the connection.
	file, opened := received(control[:controls], name), false
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		err = c.refusal()
	case isEnd(err):
		err = errEnded
	case err == nil && flags&syscall.MSG_TRUNC != 0:
		err = malformed("a packet that is too long")
	case err == nil:
		opened, err = wasOpened(packet[:n], seq, show)
		switch {
		case !opened || file != nil:
		case flags&syscall.MSG_CTRUNC != 0:
			// The kernel found no place for the descriptor.
			err = syscall.EMFILE
		default:
			err = malformed("an answer without its file")
		}
	}
	if file != nil && !opened {
		file.Close()
		file = nil
	}
	return file, c.explain(err, pid)
}

// received returns the file that came with a packet; if there are several, the last.
func received(control []byte, name string) *os.File {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var file *os.File
	for i := range messages {
		descriptors, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, descriptor := range descriptors {
			if file != nil {
				file.Close()
			}
			file = os.NewFile(uintptr(descriptor), name)
		}
	}
	return file
}

// wasOpened reports whether a packet, which must be a whole answer, says that it carries the file.
func wasOpened(packet []byte, seq uint32, show uint64) (bool, error) {
	opened := false
	done, err := eachMessage(packet, 0, seq, func(m message) {
		if payload := findWire(m.attributes, wireOpened); len(payload) == 8 {
			opened = opened || order.Uint64(payload) == show
		}
	})
	if err == nil && !done {
		err = malformed("an answer without end")
	}
	return opened && err == nil, err
}

// explain turns an error of this connection into one for people. Any error that the broker did not
// send breaks the connection.
func (c *connection) explain(err error, pid uint32) error {
	var answered answeredErrno
	var bad malformed
	if err == nil {
		return nil
	}
	if !errors.As(err, &answered) {
		c.isBroken = true
		switch {
		case errors.Is(err, errEnded):
			return err
		case errors.As(err, &bad):
			return &failure{ErrMalformed, "the broker at " + c.path + " is not one that this client understands", err}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return failf(ErrNoBroker, "the broker at %s does not answer", c.path)
		}
		return noBroker(c.path, err)
	}
	f := &failure{nil, "the broker at " + c.path, err}
	switch answered.errno {
	case syscall.ESRCH:
		f.kind = ErrNoProcess
		f.message = noProcess(int(pid)).(*failure).message
	case syscall.EPERM:
		f.kind = ErrDenied
		f.message += " can't tell what this process may see, and shows it nothing: docs/protocol.md has the cases"
	case syscall.EACCES:
		f.kind = ErrDenied
		f.message = "this process may see the other one, but not trace it (its user may, or CAP_SYS_PTRACE)"
	case syscall.EINVAL:
		f.kind = ErrUnsupported
		f.message += " does not know this request: install it in the same version as this client"
	case syscall.EIO:
		f.kind = ErrMalformed
		f.message += " got malformed records from the kernel"
	case syscall.EBUSY:
		f.kind = ErrBusy
		f.message += " is busy (too many clients or unread answers, or a process that changed or did not answer): try again"
	}
	return f
}
