package taskdiag

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Check that one process has the values that it knows of itself, by method, as columns and by name;
// and that a field that was not requested has the right reason.
func TestThisProcess(t *testing.T) {
	client := connect(t)
	fields := fieldsOf(t, "pid,ppid,comm,uid,threads_count,cmdline,state,kernel_thread,nice")
	row, err := client.Process(context.Background(), os.Getpid(), fields)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := row.PID()
	ppid, _ := row.PPID()
	uid, _ := row.UID()
	arguments, _ := row.Cmdline()
	if int(pid) != os.Getpid() || int(ppid) != os.Getppid() || int(uid) != os.Getuid() || !same(arguments.Slice(), os.Args) {
		t.Errorf("%d %d %d %v", pid, ppid, uid, arguments.Slice())
	}
	if _, reason := row.RSSBytes(); reason != NotAsked {
		t.Errorf("%v", reason)
	}
	if text, _ := row.MarshalJSON(); fmt.Sprint(row) != string(text) || fmt.Sprint(Row{}) != "{}" {
		t.Errorf("%v is not %s", row, text)
	}
	if value, reason := row.Value(Comm); reason != 0 || value.Text() == "" || value.Kind() != KindText {
		t.Errorf("%v %v", value, reason)
	}
	for _, pid := range []int{0, -1, 1 << 40, 4194304 - 1} {
		if _, err := client.Process(context.Background(), pid, fields); !errors.Is(err, ErrNoProcess) {
			t.Errorf("%d: %v", pid, err)
		}
	}
}

// Check that the example prints as many processes as it was told to.
func TestTheExampleRuns(t *testing.T) {
	output, err := exec.Command("go", "run", "./examples/top", "-n", "3", "-socket", theBroker(t)).CombinedOutput()
	lines := strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
	if err != nil || len(lines) != 3 {
		t.Errorf("%v: %s", err, output)
	}
	for _, line := range lines {
		var pid, resident int
		var name string
		if n, err := fmt.Sscanf(line, "%d %d %q", &pid, &resident, &name); n != 3 || pid <= 0 || resident <= 0 {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// Check the selection of children, threads and listed processes.
func TestSelections(t *testing.T) {
	client := connect(t)
	ctx := context.Background()
	pids := zoo(t, os.Geteuid(), "family", "threads-5", "stopped")
	family, threads := pids["family"], pids["threads-5"]
	children, err := client.Processes(ctx, []Field{PID, PPID}, ChildrenOf(family))
	if err != nil || children.Len() != 3 {
		t.Fatalf("%v: %v", children, err)
	}
	for _, ppid := range children.Uint64s(nil, PPID, 0) {
		if int(ppid) != family {
			t.Errorf("a child of %d", ppid)
		}
	}
	table, err := client.Threads(ctx, []Field{PID, TID}, PIDs(threads))
	if err != nil || table.Len() != 5 {
		t.Fatalf("%v: %v", table, err)
	}
	if _, found := table.Find(threads); !found {
		t.Error("the first thread is not found")
	}
	number := 0
	table.All()(func(i int, row Row) bool {
		number++
		return i < 2
	})
	if number != 3 {
		t.Errorf("%d rows until the third", number)
	}
	if _, err := client.Threads(ctx, []Field{PID}, ChildrenOf(family)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v", err)
	}

	// A list of many pids, most of them unused.
	var many []int
	for pid := -100; pid < 1_000_000; pid++ {
		many = append(many, pid)
	}
	many = append(many, family, family, pids["stopped"], os.Getpid())
	unique := make(map[int]bool)
	for _, pid := range many {
		unique[pid] = true
	}
	all, err := client.Processes(ctx, []Field{PID}, PIDs(many...))
	if err != nil || all.Len() < 3 || all.Len()+len(all.Missing()) != len(unique) {
		t.Fatalf("%d rows, %d missing: %v", all.Len(), len(all.Missing()), err)
	}
	if row, found := all.Find(pids["stopped"]); !found || row.Absent(PID) != 0 {
		t.Error("a process is not there")
	}
	none, err := client.Processes(ctx, []Field{PID}, PIDs())
	if err != nil || none.Len() != 0 {
		t.Errorf("%v: %v", none, err)
	}
}

// Check that opened mappings belong to the process, and the errors if there are none.
func TestOpenMaps(t *testing.T) {
	client := connect(t)
	ctx := context.Background()
	pids := zoo(t, os.Geteuid(), "stopped", "dead-leader", "zombie")
	for name, open := range map[string]func(context.Context, int) (*os.File, error){
		"maps": client.OpenMaps, "smaps": client.OpenSmaps,
	} {
		file, err := open(ctx, pids["stopped"])
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		file.Close()
		own, errOwn := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pids["stopped"], name))
		if err != nil || errOwn != nil || string(text) != string(own) || len(text) == 0 {
			t.Errorf("%s: %v: %.100s", name, err, text)
		}
		// Its other threads live.
		if file, err := open(ctx, pids["dead-leader"]); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			text, err := io.ReadAll(file)
			file.Close()
			if err != nil || !bytes.Contains(text, []byte("[stack]")) {
				t.Errorf("%s: %v: %.100s", name, err, text)
			}
		}
		if _, err := open(ctx, pids["zombie"]); !errors.Is(err, ErrNoMemory) {
			t.Errorf("%s: %v", name, err)
		}
		for _, pid := range []int{0, -1, 1 << 40, 4194304 - 1} {
			if _, err := open(ctx, pid); !errors.Is(err, ErrNoProcess) {
				t.Errorf("%s of %d: %v", name, pid, err)
			}
		}
	}
}

