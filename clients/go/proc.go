package taskdiag

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The broker sends neither the contents of processes' memory nor texts that only /proc has. This
// process reads them from its own /proc, with its own rights.
//
// A process can block a reader for as long as it likes. So each reader is watched. A reader that
// makes no progress, and is not running either, is given up: the value is absent with the reason
// NoAnswer, and another reader continues with the next process. A reader that was given up occupies
// a thread until its system call returns. Until then that process is not read again; and while
// mostHeld readers are held, no process is.

const (
	defaultPatience = 200 * time.Millisecond
	// The number of active readers, and the maximum number of held readers in the whole program.
	mostReaders = 4
	mostHeld    = 32
	// The maximum length of a text. The kernel limits arguments and environments to 6 MiB.
	mostText = 16 << 20
	// How long the texts of one row may take in total, even if each piece of them comes in time.
	longest = 5 * time.Second
)

// ownGroups are the groups that this process reads itself.
const ownGroups = groupArgs | groupEnv | groupRollup | groupText

// ownFile is a file of /proc/PID whose content becomes an attribute.
type ownFile struct {
	attr uint8
	name string
	// make builds the payload from the text, or returns the reason why there is none.
	make func(directory string, text []byte) ([]byte, Absent)
}

var ownFiles = [...]ownFile{
	{attrArgs, "cmdline", asItIs},
	{attrEnv, "environ", asItIs},
	{attrWchan, "wchan", wchan},
	{attrSecurityLabel, "attr/current", securityLabel},
	{attrCgroups, "cgroup", cgroups},
	{attrRollup, "smaps_rollup", rollup},
}

// held are the readers of this program that were given up and have not returned.
var held = struct {
	sync.Mutex
	readers map[*worker]holding
}{readers: map[*worker]holding{}}

// holding has the process that holds a reader, and the time from which this counts: a reader that
// was given up because its query ended may return at once.
type holding struct {
	pid  uint32
	from time.Time
}

// ownReader reads the files of the rows of a table.
type ownReader struct {
	table    *Table
	files    []ownFile
	rows     []int // those that are read; nil for all
	threads  bool
	tick     uint64
	patience time.Duration
	next     int64 // the next row; atomic
	stop     int32 // not 0: nobody waits any more; atomic

	lock sync.Mutex // of what follows, and of the table's memory
	live int
	ends chan struct{} // has an element when all readers have ended
	err  error         // why nothing more can be read
	// By pid: threads share their memory, and its sums take long.
	rollups map[uint32][]byte
}

// worker is the state of a reader, for the goroutine that watches it.
type worker struct {
	row   int64  // atomic; -1 if none
	beats uint64 // atomic: grows with each system call
	tid   int32  // atomic: its thread
	// Under the lock of the ownReader: the reader was given up, and must not change anything any more.
	isLost bool

	// What only the reader uses: when it began with its row, and which resource this process lacked.
	began  time.Time
	lacked error
}

// readOwn reads the values that the broker does not send.
func (t *Table) readOwn(ctx context.Context, patience time.Duration, threads bool) error {
	r := &ownReader{table: t, threads: threads, patience: patience, tick: uint64(time.Second / clockTicks)}
	for _, file := range ownFiles {
		if t.slots[file.attr] != 0 {
			r.files = append(r.files, file)
		}
	}
	if len(r.files) == 0 {
		for row := range t.deferred {
			r.rows = append(r.rows, row)
		}
	}
	number := r.count()
	if number == 0 {
		return nil
	}
	if own, err := os.Readlink("/proc/self"); err != nil || own != strconv.Itoa(os.Getpid()) {
		// There is no /proc, or it belongs to another pid namespace, in which the pids are other
		// processes.
		t.cannotRead(r)
		return nil
	}
	r.ends = make(chan struct{}, 1)
	workers := make([]*worker, 0, mostReaders)
	for len(workers) < mostReaders && len(workers) < runtime.GOMAXPROCS(0) && len(workers) <= number/32 {
		workers = append(workers, r.start())
	}
	return r.watch(ctx, workers)
}

// cannotRead records why each value is missing if nothing can be read.
func (t *Table) cannotRead(r *ownReader) {
	for row := range t.rows {
		hasNoMemory := order.Uint32(t.record(row)[4:])&flagNoMM != 0
		for _, file := range r.files {
			reason := Unsupported
			if hasNoMemory && file.isOfMemory() {
				reason = NoMemory
			}
			t.set(row, file.attr, uint32(reason))
		}
	}
}

