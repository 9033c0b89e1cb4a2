package taskdiag

import (
	"math"
	"math/bits"
	"sort"
	"unsafe"
)

// A Table is an answer: one row per process or thread. It never changes, and stays valid after its
// client is closed. It is safe for concurrent use.
//
// A Table keeps the bytes of the answer, and values are read in place. So a text keeps the whole
// answer in memory; to keep few texts for a long time, copy them (strings.Clone).
type Table struct {
	fields []Field
	asked  [4]uint64
	// The requested groups.
	groups uint32
	// The packets, and the attributes that this process read itself.
	bytes, own []byte
	rows       []place
	// For each row, the places of attributes' payloads, by the slot of the attribute.
	places []uint32
	slots  [maxAttr]uint8
	width  int
	// Counters of what could not be read.
	malformed, gone int
	missing         []int
	// The maximum length of own.
	room int
	// The groups of rows that /proc must answer, and values that are missing although their attributes
	// exist.
	deferred   map[int]uint32
	exceptions map[exception]Absent
}

// exception is a field of a row.
type exception struct {
	row   int
	field Field
}

// place is the place of a row's record.
type place struct{ record, tid uint32 }

const (
	// Set in places in Table.own.
	inOwn = 1 << 31
	// Places below this are not places, but the reason why there is none: an Absent.
	firstPlace = 16
	// The longest answer that places can refer to.
	maxAnswer = inOwn - maxPacket
)

// newTable returns a table without rows. It allocates memory for an answer of the given size.
func newTable(fields []Field, size shape) *Table {
	if size.bytes += size.bytes / 8; size.bytes > maxPacket {
		// Room for a whole packet at the end.
		size.bytes += maxPacket + 1
	}
	t := &Table{
		fields: append([]Field(nil), fields...),
		bytes:  make([]byte, 0, size.bytes),
		rows:   make([]place, 0, size.rows+size.rows/8+4),
	}
	for _, field := range fields {
		t.asked[field/64] |= 1 << (field % 64)
		info := &fieldTable[field]
		t.addSlot(info.attr)
		if info.form == formComm {
			t.addSlot(attrName)
		}
	}
	t.addSlot(attrAbsent)
	return t
}

func (t *Table) addSlot(attr uint8) {
	if attr != 0 && t.slots[attr] == 0 {
		t.width++
		t.slots[attr] = uint8(t.width)
	}
}

// take makes rows of the messages of a packet, from start on. It returns whether the answer ends in
// it.
func (t *Table) take(start int, seq uint32) (bool, error) {
	return eachMessage(t.bytes, start, seq, func(m message) {
		for at := 0; ; {
			kind, payload, next := nextWire(m.attributes, at)
			if payload == nil {
				return
			}
			if kind == wireRecord {
				t.add(payload, m.at+at+nlattrHeader)
			}
			at = next
		}
	})
}

// add adds the row of a record, which is at this place in bytes.
func (t *Table) add(record []byte, at int) {
	if !isRecord(record) {
		t.malformed++
		return
	}
	switch flags := order.Uint32(record[4:]); {
	case flags&flagAgain != 0:
		// While the task was read, its pid was taken by another one, as in an execve(2) by a thread.
		t.gone++
	case flags&flagNoReader != 0:
		t.malformed++
	default:
		t.rows = append(t.rows, place{uint32(at), order.Uint32(record[12:])})
	}
}

type byTID []place

func (r byTID) Len() int           { return len(r) }
func (r byTID) Less(i, j int) bool { return r[i].tid < r[j].tid }
func (r byTID) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }

// index sorts the rows, and finds the attributes of the fields.
func (t *Table) index() {
	if !sort.IsSorted(byTID(t.rows)) {
		sort.Stable(byTID(t.rows))
	}
	t.places = make([]uint32, len(t.rows)*t.width)
	for i := range t.rows {
		at := int(t.rows[i].record)
		record := t.record(i)
		places := t.places[i*t.width : (i+1)*t.width]
		deferred := uint32(0)
		for next := recordHeader; ; {
			kind, payload, after := nextAttr(record, next)
			if after == 0 {
				break
			}
			if kind == attrDefer && next+attrHeader+4 <= len(record) {
				deferred = order.Uint32(record[payload:])
			}
			if kind < maxAttr {
				if slot := t.slots[kind]; slot != 0 && places[slot-1] == 0 {
					places[slot-1] = uint32(at + payload)
				}
			}
			next = after
		}
		if deferred != 0 {
			t.leaveOut(i, deferred)
		}
	}
}