// Check that the user nobody sees their own processes, and nothing about others.
func TestNobodySeesItsOwn(t *testing.T) {
	if socket, pids, isNobody := told(t); isNobody {
		client := connectTo(t, socket)
		ctx := context.Background()
		table, err := client.Processes(ctx, fieldsOf(t, "pid,uid,cmdline,environ"))
		if err != nil {
			t.Fatal(err)
		}
		if _, found := table.Find(pids["own"]); !found {
			t.Error("its own process is not there")
		}
		for i := 0; i < table.Len(); i++ {
			if uid, reason := table.Row(i).UID(); uid != nobody || reason != 0 {
				t.Errorf("a process of user %d: %v", uid, reason)
			}
		}
		if _, err := client.Process(ctx, pids["root"], []Field{PID}); !errors.Is(err, ErrNoProcess) {
			t.Errorf("%v", err)
		}
		if _, err := client.OpenMaps(ctx, pids["root"]); !errors.Is(err, ErrNoProcess) && !errors.Is(err, ErrDenied) {
			t.Errorf("%v", err)
		}
		return
	}
	socket := theBroker(t)
	runAsNobody(t, socket, map[string]int{
		"own":  zoo(t, nobody, "stopped")["stopped"],
		"root": zoo(t, 0, "stopped")["stopped"],
	})
}

