package taskdiag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Programs that are not brokers, and answers that can't be trusted.

// packets builds answers.
type packets struct{ bytes []byte }

func (p *packets) message(kind uint16, seq uint32, body []byte) {
	start := len(p.bytes)
	p.bytes = append(p.bytes, make([]byte, messageHeader)...)
	p.bytes = append(p.bytes, body...)
	order.PutUint32(p.bytes[start:], uint32(messageHeader+len(body)))
	order.PutUint16(p.bytes[start+4:], kind)
	order.PutUint32(p.bytes[start+8:], seq)
	for len(p.bytes)%4 != 0 {
		p.bytes = append(p.bytes, 0)
	}
}

func (p *packets) task(seq uint32, attributes ...[]byte) {
	body := make([]byte, taskHeader)
	for _, attribute := range attributes {
		body = append(body, attribute...)
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
	}
	p.message(taskDiag, seq, body)
}

func (p *packets) done(seq uint32) { p.message(messageDone, seq, make([]byte, 4)) }

func (p *packets) fail(seq uint32, errno int) {
	p.message(messageErr, seq, number(nil, uint64(-errno), 4))
}

// wire builds an attribute of a message.
func wire(kind uint16, payload []byte) []byte {
	header := make([]byte, nlattrHeader)
	order.PutUint16(header, uint16(nlattrHeader+len(payload)))
	order.PutUint16(header[2:], kind)
	return append(header, payload...)
}

// record builds a record with attributes.
func record(pid uint32, flags uint32, attributes ...[]byte) []byte {
	bytes := make([]byte, recordHeader)
	for _, attribute := range attributes {
		bytes = append(bytes, attribute...)
	}
	order.PutUint32(bytes, uint32(len(bytes)))
	order.PutUint32(bytes[4:], flags)
	order.PutUint32(bytes[8:], pid)
	order.PutUint32(bytes[12:], pid)
	return bytes
}

func attribute(kind uint16, payload []byte) []byte {
	bytes := make([]byte, attrHeader)
	order.PutUint32(bytes, uint32(len(payload)))
	order.PutUint16(bytes[4:], kind)
	bytes = append(bytes, payload...)
	return append(bytes, make([]byte, (8-len(bytes)%8)%8)...)
}

func bitsPayload(version uint32) []byte {
	payload := number(number(nil, ^uint64(0), 8), ^uint64(0), 8)
	return append(number(payload, uint64(version), 4), 0, 0, 0, 0)
}

// impostor answers each request with the result of answer, until that is nil. It returns the path
// of its socket.
func impostor(t testing.TB, answer func(show uint64, seq uint32) []byte) string {
	t.Helper()
	return impostorWith(t, func(conn *net.UnixConn, show uint64, seq uint32) bool {
		packet := answer(show, seq)
		if packet == nil {
			return false
		}
		_, err := conn.Write(packet)
		return err == nil
	})
}

// impostorWith calls answer for each request, until that returns false.
func impostorWith(t testing.TB, answer func(conn *net.UnixConn, show uint64, seq uint32) bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request := make([]byte, requestSize)
				for {
					if n, err := conn.Read(request); err != nil || n < requestSize {
						return
					}
					if !answer(conn, order.Uint64(request[16:]), order.Uint32(request[8:])) {
						return
					}
				}
			}()
		}
	}()
	return path
}

// answering is an impostor that answers the question about bits as a broker does, and other
// requests with the bytes of answer.
func answering(t testing.TB, answer func(seq uint32) []byte) string {
	return impostor(t, func(show uint64, seq uint32) []byte {
		if show != showBits {
			return answer(seq)
		}
		return bitsAnswer(seq, ^uint64(0))
	})
}

// bitsAnswer is the answer of a broker that knows these bits.
func bitsAnswer(seq uint32, bits uint64) []byte {
	var p packets
	payload := bitsPayload(recordVersion)
	order.PutUint64(payload, bits)
	p.task(seq, wire(wireBits, payload))
	p.done(seq)
	return p.bytes
}

func askIt(path string, fields ...Field) (*Table, error) {
	client, err := Dial(context.Background(), Socket(path))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Processes(context.Background(), fields)
}