// isOfMemory reports whether only tasks with memory have the file's values.
func (f ownFile) isOfMemory() bool {
	return f.attr == attrArgs || f.attr == attrEnv || f.attr == attrRollup
}

// count returns the number of rows to read.
func (r *ownReader) count() int {
	if len(r.files) > 0 {
		return len(r.table.rows)
	}
	return len(r.rows)
}

// watch waits until all rows are read, and gives up readers that make no progress.
func (r *ownReader) watch(ctx context.Context, workers []*worker) error {
	const looks = 10
	period := r.patience/looks + time.Millisecond
	timer := time.NewTimer(period)
	defer timer.Stop()
	// The state of a reader at the last look, and how long it has waited in a system call since then.
	// While it ran, or waited for a processor, it was slow but not blocked.
	type sight struct {
		beats uint64
		quiet time.Duration
	}
	sights := make([]sight, len(workers))
	last := time.Now()
	for {
		select {
		case <-r.ends:
			return r.err
		case <-ctx.Done():
			atomic.StoreInt32(&r.stop, 1)
			for _, w := range workers {
				r.giveUp(w, time.Now().Add(r.patience))
			}
			return stopped("the reading of /proc", ctx.Err())
		case <-timer.C:
			now := time.Now()
			passed := now.Sub(last)
			// If this goroutine itself did not get to run, that says nothing about the readers.
			if passed > 2*period {
				passed = 2 * period
			}
			last = now
			for i, w := range workers {
				seen := &sights[i]
				if beats := atomic.LoadUint64(&w.beats); beats != seen.beats {
					*seen = sight{beats: beats}
				} else if !isRunning(atomic.LoadInt32(&w.tid)) {
					seen.quiet += passed
				}
				if seen.quiet > 0 && seen.quiet >= r.patience && r.giveUp(w, now) {
					workers[i], *seen = r.start(), sight{}
				}
			}
			timer.Reset(period)
		}
	}
}

// start starts a reader.
func (r *ownReader) start() *worker {
	w := &worker{row: -1}
	r.lock.Lock()
	r.live++
	r.lock.Unlock()
	go r.work(w)
	return w
}

// giveUp gives up a reader. It returns false if the reader has returned in between.
func (r *ownReader) giveUp(w *worker, from time.Time) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	row := atomic.LoadInt64(&w.row)
	if row < 0 || w.isLost {
		return false
	}
	w.isLost = true
	r.live--
	r.table.noAnswer(int(row), r.files)
	held.Lock()
	defer held.Unlock()
	held.readers[w] = holding{r.table.pid(int(row)), from}
	return true
}

// release records that a reader has returned.
func release(w *worker) {
	held.Lock()
	defer held.Unlock()
	delete(held.readers, w)
}

// isHeld reports whether a process must not be read now.
func isHeld(pid uint32) bool {
	held.Lock()
	defer held.Unlock()
	if len(held.readers) == 0 {
		return false
	}
	now, count := time.Now(), 0
	for _, of := range held.readers {
		if now.Before(of.from) {
			continue
		}
		if of.pid == pid {
			return true
		}
		count++
	}
	return count >= mostHeld
}

// isRunning reports whether a thread of this process runs or waits for a processor.
func isRunning(tid int32) bool {
	var text [1024]byte
	n, err := readStat("/proc/self/task/"+strconv.Itoa(int(tid)), text[:])
	end := bytes.LastIndexByte(text[:n], ')')
	return err == nil && end >= 0 && end+2 < n && text[end+2] == 'R'
}

