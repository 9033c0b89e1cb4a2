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

// DefaultSocket is where the broker answers, unless it was told otherwise.
const DefaultSocket = "/run/taskdiag/taskdiag.sock"

// Client asks the broker. Goroutines may share it: their requests are sent one after the other. It
// connects again if the broker has ended the connection or was restarted.
type Client struct {
	path string
	// Has an element while a goroutine uses what follows: a lock that can be waited for together with
	// other channels.
	turn  chan struct{}
	conn  *connection
	sizes map[question]shape
	// Closed by Close.
	closing chan struct{}
	close   sync.Once
}

// question is what requests have in common whose answers are about equally long.
type question struct {
	show  uint64
	which strategy
}

// shape is the length of an answer.
type shape struct{ bytes, rows int }

// Option is an option of Dial.
type Option func(*Client)

// Socket lets Dial connect to the broker at a path other than [DefaultSocket].
func Socket(path string) Option { return func(c *Client) { c.path = path } }

// Dial connects to the broker. If none answers the error is an [ErrNoBroker]; if it is of another
// version, an [ErrVersion].
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

// Close ends the connection. Queries that are under way, and those that come later, get ErrClosed.
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

// Selection says which processes a query is about, or how they are read.
type Selection func(*selection)

type selection struct {
	pids     []int
	only     bool
	parent   uint32
	ofParent bool
	patience time.Duration
}

// PIDs asks about these processes only. Those that are not there have no row: Table.Missing has
// them.
func PIDs(pids ...int) Selection {
	return func(s *selection) {
		s.only = true
		s.pids = append(s.pids, pids...)
	}
}

// ChildrenOf asks about the children of a process only.
func ChildrenOf(pid int) Selection {
	return func(s *selection) { s.ofParent, s.parent = true, toPID(pid) }
}

// Patience is how long the read of a file of /proc may make no progress, for fields that this process
// reads itself (command lines, environments): after that, the value is absent as NoAnswer. A fifth of
// a second without this option.
func Patience(patience time.Duration) Selection {
	return func(s *selection) { s.patience = patience }
}

// toPID returns a pid as it is sent; 0, which no process has, for what can't be one.
func toPID(pid int) uint32 {
	if pid < 0 || pid > math.MaxInt32 {
		return 0
	}
	return uint32(pid)
}

// Processes returns the fields of all processes that this process may see, or of those selected.
func (c *Client) Processes(ctx context.Context, fields []Field, selections ...Selection) (*Table, error) {
	return c.query(ctx, fields, false, selections)
}

// Threads returns the fields of all threads that this process may see, or of those of the processes
// selected.
func (c *Client) Threads(ctx context.Context, fields []Field, selections ...Selection) (*Table, error) {
	return c.query(ctx, fields, true, selections)
}

// Process returns the fields of one process. If it is not there the error is an [ErrNoProcess].
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

// OpenMaps returns /proc/PID/maps of a process, opened by the broker: for its text, and for
// PROCMAP_QUERY. It takes the right to trace the process (ErrDenied). ErrNoMemory if the process has
// no mappings.
func (c *Client) OpenMaps(ctx context.Context, pid int) (*os.File, error) {
	return c.open(ctx, showMaps, pid, "maps")
}

// OpenSmaps returns /proc/PID/smaps, as OpenMaps does maps.
func (c *Client) OpenSmaps(ctx context.Context, pid int) (*os.File, error) {
	return c.open(ctx, showSmaps, pid, "smaps")
}

// exchange calls ask with a connection. If the broker has ended the connection, it connects again and
// calls ask again.
func (c *Client) exchange(ctx context.Context, ask func(*connection) error) error {
	select {
	case c.turn <- struct{}{}:
		defer c.leave()
	case <-ctx.Done():
		return stopped(c.path, ctx.Err())
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

// query asks for a table.
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

// groupsOf returns the groups of fields. Ids, which every record has, need none.
func groupsOf(fields []Field) (uint32, error) {
	groups := uint32(0)
	for _, field := range fields {
		switch {
		case int(field) >= len(fieldTable):
			return 0, failf(ErrUnknownField, "there is no field with the number %d", field)
		case fieldTable[field].form == formDerived:
			return 0, failf(ErrUnsupported, "the field %v is made by the library (%s), and the broker does not send it",
				field, fieldTable[field].Origin)
		case field == RollupAgeNS:
			return 0, failf(ErrUnsupported, "the field %v is the library's: this client keeps no values", field)
		case field != PID && field != TID:
			groups |= 1 << fieldTable[field].group
		}
	}
	return groups, nil
}

// ask asks for the rows of a table.
func (c *Client) ask(conn *connection, fields []Field, groups uint32, threads bool, chosen *selection) (*Table, error) {
	// So many processes are asked for one by one. If there are more, all processes are asked for, and
	// the others dropped.
	const fewPIDs = 16
	known := uint32(conn.bits.known >> groupsShift)
	show := uint64(groups&known&^ownGroups) << groupsShift
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
	table.groups = groups & (known | ownGroups)
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
	if chosen.only {
		table.retain(pids)
	}
	table.index()
	return table, nil
}

// sortedPIDs returns pids in order, each once.
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

// retain keeps the rows of these processes, and notes which of them have none.
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
			file, err = conn.askFile(show, toPID(pid), path)
			return err
		})
		switch {
		case errors.Is(err, syscall.EBUSY) || errors.Is(err, ErrBusy):
			// The process executed another program meanwhile, or the broker has too much to do.
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