// Check that a program that is not a broker, or a broker of another version, causes an error of the
// right kind that says what to do.
func TestImpostorsAreErrors(t *testing.T) {
	answer := func(make func(p *packets, seq uint32)) func(uint64, uint32) []byte {
		return func(_ uint64, seq uint32) []byte {
			var p packets
			make(&p, seq)
			return p.bytes
		}
	}
	for name, each := range map[string]struct {
		answer  func(uint64, uint32) []byte
		kind    error
		mention string
	}{
		"a newer version": {answer(func(p *packets, seq uint32) {
			p.task(seq, wire(wireBits, bitsPayload(recordVersion+1)))
			p.done(seq)
		}), ErrVersion, "install both in the same version"},
		"an older version": {answer(func(p *packets, seq uint32) {
			p.task(seq, wire(wireBits, bitsPayload(recordVersion-1)))
			p.done(seq)
		}), ErrVersion, fmt.Sprintf("version %d", recordVersion-1)},
		"no bits":                   {answer(func(p *packets, seq uint32) { p.done(seq) }), ErrMalformed, "without bits"},
		"short bits":                {answer(func(p *packets, seq uint32) { p.task(seq, wire(wireBits, make([]byte, 5))); p.done(seq) }), ErrMalformed, "without bits"},
		"another number":            {answer(func(p *packets, seq uint32) { p.done(seq + 1) }), ErrMalformed, "another request"},
		"an unknown message":        {answer(func(p *packets, seq uint32) { p.message(7, seq, nil) }), ErrMalformed, "unknown type"},
		"a refusal":                 {answer(func(p *packets, seq uint32) { p.fail(0, 16) }), ErrBusy, "try again"},
		"a refusal for permission":  {answer(func(p *packets, seq uint32) { p.fail(0, 1) }), ErrDenied, "docs/protocol.md"},
		"malformed records":         {answer(func(p *packets, seq uint32) { p.fail(seq, 5) }), ErrMalformed, "malformed records"},
		"an invalid request":        {answer(func(p *packets, seq uint32) { p.fail(seq, 22) }), ErrUnsupported, "same version"},
		"an error of no number":     {answer(func(p *packets, seq uint32) { p.fail(seq, 5000) }), ErrMalformed, "number"},
		"text":                      {func(uint64, uint32) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, ErrMalformed, "impossible length"},
		"a message too short":       {func(uint64, uint32) []byte { return append(number(nil, messageHeader/2, 4), make([]byte, 28)...) }, ErrMalformed, "impossible length"},
		"a long packet":             {func(uint64, uint32) []byte { return make([]byte, maxPacket+100) }, ErrMalformed, "too long"},
		"a byte":                    {func(uint64, uint32) []byte { return []byte{1} }, ErrMalformed, "shorter than its header"},
		"the end of the connection": {func(uint64, uint32) []byte { return nil }, ErrNoBroker, "ended"},
	} {
		_, err := askIt(impostor(t, each.answer), PID)
		if !errors.Is(err, each.kind) || !strings.Contains(err.Error(), each.mention) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Check that the socket of a program that is not a broker, and of another type, is named as such.
func TestOtherSocketsAreNotBrokers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := askIt(path, PID); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// Check that broken answers to a query are errors, or rows with missing values.
func TestBrokenAnswers(t *testing.T) {
	base := attribute(attrBase, make([]byte, 48))
	whole := record(7, 0, base)
	for name, each := range map[string]struct {
		task   []byte
		rows   int
		lost   int
		reason Absent
	}{
		"whole":              {wire(wireRecord, whole), 1, 0, 0},
		"unknown attributes": {append(wire(77, make([]byte, 8)), wire(wireRecord, record(7, 0, attribute(999, make([]byte, 40)), base))...), 1, 0, 0},
		"two of a type":      {wire(wireRecord, record(7, 0, base, attribute(attrBase, make([]byte, 8)))), 1, 0, 0},
		"a longer attribute": {wire(wireRecord, record(7, 0, attribute(attrBase, make([]byte, 80)))), 1, 0, 0},
		"a shorter one":      {wire(wireRecord, record(7, 0, attribute(attrBase, make([]byte, 8)))), 1, 0, Truncated},
		"none":               {wire(wireRecord, record(7, 0)), 1, 0, Gone},
		"a record too short": {wire(wireRecord, whole[:20]), 0, 1, 0},
		"a cut record":       {wire(wireRecord, whole[:len(whole)-8]), 0, 1, 0},
		"a longer record":    {wire(wireRecord, append(append([]byte{}, whole...), 0, 0, 0, 0, 0, 0, 0, 0)), 0, 1, 0},
		"to be read again":   {wire(wireRecord, record(7, flagAgain)), 0, 1, 0},
		"a lying attribute":  {wire(wireRecord, record(7, 0, lying(base))), 1, 0, Gone},
		"a reason":           {wire(wireRecord, record(7, flagHasAbsent, base, attribute(attrAbsent, []byte{byte(Comm), 0, byte(Denied), 0}))), 1, 0, Denied},
		"an unknown reason":  {wire(wireRecord, record(7, flagHasAbsent, base, attribute(attrAbsent, []byte{byte(Comm), 0, 99, 99}))), 1, 0, Unsupported},
	} {
		table, err := askIt(answering(t, func(seq uint32) []byte {
			var p packets
			p.task(seq, each.task)
			p.done(seq)
			return p.bytes
		}), PID, Comm)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if table.Len() != each.rows || table.Lost() != each.lost {
			t.Errorf("%s: %d rows and %d lost", name, table.Len(), table.Lost())
			continue
		}
		if each.rows > 0 {
			if _, reason := table.Row(0).Comm(); reason != each.reason {
				t.Errorf("%s: %v", name, reason)
			}
		}
	}
}

// Check that a broker of the same version that lacks a group is not asked for its fields, and that
// the error says what to do. Other fields are answered.
func TestAnOlderBrokerIsNamed(t *testing.T) {
	const lacked = uint64(1) << (groupsShift + 18)
	lacking := fieldTable[PID]
	for _, field := range Fields() {
		if info := fieldTable[field]; 1<<(groupsShift+info.group) == lacked {
			lacking = info
		}
	}
	path := impostor(t, func(show uint64, seq uint32) []byte {
		if show == showBits {
			return bitsAnswer(seq, ^lacked)
		}
		var p packets
		if show&lacked != 0 {
			p.fail(seq, 22)
		} else {
			p.task(seq, wire(wireRecord, record(7, 0, attribute(attrBase, make([]byte, 48)))))
			p.done(seq)
		}
		return p.bytes
	})
	_, err := askIt(path, append(fieldsOf(t, lacking.Name), Comm)...)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), lacking.Name+": install") {
		t.Errorf("%v", err)
	}
	if table, err := askIt(path, PID, Comm); err != nil || table.Len() != 1 {
		t.Errorf("%v", err)
	}
}