// work reads rows until there are no more.
func (r *ownReader) work(w *worker) {
	// So that the state of the thread is that of this reader.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	atomic.StoreInt32(&w.tid, int32(syscall.Gettid()))
	var text []byte
	var list []ownAttribute
	for isStopped := false; !isStopped; {
		row := int(atomic.AddInt64(&r.next, 1) - 1)
		if row >= r.count() {
			break
		}
		if r.rows != nil {
			row = r.rows[row]
		}
		// Whoever sets stop looks at the rows afterwards.
		atomic.StoreInt64(&w.row, int64(row))
		isStopped = atomic.LoadInt32(&r.stop) != 0
		isRead := !isStopped && !isHeld(r.table.pid(row))
		if isRead {
			text, list = r.readRow(w, row, text[:0], list[:0])
		}
		if !r.put(w, row, isRead, list) {
			release(w)
			return
		}
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.live--; r.live == 0 {
		// A reader that finished while others were being started may already have sent it.
		select {
		case r.ends <- struct{}{}:
		default:
		}
	}
}

// put stores the attributes of a row in the table, if they were read. It returns false if the
// reader was given up.
func (r *ownReader) put(w *worker, row int, isRead bool, list []ownAttribute) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	if w.isLost {
		return false
	}
	atomic.StoreInt64(&w.row, -1)
	switch {
	case !isRead:
		r.table.noAnswer(row, r.files)
		return true
	case w.lacked != nil:
		// All other rows would lack values for this reason, too.
		r.err = &failure{nil, "can't read /proc/" + strconv.Itoa(int(r.table.pid(row))), w.lacked}
		atomic.StoreInt32(&r.stop, 1)
	}
	for _, of := range list {
		r.table.setOwn(row, of)
	}
	return true
}

func (t *Table) pid(row int) uint32 { return order.Uint32(t.bytes[t.rows[row].record+8:]) }

// set stores the place of an attribute of a row, or the reason why it is missing.
func (t *Table) set(row int, attr uint8, at uint32) {
	if slot := int(t.slots[attr]); slot != 0 {
		t.places[row*t.width+slot-1] = at
	}
}

// noAnswer records that the values of a row could not be read in time.
func (t *Table) noAnswer(row int, files []ownFile) {
	for _, file := range files {
		t.set(row, file.attr, uint32(NoAnswer))
	}
	for _, field := range t.fields {
		if t.deferred[row]>>fieldTable[field].group&1 != 0 {
			t.set(row, fieldTable[field].attr, uint32(NoAnswer))
		}
	}
}

// setOwn adds an attribute to a row.
func (t *Table) setOwn(row int, of ownAttribute) {
	switch {
	case t.slots[of.attr] == 0:
		return
	case of.reason == 0 && firstPlace+attrHeader+len(t.own)+len(of.payload) > t.room:
		of.reason = Truncated
	}
	if of.reason != 0 {
		t.set(row, of.attr, uint32(of.reason))
		return
	}
	// Places below firstPlace are reasons.
	for len(t.own) < firstPlace {
		t.own = append(t.own, 0)
	}
	var header [attrHeader]byte
	order.PutUint32(header[:], uint32(len(of.payload)))
	order.PutUint16(header[4:], uint16(of.attr))
	t.own = append(t.own, header[:]...)
	t.set(row, of.attr, uint32(len(t.own))|inOwn)
	t.own = append(t.own, of.payload...)
	for field, reason := range of.absent {
		if t.exceptions == nil {
			t.exceptions = map[exception]Absent{}
		}
		t.exceptions[exception{row, field}] = reason
	}
}

// readRow reads the files of a row. The attributes share the memory of the text.
func (r *ownReader) readRow(w *worker, row int, text []byte, list []ownAttribute) ([]byte, []ownAttribute) {
	w.began = time.Now()
	record := r.table.record(row)
	hasNoMemory := order.Uint32(record[4:])&flagNoMM != 0
	pid := order.Uint32(record[8:])
	directory := "/proc/" + strconv.FormatUint(uint64(pid), 10)
	if r.threads {
		directory += "/task/" + strconv.FormatUint(uint64(order.Uint32(record[12:])), 10)
	}
	started := order.Uint64(record[16:]) / r.tick
	for _, file := range r.files {
		of := ownAttribute{attr: file.attr}
		isShared := file.attr == attrRollup && r.threads
		if hasNoMemory && file.isOfMemory() {
			of.reason = NoMemory
		} else if isShared {
			r.lock.Lock()
			of.payload = r.rollups[pid]
			r.lock.Unlock()
		}
		if of.payload == nil && of.reason == 0 {
			begin := len(text)
			text, of.reason = readSurely(w, directory, file.name, started, text)
			if (of.reason == NoMemory || of.reason == Gone) && file.isOfMemory() && !r.threads {
				if thread, start := w.liveThread(directory, started); thread != "" {
					text, of.reason = readSurely(w, thread, file.name, start, text[:begin])
				}
			}
			if of.reason == 0 {
				of.payload, of.reason = file.make(directory, text[begin:len(text):len(text)])
			}
			if isShared && of.reason == 0 {
				r.lock.Lock()
				if r.rollups == nil {
					r.rollups = map[uint32][]byte{}
				}
				r.rollups[pid] = of.payload
				r.lock.Unlock()
			}
		}
		list = append(list, of)
	}
	groups := r.table.deferred[row]
	if groups == 0 {
		return text, list
	}
	files := &taskFiles{directory, started, w, map[string]fileText{}}
	live := files
	if thread, start := w.liveThread(directory, started); thread != "" && !r.threads {
		live = &taskFiles{thread, start, w, map[string]fileText{}}
	}
	for group, attributes := range deferredGroups {
		switch {
		case groups&group == 0:
		case group&sharedGroups != 0:
			list = append(list, attributes(live)...)
		default:
			list = append(list, attributes(files)...)
		}
	}
	// Links and directories do not say when the task started.
	if now, _, found := w.statOf(directory); !found || now != started {
		for i := range list {
			list[i] = ownAttribute{attr: list[i].attr, reason: Gone}
		}
	}
	return text, list
}