// leaveOut removes the groups that BPF could not read exactly for a task.
func (t *Table) leaveOut(row int, groups uint32) {
	for _, field := range t.fields {
		if info := &fieldTable[field]; groups>>info.group&1 != 0 {
			t.set(row, info.attr, uint32(Unsupported))
			if t.deferred == nil {
				t.deferred = map[int]uint32{}
			}
			t.deferred[row] |= 1 << info.group
		}
	}
}

// size returns how many bytes the answer takes: the wire's, and those for finding values in them.
func (t *Table) size() int {
	const ofPlace = 4
	return len(t.bytes) + len(t.rows)*(2*ofPlace+ofPlace*t.width)
}

// record returns the record of a row.
func (t *Table) record(i int) []byte {
	at := t.rows[i].record
	length := order.Uint32(t.bytes[at:])
	return t.bytes[at : at+length : at+length]
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Row returns the row with index i. Rows are sorted by thread id. It panics if i is out of range.
func (t *Table) Row(i int) Row {
	_ = t.rows[i]
	return Row{t, i}
}

// All returns an iterator over the indices and rows of the table, for use with range from Go 1.23
// on.
func (t *Table) All() func(yield func(int, Row) bool) {
	return func(yield func(int, Row) bool) {
		for i := range t.rows {
			if !yield(i, Row{t, i}) {
				return
			}
		}
	}
}

// Fields returns the requested fields.
func (t *Table) Fields() []Field { return append([]Field(nil), t.fields...) }

// Missing returns the selected pids that have no row: the processes have ended, or are hidden from
// this process.
func (t *Table) Missing() []int { return append([]int(nil), t.missing...) }

// Lost returns the number of processes that should be in the table but are not: their pid was taken
// by another process during the read, or their record could not be decoded.
func (t *Table) Lost() int { return t.gone + t.malformed }

// Find returns the row of a process or thread, and whether it exists.
func (t *Table) Find(tid int) (Row, bool) {
	i := sort.Search(len(t.rows), func(i int) bool { return int64(t.rows[i].tid) >= int64(tid) })
	if i < len(t.rows) && int64(t.rows[i].tid) == int64(tid) {
		return Row{t, i}, true
	}
	return Row{}, false
}

// Uint64s appends the values of a field to list, one per row. Missing values are appended as
// absent; [Row.Absent] returns the reasons. All values of a field that is not a number are missing.
func (t *Table) Uint64s(list []uint64, field Field, absent uint64) []uint64 {
	for i := range t.rows {
		value, reason := Row{t, i}.uint64(field)
		if reason != 0 {
			value = absent
		}
		list = append(list, value)
	}
	return list
}

// A Row is a process or thread of a table. It has a method for each field, which returns the value
// or the reason why it is missing.
type Row struct {
	table *Table
	i     int
}

// Absent returns the reason why a field has no value; 0 if it has one.
func (r Row) Absent(field Field) Absent {
	_, reason := r.Value(field)
	return reason
}

func (r Row) flags() uint32 { return order.Uint32(r.table.bytes[r.table.rows[r.i].record+4:]) }

// payload returns the bytes of an attribute, or the reason why there are none.
func (t *Table) payload(i int, attr uint8) ([]byte, Absent, bool) {
	slot := int(t.slots[attr])
	if slot == 0 {
		return nil, 0, false
	}
	at := t.places[i*t.width+slot-1]
	if at < firstPlace {
		return nil, Absent(at), false
	}
	bytes := t.bytes
	if at&inOwn != 0 {
		bytes, at = t.own, at&^inOwn
	}
	length := order.Uint32(bytes[at-attrHeader:])
	return bytes[at : at+length : at+length], 0, true
}

// isAsked reports whether a field was requested. Nothing was if there is no table, as in the Row
// that comes with an error.
func (t *Table) isAsked(field Field) bool { return t != nil && t.asked[field/64]>>(field%64)&1 != 0 }

// read returns the bytes of the attribute that contains a field: at least size bytes.
func (r Row) read(field Field, size int) ([]byte, Absent) {
	t := r.table
	if !t.isAsked(field) {
		return nil, NotAsked
	}
	if r.flags()&flagHasAbsent != 0 {
		if reason := r.ownReason(field); reason != 0 {
			return nil, reason
		}
	}
	bytes, reason, found := t.payload(r.i, fieldTable[field].attr)
	if t.exceptions != nil {
		if reason := t.exceptions[exception{r.i, field}]; reason != 0 {
			return nil, reason
		}
	}
	switch {
	case !found && reason != 0:
		return nil, reason
	case !found:
		return nil, r.reason(field)
	case len(bytes) < size:
		return nil, Truncated
	}
	return bytes, 0
}

// ownReason returns the reason in the record for the absence of a field; 0 if there is none.
func (r Row) ownReason(field Field) Absent {
	list, _, _ := r.table.payload(r.i, attrAbsent)
	for ; len(list) >= 4; list = list[4:] {
		if order.Uint16(list) == uint16(field) {
			return absentFromWire(order.Uint16(list[2:]))
		}
	}
	return 0
}

// reason returns the reason why the attribute of a field is missing.
func (r Row) reason(field Field) Absent {
	info := &fieldTable[field]
	hasNoMemory := r.flags()&flagNoMM != 0
	switch {
	case info.form == formDerived || 1<<info.group&r.table.groups == 0:
		return Unsupported
	case hasNoMemory && (field.needsMemory() || info.form == formExecutable):
		return NoMemory
	case 1<<info.group == groupNet:
		return NotCounted
	}
	return Gone
}

// uint64 reads any numeric field. Signed numbers are returned in two's complement.
func (r Row) uint64(field Field) (uint64, Absent) {
	t := r.table
	if !t.isAsked(field) {
		return 0, NotAsked
	}
	info := &fieldTable[field]
	switch info.form {
	case formHeader32, formHeader64, formKernelThread:
		return r.header(field)
	case formUserTime, formSystemTime:
		user, system, reason := r.times(field)
		if info.form == formSystemTime {
			return system, reason
		}
		return user, reason
	case formResident:
		return r.sum(field, memRSSAnonBytes, memRSSFileBytes, memRSSShmemBytes)
	case formUnique:
		return r.unique(field)
	}
	size := info.form.size()
	if size == 0 {
		return 0, Unsupported
	}
	bytes, reason := r.read(field, int(info.offset)+size)
	if reason != 0 {
		return 0, reason
	}
	bytes = bytes[info.offset:]
	var value uint64
	switch info.form {
	case formUnsigned64, formNamespace:
		value = order.Uint64(bytes)
	case formSigned32:
		value = uint64(int64(int32(order.Uint32(bytes))))
	case formLetter:
		value = uint64(bytes[0])
	default:
		value = uint64(order.Uint32(bytes))
	}
	switch {
	case info.allOnes != 0 && (value == math.MaxUint64 || size == 4 && value == math.MaxUint32):
		return 0, info.allOnes
	case info.form == formNamespace && value == 0:
		return 0, Gone
	}
	return value, 0
}

// size returns the size of a number of this form in bytes; 0 for other forms.
func (f form) size() int {
	switch f {
	case formUnsigned64, formNamespace, formUserTime, formSystemTime:
		return 8
	case formUnsigned32, formSigned32:
		return 4
	case formLetter:
		return 1
	}
	return 0
}

// header reads a requested field of the record's header.
func (r Row) header(field Field) (uint64, Absent) {
	t, info := r.table, &fieldTable[field]
	if r.flags()&flagHasAbsent != 0 {
		if reason := r.ownReason(field); reason != 0 {
			return 0, reason
		}
	}
	record := t.bytes[t.rows[r.i].record:]
	switch info.form {
	case formHeader64:
		// A start before the zero of the reader's time namespace is negative.
		if started := order.Uint64(record[info.offset:]); started <= math.MaxInt64 {
			return started, 0
		}
		return 0, Unsupported
	case formKernelThread:
		return uint64(order.Uint32(record[4:]) & flagKernelThread), 0
	}
	return uint64(order.Uint32(record[info.offset:])), 0
}

// sum adds numbers of an attribute. It does not overflow: any broker may have written them.
func (r Row) sum(field Field, offsets ...int) (uint64, Absent) {
	bytes, reason := r.read(field, offsets[len(offsets)-1]+8)
	if reason != 0 {
		return 0, reason
	}
	total := uint64(0)
	for _, offset := range offsets {
		total = saturated(total, order.Uint64(bytes[offset:]))
	}
	return total, 0
}

func saturated(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// unique adds up the memory that no other process has mapped, as ps and smem do.
func (r Row) unique(field Field) (uint64, Absent) {
	bytes, reason := r.read(field, rollupPrivateDirtyBytes+8)
	if reason != 0 {
		return 0, reason
	}
	clean, dirty := order.Uint64(bytes[rollupPrivateCleanBytes:]), order.Uint64(bytes[rollupPrivateDirtyBytes:])
	if clean == math.MaxUint64 || dirty == math.MaxUint64 {
		return 0, Unsupported
	}
	return saturated(clean, dirty), 0
}

// times returns user and system time as the kernel reports them. This is cputime_adjust() of
// kernel/sched/cputime.c: the exact run time is divided between user and system time in proportion
// to the ticks, and neither part may decrease.
func (r Row) times(field Field) (user, system uint64, reason Absent) {
	bytes, reason := r.read(field, cpuPrevStime+8)
	if reason != 0 {
		return 0, 0, reason
	}
	prevUser, prevSystem := order.Uint64(bytes[cpuPrevUtime:]), order.Uint64(bytes[cpuPrevStime:])
	runtime := order.Uint64(bytes[cpuSumExecRuntime:])
	if saturated(prevUser, prevSystem) >= runtime {
		return prevUser, prevSystem, 0
	}
	user, system = order.Uint64(bytes[cpuUtimeNS:]), order.Uint64(bytes[cpuStimeNS:])
	switch {
	case system == 0:
	case user == 0:
		system = runtime
	default:
		system = share(system, user, runtime)
	}
	if system > runtime {
		system = runtime
	}
	if system < prevSystem {
		system = prevSystem
	}
	user = 0
	if system < runtime {
		user = runtime - system
	}
	if user < prevUser {
		return prevUser, runtime - prevUser, 0
	}
	return user, system, 0
}

// share returns part * whole / (part + rest). The product has 128 bits.
func share(part, rest, whole uint64) uint64 {
	sum, carry := bits.Add64(part, rest, 0)
	high, low := bits.Mul64(part, whole)
	if carry != 0 {
		// The sum has 65 bits: halve everything. No process has run that long, but any broker may claim
		// it.
		low, high = low>>1|high<<63, high>>1
		sum = sum>>1 | 1<<63
	}
	if high >= sum {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(high, low, sum)
	return quotient
}

func (r Row) int64(field Field) (int64, Absent) {
	value, reason := r.uint64(field)
	return int64(value), reason
}

func (r Row) flag(field Field) (bool, Absent) {
	value, reason := r.uint64(field)
	return value != 0, reason
}

func (r Row) letter(field Field) (byte, Absent) {
	value, reason := r.uint64(field)
	return byte(value), reason
}

// text reads a field of bytes. They belong to the answer, which never changes.
func (r Row) text(field Field) (string, Absent) {
	if fieldTable[field].form == formComm {
		return r.comm()
	}
	bytes, reason := r.read(field, 0)
	return asString(bytes), reason
}

// comm returns the full name, which may be longer than comm.
func (r Row) comm() (string, Absent) {
	const size = 16
	bytes, reason := r.read(Comm, baseComm+size)
	if reason != 0 {
		return "", reason
	}
	comm := bytes[baseComm : baseComm+size]
	// Only a name that fills comm, or the name of a kernel thread, can be longer.
	if comm[size-2] != 0 || r.flags()&flagKernelThread != 0 {
		if name, _, found := r.table.payload(r.i, attrName); found {
			return asString(name), 0
		}
	}
	for i, letter := range comm {
		if letter == 0 {
			return asString(comm[:i]), 0
		}
	}
	return asString(comm), 0
}

func (r Row) texts(field Field) (Texts, Absent) {
	bytes, reason := r.read(field, 0)
	return Texts{asString(bytes)}, reason
}

func (r Row) ids(field Field) (IDs, Absent) {
	bytes, reason := r.read(field, 0)
	return IDs{asString(bytes)}, reason
}

func (r Row) cpus(field Field) (CPUSet, Absent) {
	bytes, reason := r.read(field, 0)
	return CPUSet{asString(bytes)}, reason
}

func (r Row) limits(field Field) (ResourceLimits, Absent) {
	bytes, reason := r.read(field, 0)
	return ResourceLimits{asString(bytes)}, reason
}

// asString returns bytes that never change as a string, without a copy.
func asString(bytes []byte) string { return *(*string)(unsafe.Pointer(&bytes)) }