// Check that the limit of an answer counts what its rows take, and that what this process reads
// itself gets the rest.
func TestRowsCountAsMemory(t *testing.T) {
	const rows = 400
	path := answering(t, func(seq uint32) []byte {
		var p packets
		for i := 0; i < rows; i++ {
			p.task(seq, wire(wireRecord, record(1, 0)))
		}
		p.done(seq)
		return p.bytes
	})
	client := connectTo(t, path)
	fields := askable()
	ask := func() (*Table, error) {
		var table *Table
		groups, err := groupsOf(fields)
		if err != nil {
			t.Fatal(err)
		}
		err = client.exchange(context.Background(), func(conn *connection) error {
			table, err = client.ask(conn, fields, groups, false, &selection{})
			return err
		})
		return table, err
	}
	table, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	whole := table.size()
	if whole < len(table.bytes)+4*len(table.places) {
		t.Errorf("%d bytes of %d, and %d places", whole, len(table.bytes), len(table.places))
	}
	client.conn.limit = whole + 100
	if table, err = ask(); err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		length int
		want   Absent
	}{{200, Truncated}, {60, 0}, {60, Truncated}} {
		table.setOwn(0, ownAttribute{attr: attrArgs, payload: make([]byte, each.length)})
		if _, reason, _ := table.payload(0, attrArgs); reason != each.want {
			t.Errorf("%d bytes: %v", each.length, reason)
		}
	}
	client.conn.limit = whole - 1
	if _, err := ask(); !errors.Is(err, ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// lying returns an attribute that claims to be longer than its record.
func lying(attribute []byte) []byte {
	attribute = append([]byte{}, attribute...)
	order.PutUint32(attribute, 1<<31)
	return attribute
}

// Check that a descriptor that comes with an empty packet is closed.
func TestUnaskedDescriptorsAreClosed(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	rights := syscall.UnixRights(int(writer.Fd()))
	path := impostorWith(t, func(conn *net.UnixConn, show uint64, seq uint32) bool {
		if show == showBits {
			_, err := conn.Write(bitsAnswer(seq, ^uint64(0)))
			return err == nil
		}
		raw, err := conn.SyscallConn()
		if err != nil {
			return false
		}
		// Go would send a byte with it.
		message := syscall.Msghdr{Control: &rights[0]}
		message.SetControllen(len(rights))
		_ = raw.Control(func(socket uintptr) {
			_, _, _ = syscall.Syscall(syscall.SYS_SENDMSG, socket, uintptr(unsafe.Pointer(&message)), 0)
		})
		return false
	})
	client := connectTo(t, path)
	if _, err := client.OpenMaps(context.Background(), 1); !errors.Is(err, ErrNoBroker) {
		t.Errorf("%v", err)
	}
	client.Close()
	writer.Close()
	if err := reader.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("this process still has the descriptor: %v", err)
	}
}