// readSurely appends the content of a file of a task. If a thread other than the first executes a
// program, files that were opened before belong to a task that is gone. So a file that seems to be
// gone is read again.
func readSurely(w *worker, directory, name string, started uint64, text []byte) ([]byte, Absent) {
	const tries = 4
	for try := 1; ; try++ {
		read, reason := readFile(w, directory, name, started, text)
		if reason != Gone || try == tries {
			return read, reason
		}
	}
}

// readFile appends the content of a file of a task. It opens the file first. The file belongs to
// the task that started at the given time if that task has the pid afterwards and the file can
// still be read.
func readFile(w *worker, directory, name string, started uint64, text []byte) ([]byte, Absent) {
	beat := func() { atomic.AddUint64(&w.beats, 1) }
	beat()
	descriptor, err := open(directory + "/" + name)
	if err != nil {
		return text, w.reasonOf(err, name)
	}
	defer syscall.Close(descriptor)
	beat()
	if now, _, found := w.statOf(directory); !found || now != started {
		return text, Gone
	}
	begin := len(text)
	for {
		const piece = 4096
		if cap(text)-len(text) < piece {
			text = append(text, make([]byte, piece)...)[:len(text)]
		}
		if time.Since(w.began) > longest {
			return text[:begin], NoAnswer
		}
		beat()
		n, err := syscall.Read(descriptor, text[len(text):cap(text)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return text[:begin], w.reasonOf(err, name)
		}
		if n <= 0 {
			break
		}
		if text = text[:len(text)+n]; len(text)-begin > mostText {
			return text[:begin], Truncated
		}
	}
	if len(text) == begin && (name == "cmdline" || name == "environ") {
		// These files are empty for tasks that have given up their memory, but other tasks may have
		// emptied theirs. The size of the memory tells which: memory that is gone does not come back.
		now, size, found := w.statOf(directory)
		switch {
		case !found || now != started:
			return text, Gone
		case size == 0:
			return text, NoMemory
		}
	}
	return text, 0
}

func open(path string) (int, error) {
	for {
		descriptor, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return descriptor, err
		}
	}
}

// note remembers an error that says nothing about the task: this process ran out of a resource.
func (w *worker) note(err error) {
	if isLack(err) {
		w.lacked = err
	}
}

// isLack reports whether an error means that this process, or this machine, ran out of a resource.
func isLack(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// reasonOf returns the reason that an error means for a value.
func (w *worker) reasonOf(err error, name string) Absent {
	w.note(err)
	errno := syscall.Errno(0)
	errors.As(err, &errno)
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return Denied
	case syscall.ENOENT:
		// The task is gone, or this kernel has no such file.
		if syscall.Access("/proc/self/"+name, 0) == syscall.ENOENT && syscall.Access("/proc/self/stat", 0) == nil {
			return Unsupported
		}
		return Gone
	case syscall.ESRCH:
		return Gone
	case syscall.ENAMETOOLONG:
		return Truncated
	}
	return Unsupported
}

// clockTicks is USER_HZ, which is 100 on all architectures that Go supports.
const clockTicks = 100

// readStat reads the stat of a task.
func readStat(directory string, text []byte) (int, error) {
	descriptor, err := open(directory + "/stat")
	if err != nil {
		return 0, err
	}
	defer syscall.Close(descriptor)
	n, err := syscall.Read(descriptor, text)
	if err != nil {
		return 0, err
	}
	return n, nil
}