// Check that a client survives its broker: it reports a missing broker, and finds the next one.
func TestTheBrokerRestarts(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "socket")
	first := startBroker(t, path)
	client := connectTo(t, path)
	ctx := context.Background()
	ask := func() error {
		_, err := client.Process(ctx, os.Getpid(), []Field{PID, Comm})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	_ = first.process.Process.Kill()
	_ = first.process.Wait()
	for i := 0; i < 2; i++ {
		if err := ask(); !errors.Is(err, ErrNoBroker) || !strings.Contains(err.Error(), "taskdiagd --socket "+path) {
			t.Fatalf("%v", err)
		}
	}
	second := startBroker(t, path)
	defer func() { second.stop() }()
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	// A client that sends no requests in between does not notice.
	second.stop()
	second = startBroker(t, path)
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	// Now with requests in between.
	var group sync.WaitGroup
	stop := make(chan struct{})
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				table, err := client.Processes(ctx, []Field{PID, Comm})
				switch {
				case err == nil && table.Len() == 0:
					t.Error("an answer without this process")
				case err != nil && !errors.Is(err, ErrNoBroker):
					t.Errorf("%v", err)
				}
			}
		}()
	}
	for i := 0; i < 3; i++ {
		second.stop()
		second = startBroker(t, path)
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	group.Wait()
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// Check that a closed client returns ErrClosed, also while others use it.
func TestClosed(t *testing.T) {
	client := connect(t)
	ctx := context.Background()
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				if _, err := client.Process(ctx, os.Getpid(), []Field{PID}); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("%v", err)
					}
					return
				}
			}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	client.Close()
	client.Close()
	group.Wait()
	if _, err := client.OpenMaps(ctx, os.Getpid()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// Check that a client answers correctly after a query that was cancelled at any time: deadlines grow
// until an answer comes in time.
func TestCancelledQueries(t *testing.T) {
	client := connect(t)
	fields := fieldsOf(t, "pid,comm,uid,rss_bytes,cmdline")
	for deadline := 10 * time.Microsecond; ; deadline += deadline / 8 {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		_, err := client.Processes(ctx, fields)
		cancel()
		row, errAfter := client.Process(context.Background(), os.Getpid(), fields)
		if errAfter != nil {
			t.Fatal(errAfter)
		}
		if pid, _ := row.PID(); int(pid) != os.Getpid() {
			t.Fatalf("pid %d after a deadline of %v", pid, deadline)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || deadline > 10*time.Second {
			t.Fatalf("after %v: %v", deadline, err)
		}
	}
}

// Check that a process that blocks its reader loses only its own values, and that repeated queries
// hold no more threads.
func TestHeldReaders(t *testing.T) {
	needRoot(t)
	t.Run("held", heldReaders)
	// The processes have ended, so they hold no readers any more.
	until(t, "all readers have come back", func() bool {
		held.Lock()
		defer held.Unlock()
		return len(held.readers) == 0
	})
}

func heldReaders(t *testing.T) {
	client := connect(t)
	pids := zoo(t, os.Geteuid(), "holds-lock", "stopped")
	fields := fieldsOf(t, "pid,comm,cmdline")
	for i := 0; i < 3; i++ {
		began := time.Now()
		table, err := client.Processes(context.Background(), fields, PIDs(values(pids)...))
		if err != nil || table.Len() != 2 {
			t.Fatalf("%v: %v", table, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		holder, _ := table.Find(pids["holds-lock"])
		other, _ := table.Find(pids["stopped"])
		if _, reason := holder.Cmdline(); reason != NoAnswer {
			t.Errorf("%v", reason)
		}
		if arguments, reason := other.Cmdline(); reason != 0 || len(arguments.Slice()) == 0 {
			t.Errorf("%v", reason)
		}
	}
	held.Lock()
	count := 0
	for _, of := range held.readers {
		if of.pid == uint32(pids["holds-lock"]) {
			count++
		}
	}
	held.Unlock()
	if count != 1 {
		t.Errorf("it holds %d readers", count)
	}
	// Only the deadline ends this query.
	another := zoo(t, os.Geteuid(), "holds-lock")["holds-lock"]
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := client.Processes(ctx, fields, PIDs(another), Patience(time.Hour))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// Check that a reader that runs is not given up, however long that takes.
func TestSlowReadersAreWaitedFor(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	slow := func(_ string, text []byte) ([]byte, Absent) {
		room := make([]byte, 16<<20)
		for end := time.Now().Add(5 * defaultPatience); time.Now().Before(end); {
			_, _ = syscall.Read(int(zero.Fd()), room)
		}
		return text, 0
	}
	r := readerOfThis(t, ownFile{attrArgs, "cmdline", slow})
	if err := r.watch(context.Background(), []*worker{r.start()}); err != nil {
		t.Fatal(err)
	}
	if arguments, reason := r.table.Row(0).Cmdline(); reason != 0 || !same(arguments.Slice(), os.Args) {
		t.Errorf("%v: %v", arguments.Slice(), reason)
	}
}

// Check that the sums of page tables are read once for all threads of a process.
func TestThreadsShareTheirRollup(t *testing.T) {
	number := 0
	r := readerOfThis(t, ownFile{attrRollup, "smaps_rollup", func(directory string, text []byte) ([]byte, Absent) {
		number++
		return rollup(directory, text)
	}})
	r.threads = true
	r.table.rows = append(r.table.rows, r.table.rows[0])
	r.table.index()
	if err := r.watch(context.Background(), []*worker{r.start()}); err != nil {
		t.Fatal(err)
	}
	first, reason := r.table.Row(0).RollupRSSBytes()
	second, reasonOfSecond := r.table.Row(1).RollupRSSBytes()
	if number != 1 || first == 0 || second != first || reason != 0 || reasonOfSecond != 0 {
		t.Errorf("%d reads: %d %v, %d %v", number, first, reason, second, reasonOfSecond)
	}
}

// readerOfThis returns a reader for a table that has only this process.
func readerOfThis(t *testing.T, files ...ownFile) *ownReader {
	t.Helper()
	const tick = uint64(time.Second / clockTicks)
	started, _, found := (&worker{}).statOf("/proc/self")
	if !found {
		t.Fatal("this process has no stat")
	}
	one := record(uint32(os.Getpid()), 0)
	order.PutUint64(one[16:], started*tick)
	var p packets
	p.task(5, wire(wireRecord, one))
	table, err := decode(packet(p.bytes))
	if err != nil {
		t.Fatal(err)
	}
	table.room = maxAnswer
	return &ownReader{table: table, files: files, tick: tick, patience: defaultPatience, ends: make(chan struct{}, 1)}
}

// Check that texts that come in time, but take too long in total, have no value.
func TestRowsHaveALimit(t *testing.T) {
	late := &worker{began: time.Now().Add(-longest)}
	started, _, _ := late.statOf("/proc/self")
	if text, reason := readSurely(late, "/proc/self", "cmdline", started, nil); reason != NoAnswer || len(text) != 0 {
		t.Errorf("%q: %v", text, reason)
	}
}

// Check that a query ends with an error if this process has no descriptor left to read /proc with.
func TestALackOfDescriptorsIsAnError(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	r := readerOfThis(t, ownFile{attrArgs, "cmdline", asItIs})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	err := r.watch(context.Background(), []*worker{r.start()})
	if errSet := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); errSet != nil {
		t.Fatal(errSet)
	}
	if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "/proc/") {
		t.Errorf("%v", err)
	}
}

// Check that readers of queries that were just cancelled do not keep others from reading.
func TestCancelledReadersDoNotCountAtOnce(t *testing.T) {
	const pid, other = 1 << 30, 1<<30 + 1
	var workers []*worker
	holdAll := func(from time.Time) {
		held.Lock()
		defer held.Unlock()
		for i := 0; i < mostHeld; i++ {
			w := &worker{}
			workers = append(workers, w)
			held.readers[w] = holding{pid, from}
		}
	}
	defer func() {
		for _, w := range workers {
			release(w)
		}
	}()
	holdAll(time.Now().Add(time.Hour))
	if isHeld(pid) || isHeld(other) {
		t.Error("readers count that may still return")
	}
	holdAll(time.Now())
	if !isHeld(pid) || !isHeld(other) {
		t.Error("blocked readers do not count")
	}
}

// Check that the values in /proc of the groups that BPF may defer equal those of BPF.
func TestDeferredGroups(t *testing.T) {
	client := connect(t)
	pids := values(zoo(t, os.Geteuid(), "stopped", "signals", "ids-all-different", "groups-100", "capabilities",
		"affinity-cpu-0", "terminal", "memory-anon", "exe-deleted", "files-10000", "cgroup-deep", "nice-7", "burner-parent",
		"dead-leader"))
	var fields []Field
	all := uint32(0)
	for _, field := range askable() {
		if _, can := deferredGroups[1<<fieldTable[field].group]; can {
			fields = append(fields, field)
			all |= 1 << fieldTable[field].group
		}
	}
	differ := map[string]string{}
	for try := 0; try < 8; try++ {
		now := map[string]string{}
		table, err := client.Processes(context.Background(), fields, PIDs(pids...))
		if err != nil {
			t.Fatal(err)
		}
		before := rowsOf(t, table)
		for row := range table.rows {
			table.leaveOut(row, all)
		}
		if err := table.readOwn(context.Background(), defaultPatience, false); err != nil {
			t.Fatal(err)
		}
		for row, after := range rowsOf(t, table) {
			for _, field := range fields {
				a, b := valueOf(before[row], field.String()), valueOf(after, field.String())
				key := fmt.Sprintf("%d: %v", row, field)
				_, differed := differ[key]
				if !same(a, b) && !isTick(field, before[row], after) && (differed || try == 0) {
					now[key] = fmt.Sprintf("BPF says %.80v, and /proc %.80v", a, b)
				}
			}
		}
		if differ = now; len(differ) == 0 {
			return
		}
	}
	for key, both := range differ {
		t.Errorf("%s: %s", key, both)
	}
}

// isTick reports whether times differ by at most what ticks lose.
func isTick(field Field, before, after object) bool {
	if fieldTable[field].Kind != KindNanoseconds {
		return false
	}
	var a, b int64
	_, errA := fmt.Sscan(fmt.Sprint(before[field.String()]), &a)
	_, errB := fmt.Sscan(fmt.Sprint(after[field.String()]), &b)
	return errA == nil && errB == nil && a-b >= 0 && a-b < 10_000_000
}

// Check that the number of allocations of a query does not depend on the number of processes.
func TestAllocationsAreConstant(t *testing.T) {
	client := connect(t)
	fields := fieldsOf(t, "pid,ppid,comm,uid,gid,state,rss_bytes,vsize_bytes,utime_ns,stime_ns,start_ns,threads_count")
	measure := func() float64 {
		return testing.AllocsPerRun(20, func() {
			table, err := client.Processes(context.Background(), fields)
			if err != nil {
				t.Error(err)
				return
			}
			for i, sum := 0, uint64(0); i < table.Len(); i++ {
				row := table.Row(i)
				rss, _ := row.RSSBytes()
				used, _ := row.UtimeNS()
				name, _ := row.Comm()
				sum += rss + used + uint64(len(name))
			}
		})
	}
	few := measure()
	farm(t, 3000, 1)
	// Once an answer is no small one, the number of tasks is looked up.
	many := measure()
	farm(t, 1000, 1)
	if more := measure(); few > 15 || many > few+20 || more > many {
		t.Errorf("%v allocations, %v with 3,000 processes more, and %v with 4,000", few, many, more)
	}
}

// usage has the values that a leak would increase.
type usage struct {
	heap                   uint64
	goroutines, files, rss int
}

func used(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	rss := 0
	if _, err := fmt.Sscan(line, &rss); err != nil {
		t.Fatal(err)
	}
	return usage{memory.HeapAlloc, runtime.NumGoroutine(), len(files), rss}
}

// Check that 10,000 queries of all kinds, many of which fail, leak nothing.
func TestSoak(t *testing.T) {
	client := connect(t)
	own := os.Getpid()
	fields := fieldsOf(t, "pid,comm,uid,rss_bytes,cmdline")
	queries := 0
	round := func(number int) {
		for i := 0; i < number; i++ {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			switch i % 10 {
			case 0:
				_, _ = client.Processes(ctx, fields[:4])
			case 1:
				if file, err := client.OpenMaps(ctx, own); err == nil {
					file.Close()
				} else {
					t.Error(err)
				}
			case 2:
				_, _ = client.Process(ctx, 4194304-1, fields)
			case 3:
				_, _ = client.Threads(ctx, fields, PIDs(own))
			case 4:
				cancel()
				_, _ = client.Processes(ctx, fields)
			case 5:
				late, stop := context.WithTimeout(ctx, 50*time.Microsecond)
				_, _ = client.Processes(late, fields[:4])
				stop()
			case 6:
				if other, err := Dial(ctx, Socket(client.path)); err == nil {
					_, _ = other.Process(ctx, own, fields)
					other.Close()
				}
			default:
				if _, err := client.Process(ctx, own, fields); err != nil {
					t.Error(err)
				}
			}
			cancel()
			queries++
		}
	}
	round(2000)
	before := used(t)
	round(8000)
	var after usage
	until(t, fmt.Sprintf("nothing more than %+v is in use", before), func() bool {
		after = used(t)
		return after.goroutines <= before.goroutines && after.files <= before.files &&
			after.heap < before.heap+1<<20 && after.rss < before.rss+16<<10
	})
	if queries != 10_000 {
		t.Errorf("%d queries", queries)
	}
}

// Check that a child of this process can't send requests over its connection: the broker answers
// only the process that connected. A Go program has no children that continue with its memory, but
// they may inherit its descriptors.
func TestDescriptorsAreNotInherited(t *testing.T) {
	client := connect(t)
	raw, err := client.conn.socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags uintptr
	_ = raw.Control(func(descriptor uintptr) {
		flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, descriptor, syscall.F_GETFD, 0)
	})
	if flags&syscall.FD_CLOEXEC == 0 {
		t.Error("a program that is executed has the connection")
	}
}

// Check that a task that lost its memory after the broker had read it has no command line, that a
// task that emptied its own has an empty one, and that the file of another task is not used.
func TestEmptyCommandLines(t *testing.T) {
	pids := zoo(t, os.Geteuid(), "zombie", "title-nowhere")
	for name, want := range map[string]Absent{"zombie": NoMemory, "title-nowhere": 0} {
		directory := fmt.Sprintf("/proc/%d", pids[name])
		started, _, found := (&worker{}).statOf(directory)
		text, reason := readSurely(&worker{began: time.Now()}, directory, "cmdline", started, nil)
		if !found || reason != want || len(text) != 0 {
			t.Errorf("%s: %q, %v", name, text, reason)
		}
		if _, reason := readSurely(&worker{began: time.Now()}, directory, "stat", started+1, nil); reason != Gone {
			t.Errorf("%s of another: %v", name, reason)
		}
	}
}

// Check that values of groups that BPF could not read have the library's reasons if they are
// missing.
func TestReasonsOfDeferredGroups(t *testing.T) {
	stat := func(size, code string) string {
		words := strings.Fields("7 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 1 0 249641 " + strings.Repeat("8 ", 30))
		words[23-1], words[26-1], words[27-1] = size, code, code
		return strings.Join(words, " ")
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zombie.Wait() }()
	ended := fmt.Sprintf("/proc/%d", zombie.Process.Pid)
	until(t, "it is a zombie", func() bool {
		_, size, found := (&worker{}).statOf(ended)
		return found && size == 0
	})
	mount, _, found := (&worker{}).cgroupMount()
	var root syscall.Stat_t
	wantRoot := Unsupported
	if found && syscall.Stat(mount, &root) == nil {
		wantRoot = 0
	}
	for name, each := range map[string]struct {
		directory, file, text string
		group                 uint32
		attr                  uint8
		want                  Absent
	}{
		"outside the namespace":   {"", "cgroup", "0::/../..\n", groupCgroup, attrCgroup, Unsupported},
		"above the namespace":     {"", "cgroup", "0::/..\n", groupCgroup, attrCgroup, Unsupported},
		"a removed cgroup":        {"", "cgroup", "1:cpu:/\n0::/x (deleted)\n", groupCgroup, attrCgroup, Gone},
		"the root":                {"", "cgroup", "0::/\n", groupCgroup, attrCgroup, wantRoot},
		"no unified hierarchy":    {"", "cgroup", "1:cpu:/\n", groupCgroup, attrCgroup, Unsupported},
		"addresses":               {"", "stat", stat("4096", "4096"), groupLayout, attrLayout, 0},
		"hidden addresses":        {"", "stat", stat("4096", "1"), groupLayout, attrLayout, Denied},
		"a kernel thread":         {"", "stat", stat("0", "1"), groupLayout, attrLayout, NoMemory},
		"an exiting task":         {"", "stat", stat("0", "0"), groupLayout, attrLayout, NoMemory},
		"a zombie's program":      {ended, "status", "", groupPaths, attrExe, NoMemory},
		"a zombie's directory":    {ended, "status", "", groupPaths, attrCwd, Gone},
		"a path that is too long": {strings.Repeat("/x", 4096), "status", "", groupPaths, attrCwd, Truncated},
	} {
		files := &taskFiles{each.directory, 0, &worker{began: time.Now()}, map[string]fileText{each.file: {each.text, 0}, "personality": {}}}
		for _, of := range deferredGroups[each.group](files) {
			if of.attr != each.attr {
				continue
			}
			if of.reason != each.want {
				t.Errorf("%s: %v, not %v", name, of.reason, each.want)
			}
			if name == "the root" && wantRoot == 0 && order.Uint64(of.payload) != root.Ino {
				t.Errorf("the root cgroup is not %d", root.Ino)
			}
		}
	}
}