// Check that an endless answer is given up, and that its memory is limited.
func TestAnAnswerWithoutEndEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	endless := func(conn net.Conn, pause time.Duration) {
		defer conn.Close()
		request := make([]byte, requestSize)
		var p packets
		_, _ = conn.Read(request)
		p.task(order.Uint32(request[8:]), wire(wireBits, bitsPayload(recordVersion)))
		p.done(order.Uint32(request[8:]))
		_, _ = conn.Write(p.bytes)
		_, _ = conn.Read(request)
		p.bytes = nil
		p.task(order.Uint32(request[8:]), wire(wireRecord, record(1, 0)))
		for {
			if _, err := conn.Write(p.bytes); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
	go func() {
		// The first one is slow enough not to end by its size.
		for pause := time.Millisecond; ; pause = 0 {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go endless(conn, pause)
		}
	}()
	client := connectTo(t, path)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = client.Processes(ctx, []Field{PID})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	client = connectTo(t, path)
	client.conn.limit = 1 << 20
	_, err = client.Processes(context.Background(), []Field{PID})
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "quarter of this machine's memory") {
		t.Errorf("%v", err)
	}
	client = connectTo(t, path)
	_, err = client.Processes(context.Background(), []Field{PID})
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "than all tasks of this machine") {
		t.Errorf("%v", err)
	}
}

// Check how large an answer can be.
func TestAnAnswerIsNoLargerThanItsTasksCanMakeIt(t *testing.T) {
	base := uint32(groupBase)
	one, all := mostBytes(base, oneProcess), mostBytes(base, allProcesses)
	if one > 2<<20 || all < 1000*4<<10 || all >= answerLimit() {
		t.Errorf("%d for one process, %d for all, %d in any case", one, all, answerLimit())
	}
	if with := mostBytes(base|groupArgs, allThreads); with < 8*1000*4<<10 {
		t.Errorf("%d with arguments", with)
	}
}

// Check that a silent broker does not delay queries beyond a deadline or cancellation.
func TestSilenceHasAnEnd(t *testing.T) {
	silent := make(chan struct{})
	defer close(silent)
	path := answering(t, func(uint32) []byte { <-silent; return nil })
	client := connectTo(t, path)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Processes(ctx, []Field{PID}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is no deadline", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	first := make(chan error)
	go func() {
		_, err := client.Processes(ctx, []Field{PID})
		first <- err
	}()
	// Another query waits behind it, with its own deadline.
	time.Sleep(20 * time.Millisecond)
	second, cancelSecond := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancelSecond()
	if _, err := client.Threads(second, []Field{PID}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is no deadline", err)
	}
	closed := connectTo(t, path)
	go func() {
		time.Sleep(20 * time.Millisecond)
		closed.Close()
	}()
	if _, err := closed.Processes(context.Background(), []Field{PID}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v is not closed", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not cancelled", err)
	}
	if _, err := client.Processes(ctx, []Field{PID}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not cancelled", err)
	}
}