// statOf returns the start time of a task, in clock ticks, and the size of its memory.
func (w *worker) statOf(directory string) (started, size uint64, found bool) {
	var text [1024]byte
	n, err := readStat(directory, text[:])
	if err != nil {
		w.note(err)
		return 0, 0, false
	}
	// The name may contain any bytes.
	end := bytes.LastIndexByte(text[:n], ')')
	words := bytes.Fields(text[end+1 : n])
	const startAt, sizeAt = 22 - 3, 23 - 3
	if end < 0 || len(words) <= sizeAt {
		return 0, 0, false
	}
	started, errStarted := strconv.ParseUint(string(words[startAt]), 10, 64)
	size, errSize := strconv.ParseUint(string(words[sizeAt]), 10, 64)
	return started, size, errStarted == nil && errSize == nil
}

// liveThread returns the directory and the start of a thread that has memory, if the first thread
// of the process has ended: the files of the process are those of the first thread. The process
// must have started at the given time.
func (w *worker) liveThread(directory string, started uint64) (thread string, start uint64) {
	if now, size, found := w.statOf(directory); !found || now != started || size != 0 {
		return "", 0
	}
	// All that are listed may end while others live: then they are listed again.
	before := ""
	for i := 0; i < 32; i++ {
		list, err := os.Open(directory + "/task")
		if err != nil {
			return "", 0
		}
		// As many as the BPF programs look at.
		names, _ := list.Readdirnames(512)
		list.Close()
		for _, name := range names {
			thread := directory + "/task/" + name
			if start, size, found := w.statOf(thread); found && size != 0 {
				if now, _, found := w.statOf(directory); found && now == started {
					return thread, start
				}
			}
		}
		// The directory has two links, and one for each thread (proc_task_getattr in fs/proc/base.c).
		var task syscall.Stat_t
		if syscall.Stat(directory+"/task", &task) != nil || task.Nlink < 4 {
			break
		}
		// A process can keep threads that have ended, by tracing them.
		listed := strings.Join(names, " ")
		if len(names) > 1 && listed == before {
			break
		}
		before = listed
	}
	return "", 0
}

func asItIs(_ string, text []byte) ([]byte, Absent) { return text, 0 }

// wchan returns the name. The kernel prints 0 for a task that does not wait, and for a task that
// the caller may not trace. Reading a link of a namespace needs the same right and tells which.
func wchan(directory string, text []byte) ([]byte, Absent) {
	text = bytes.TrimRight(text, " \n\t")
	if string(text) != "0" && len(text) > 0 {
		return text, 0
	}
	var target [64]byte
	_, err := syscall.Readlink(directory+"/ns/cgroup", target[:])
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return nil, Denied
	}
	return nil, 0
}

func securityLabel(_ string, text []byte) ([]byte, Absent) {
	return bytes.TrimRight(text, "\n\x00"), 0
}

// cgroups returns the lines without the newline at the end.
func cgroups(_ string, text []byte) ([]byte, Absent) {
	return bytes.TrimSuffix(text, []byte("\n")), 0
}

// rollupLines are the lines of smaps_rollup, in the order of struct td_rollup.
var rollupLines = [...]string{
	"Rss", "Pss", "Pss_Dirty", "Pss_Anon", "Pss_File", "Pss_Shmem", "Shared_Clean", "Shared_Dirty",
	"Private_Clean", "Private_Dirty", "Referenced", "Anonymous", "KSM", "LazyFree", "AnonHugePages",
	"ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "Swap", "SwapPss", "Locked",
}

// rollup builds the attribute from the text of smaps_rollup. A missing line becomes all ones.
func rollup(_ string, text []byte) ([]byte, Absent) {
	payload := bytes.Repeat([]byte{0xff}, 8*(len(rollupLines)+1))
	found := false
	for _, line := range bytes.Split(text, []byte{'\n'}) {
		words := bytes.Fields(line)
		if len(words) != 3 || string(words[2]) != "kB" {
			continue
		}
		for i, name := range rollupLines {
			if string(words[0]) == name+":" {
				if kilobytes, err := strconv.ParseUint(string(words[1]), 10, 54); err == nil {
					order.PutUint64(payload[i*8:], kilobytes<<10)
					found = true
				}
			}
		}
	}
	if !found {
		// A process without memory has an empty file.
		return nil, NoMemory
	}
	return payload, 0
}
