package taskdiag

import (
	"context"
	"errors"
	"math"
	"os"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// DefaultSocket is the broker's default socket.
const DefaultSocket = "/run/taskdiag/taskdiag.sock"

// A Client is a client of the broker. It is safe for concurrent use; requests are sent one after
// the other. It reconnects if the broker has closed the connection or was restarted.
type Client struct {
	path string
	// Holds an element while a goroutine uses the fields below: a lock that select can wait for.
	turn  chan struct{}
	conn  *connection
	sizes map[question]shape
	// Closed by Close.
	closing chan struct{}
	close   sync.Once
}

// question identifies requests whose answers have about the same length.
type question struct {
	show  uint64
	which strategy
}

// shape is the size of an answer.
type shape struct{ bytes, rows int }

// An Option configures a Client in Dial.
type Option func(*Client)

// Socket sets the path of the broker's socket. The default is [DefaultSocket].
func Socket(path string) Option { return func(c *Client) { c.path = path } }

// Dial connects to the broker. The error is an [ErrNoBroker] if no broker answers, and an
// [ErrVersion] if the broker has another version.
func Dial(ctx context.Context, options ...Option) (*Client, error) {
	c := &Client{path: DefaultSocket, turn: make(chan struct{}, 1), sizes: map[question]shape{}, closing: make(chan struct{})}
	for _, option := range options {
		option(c)
	}
	conn, err := dial(ctx, c.path, c.closing)
	if errors.Is(err, errEnded) {
		return nil, noBroker(c.path, err)
	}
	c.conn = conn
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close closes the connection. Current and later queries fail with [ErrClosed].
func (c *Client) Close() error {
	c.close.Do(func() { close(c.closing) })
	c.turn <- struct{}{}
	defer c.leave()
	c.drop()
	return nil
}

func (c *Client) leave() { <-c.turn }

func (c *Client) drop() {
	if c.conn != nil {
		c.conn.socket.Close()
		c.conn = nil
	}
}

// A Selection restricts a query to some processes, or sets how they are read.
type Selection func(*selection)

type selection struct {
	pids     []int
	only     bool
	parent   uint32
	ofParent bool
	patience time.Duration
}

// PIDs selects these processes. Processes that do not exist have no row; Table.Missing returns
// them.
func PIDs(pids ...int) Selection {
	return func(s *selection) {
		s.only = true
		s.pids = append(s.pids, pids...)
	}
}

// ChildrenOf selects the children of a process.
func ChildrenOf(pid int) Selection {
	return func(s *selection) { s.ofParent, s.parent = true, toPID(pid) }
}

// Patience sets how long reading a file of /proc may make no progress before its values are absent
// with the reason NoAnswer. It applies to fields that this process reads itself, such as command
// lines. The default is 200 milliseconds.
func Patience(patience time.Duration) Selection {
	return func(s *selection) { s.patience = patience }
}

// toPID returns a pid in wire format; 0, which no process has, if it can't be a pid.
func toPID(pid int) uint32 {
	if pid < 0 || pid > math.MaxInt32 {
		return 0
	}
	return uint32(pid)
}

// Processes returns the fields of all processes that the caller may see, or of the selected ones.
func (c *Client) Processes(ctx context.Context, fields []Field, selections ...Selection) (*Table, error) {
	return c.query(ctx, fields, false, selections)
}

// Threads returns the fields of all threads that the caller may see, or of the threads of the
// selected processes.
func (c *Client) Threads(ctx context.Context, fields []Field, selections ...Selection) (*Table, error) {
	return c.query(ctx, fields, true, selections)
}

// Process returns the fields of one process. The error is an [ErrNoProcess] if it does not exist.
func (c *Client) Process(ctx context.Context, pid int, fields []Field) (Row, error) {
	table, err := c.query(ctx, fields, false, []Selection{PIDs(pid)})
	if err != nil {
		return Row{}, err
	}
	if table.Len() == 0 {
		return Row{}, noProcess(pid)
	}
	return table.Row(0), nil
}

// OpenMaps returns /proc/PID/maps of a process, opened by the broker, for reading its text and for
// PROCMAP_QUERY. The error is an [ErrDenied] if the caller may not trace the process, and an
// [ErrNoMemory] if the process has no mappings.
func (c *Client) OpenMaps(ctx context.Context, pid int) (*os.File, error) {
	return c.open(ctx, showMaps, pid, "maps")
}

// OpenSmaps is like [Client.OpenMaps] for /proc/PID/smaps.
func (c *Client) OpenSmaps(ctx context.Context, pid int) (*os.File, error) {
	return c.open(ctx, showSmaps, pid, "smaps")
}

// exchange calls ask with a connection. If the broker has closed the connection, it reconnects and
// calls ask once more.
func (c *Client) exchange(ctx context.Context, ask func(*connection) error) error {
	select {
	case c.turn <- struct{}{}:
		defer c.leave()
	case <-ctx.Done():
		return stoppedRequest(c.path, ctx.Err())
	case <-c.closing:
		return errClosed
	}
	for attempt := 0; ; attempt++ {
		select {
		case <-c.closing:
			return errClosed
		default:
		}
		err := error(nil)
		if c.conn == nil {
			c.conn, err = dial(ctx, c.path, c.closing)
		}
		if err == nil {
			err = c.conn.run(ctx, func() error { return ask(c.conn) })
		}
		if c.conn != nil && c.conn.isBroken {
			c.drop()
		}
		if !errors.Is(err, errEnded) {
			return err
		}
		if attempt > 0 {
			return noBroker(c.path, err)
		}
	}
}

// query runs a query.
func (c *Client) query(ctx context.Context, fields []Field, threads bool, selections []Selection) (*Table, error) {
	chosen := selection{patience: defaultPatience}
	for _, selection := range selections {
		selection(&chosen)
	}
	groups, err := groupsOf(fields)
	if err != nil {
		return nil, err
	}
	var table *Table
	err = c.exchange(ctx, func(conn *connection) error {
		table, err = c.ask(conn, fields, groups, threads, &chosen)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := table.readOwn(ctx, chosen.patience, threads); err != nil {
		return nil, err
	}
	return table, nil
}

// groupsOf returns the groups that contain the fields. Ids need no group: every record has them.
func groupsOf(fields []Field) (uint32, error) {
	groups := uint32(0)
	for _, field := range fields {
		switch {
		case int(field) >= len(fieldTable):
			return 0, failf(ErrUnknownField, "there is no field with the number %d", field)
		case fieldTable[field].form == formDerived:
			return 0, failf(ErrUnsupported, "the library derives the field %v (%s); the broker does not send it",
				field, fieldTable[field].Origin)
		case field == RollupAgeNS:
			return 0, failf(ErrUnsupported, "only the library has the field %v: this client keeps no values", field)
		case field != PID && field != TID:
			groups |= 1 << fieldTable[field].group
		}
	}
	return groups, nil
}

// ask requests the rows of a table.
func (c *Client) ask(conn *connection, fields []Field, groups uint32, threads bool, chosen *selection) (*Table, error) {
	// Up to this many processes are requested one by one. For more, all processes are requested and
	// the others dropped.
	const fewPIDs = 16
	known := uint32(conn.bits.known >> groupsShift)
	show := uint64(groups&^ownGroups) << groupsShift
	for _, field := range fields {
		if 1<<fieldTable[field].group&groups&^(known|ownGroups) != 0 {
			next := "install it in the same version as this client"
			if 1<<fieldTable[field].group == groupNet {
				next = "taskdiagd --count-network counts network traffic"
			}
			return nil, failf(ErrUnsupported, "the broker at %s does not have the field %v: %s", c.path, field, next)
		}
	}
	which, one := allProcesses, oneProcess
	if threads {
		which, one = allThreads, threadsOf
	}
	pids := sortedPIDs(chosen.pids)
	isFew := chosen.only && len(pids) <= fewPIDs && !chosen.ofParent
	asked := question{show, which}
	if isFew || chosen.ofParent {
		asked.which = one
	}
	table := newTable(fields, c.sizes[asked])
	table.groups = groups
	switch {
	case isFew:
		for _, pid := range pids {
			if toPID(pid) == 0 {
				continue
			}
			err := conn.ask(table, show, one, toPID(pid))
			if err != nil && !errors.Is(err, ErrNoProcess) {
				return nil, err
			}
		}
	case chosen.ofParent && threads:
		return nil, failf(ErrUnsupported, "ChildrenOf selects processes, not threads")
	case chosen.ofParent:
		if err := conn.ask(table, show, childrenOf, chosen.parent); err != nil {
			return nil, err
		}
	default:
		if err := conn.ask(table, show, which, 0); err != nil {
			return nil, err
		}
	}
	c.sizes[asked] = shape{len(table.bytes), len(table.rows)}
	table.room = conn.limit - table.size()
	if chosen.only {
		table.retain(pids)
	}
	table.index()
	return table, nil
}

// sortedPIDs returns pids in order, without duplicates.
func sortedPIDs(pids []int) []int {
	sorted := append([]int(nil), pids...)
	sort.Ints(sorted)
	kept := sorted[:0]
	for i, pid := range sorted {
		if i == 0 || pid != sorted[i-1] {
			kept = append(kept, pid)
		}
	}
	return kept
}

// retain keeps the rows of these processes, and records which of them have none.
func (t *Table) retain(pids []int) {
	seen := make([]bool, len(pids))
	rows := t.rows[:0]
	for _, row := range t.rows {
		pid := int(order.Uint32(t.bytes[row.record+8:]))
		i := sort.SearchInts(pids, pid)
		if i < len(pids) && pids[i] == pid {
			seen[i] = true
			rows = append(rows, row)
		}
	}
	t.rows = rows
	for i, seen := range seen {
		if !seen {
			t.missing = append(t.missing, pids[i])
		}
	}
}

func (c *Client) open(ctx context.Context, show uint64, pid int, name string) (*os.File, error) {
	const tries, pause = 5, time.Millisecond
	if toPID(pid) == 0 {
		return nil, noProcess(pid)
	}
	path := "/proc/" + strconv.Itoa(pid) + "/" + name
	var file *os.File
	for try := 1; ; try++ {
		err := c.exchange(ctx, func(conn *connection) (err error) {
			if conn.bits.known&show == 0 {
				return failf(ErrUnsupported, "the broker at %s opens no files of processes", c.path)
			}
			// If the first thread has ended, another one may have the memory.
			for _, which := range []strategy{oneProcess, threadsOf} {
				if file, err = conn.askFile(show, which, toPID(pid), path); err != nil || file != nil {
					break
				}
			}
			return err
		})
		switch {
		case errors.Is(err, syscall.EBUSY) || errors.Is(err, ErrBusy):
			// The process executed another program in between, or the broker is busy.
			if try == tries {
				return nil, err
			}
			time.Sleep(pause)
		case err != nil:
			return nil, err
		case file == nil:
			return nil, failf(ErrNoMemory, "pid %d has no mappings: it is a kernel thread or a zombie", pid)
		default:
			return file, nil
		}
	}
}