// Check that unknown field names are rejected with similar names, as in the command.
func TestUnknownFieldsAreRefused(t *testing.T) {
	for wrong, right := range map[string]string{
		"rss": "rss_bytes", "cmd_line": "cmdline", "pidd": "pid", "UID": "uid", "utime": "utime_ns",
	} {
		_, err := ParseFields("comm", wrong)
		var unknown *UnknownFieldError
		if !errors.As(err, &unknown) || unknown.Name != wrong || len(unknown.Near) == 0 || unknown.Near[0] != right {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	for _, wrong := range []string{"zzzzzzzz", "", strings.Repeat("x", 1<<20)} {
		if _, err := ParseField(wrong); !errors.Is(err, ErrUnknownField) || len(err.Error()) > 200 {
			t.Errorf("%.40q: %.300v", wrong, err)
		}
	}
	for i, field := range Fields() {
		if found, err := ParseField(field.String()); err != nil || found != field || int(field) != i {
			t.Errorf("%v is %v: %v", field, found, err)
		}
	}
	client := connectTo(t, answering(t, func(uint32) []byte { return nil }))
	if _, err := client.Processes(context.Background(), []Field{Field(255)}); !errors.Is(err, ErrUnknownField) {
		t.Error(err)
	}
	_, err := client.Processes(context.Background(), []Field{Unit})
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "from cgroup") {
		t.Error(err)
	}
}

// Check that without a broker, the error says so and what to do.
func TestNoBroker(t *testing.T) {
	directory := t.TempDir()
	dead := filepath.Join(directory, "dead")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(directory, "none"), dead, file, strings.Repeat("x", 200)} {
		_, err := Dial(context.Background(), Socket(path))
		if !errors.Is(err, ErrNoBroker) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err = Dial(context.Background(), Socket(dead))
	what := "taskdiag: no broker answers at " + dead + ": connection refused (start it as root: taskdiagd --socket " + dead + ")"
	if err.Error() != what || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

// Check that a socket that the caller may not use is denied, and that a lack of descriptors is
// neither that nor a missing broker.
func TestErrorsOfTheSocketDiffer(t *testing.T) {
	if isDenied := noBroker("/x", &os.SyscallError{Syscall: "connect", Err: syscall.EACCES}); !errors.Is(isDenied, ErrDenied) ||
		!errors.Is(isDenied, syscall.EACCES) || errors.Is(isDenied, ErrNoBroker) {
		t.Errorf("%v", isDenied)
	}
	path := answering(t, func(uint32) []byte { return nil })
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := Dial(context.Background(), Socket(path))
	if errSet := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); errSet != nil {
		t.Fatal(errSet)
	}
	if !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrNoBroker) {
		t.Errorf("%v", err)
	}
}

// Check that a client waits while the broker has many connections to accept, as long as its context
// allows.
func TestABusyBrokerIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(listener)
	if err := syscall.Bind(listener, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(listener, 0); err != nil {
		t.Fatal(err)
	}
	for {
		waiting, err := net.Dial("unixpacket", path)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, Socket(path)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < 200*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	// Close ends the wait of a query, and does not wait for it.
	client := &Client{path: path, turn: make(chan struct{}, 1), sizes: map[question]shape{}, closing: make(chan struct{})}
	asked := make(chan error)
	began = time.Now()
	go func() {
		_, err := client.Processes(context.Background(), []Field{PID})
		asked <- err
	}()
	until(t, "the query has its turn", func() bool { return len(client.turn) == 1 })
	client.Close()
	if err := <-asked; !errors.Is(err, ErrClosed) || time.Since(began) > patience/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	go func() {
		for {
			accepted, _, err := syscall.Accept(listener)
			if err != nil {
				return
			}
			syscall.Close(accepted)
		}
	}()
	if _, err := Dial(context.Background(), Socket(path)); !errors.Is(err, ErrNoBroker) || errors.Is(err, syscall.EAGAIN) {
		t.Errorf("%v", err)
	}
	_ = syscall.Shutdown(listener, syscall.SHUT_RDWR)
}
