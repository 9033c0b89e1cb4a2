package taskdiag

import (
	"encoding/hex"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// If BPF could not read a group exactly, the broker says so, and this process reads the group from
// /proc and builds the attributes that the broker would have sent. Few processes need this: those
// with very many threads, descriptors or groups, or with very long paths.

// taskFiles are the files of a task. Each is read on first use, and only once.
type taskFiles struct {
	directory string
	started   uint64
	worker    *worker
	texts     map[string]fileText
}

type fileText struct {
	text   string
	reason Absent
}

// ownAttribute is an attribute of a record that this process built from files: its payload, or the
// reason why there is none.
type ownAttribute struct {
	attr    uint8
	payload []byte
	reason  Absent
	// The missing fields of an attribute that has others.
	absent map[Field]Absent
}

// deferredGroups has the functions that build the attributes of each group.
var deferredGroups = map[uint32]func(*taskFiles) []ownAttribute{
	groupTTY:        func(s *taskFiles) []ownAttribute { return s.words(attrTTY, 4, 7, 8) },
	groupGroups:     func(s *taskFiles) []ownAttribute { return s.list(attrGroups, "Groups") },
	groupCPU:        (*taskFiles).cpu,
	groupFaults:     func(s *taskFiles) []ownAttribute { return s.words(attrFaults, 8, 10, 12, 11, 13) },
	groupMem:        (*taskFiles).memory,
	groupOOM:        func(s *taskFiles) []ownAttribute { return s.files(attrOOM, "oom_score_adj", "oom_score") },
	groupNamespaces: (*taskFiles).namespaces,
	groupCgroup:     (*taskFiles).cgroup,
	groupIO: func(s *taskFiles) []ownAttribute {
		return s.lines(attrIO, "io", 8, 1, "rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes")
	},
	groupSignals: (*taskFiles).signals,
	groupLimits:  (*taskFiles).limits,
	groupPaths:   (*taskFiles).paths,
	groupFds:     (*taskFiles).descriptors,
	groupAudit:   func(s *taskFiles) []ownAttribute { return s.files(attrAudit, "loginuid", "sessionid") },
	groupLayout:  (*taskFiles).layout,
}

// sharedGroups are those of what a task loses when it ends, while the other threads of its process
// keep it.
const sharedGroups = groupMem | groupPaths | groupFds | groupLayout

// number appends a number with the given size in bytes.
func number(out []byte, value uint64, size int) []byte {
	var bytes [8]byte
	if size == 4 {
		order.PutUint32(bytes[:], uint32(value))
	} else {
		order.PutUint64(bytes[:], value)
	}
	return append(out, bytes[:size]...)
}

// parse parses a number, signed or unsigned. It returns all ones for other text, which no kernel
// writes.
func parse(text string) uint64 {
	if value, err := strconv.ParseUint(text, 10, 64); err == nil {
		return value
	}
	if value, err := strconv.ParseInt(text, 10, 64); err == nil {
		return uint64(value)
	}
	return math.MaxUint64
}

func (s *taskFiles) text(name string) (string, Absent) {
	known, found := s.texts[name]
	if !found {
		text, reason := readSurely(s.worker, s.directory, name, s.started, nil)
		known = fileText{string(text), reason}
		s.texts[name] = known
	}
	return known.text, known.reason
}

// stat returns the words of stat, by their position in proc_pid_stat(5).
func (s *taskFiles) stat() (func(number int) uint64, Absent) {
	text, reason := s.text("stat")
	words := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	return func(number int) uint64 {
		if number-3 >= len(words) {
			return math.MaxUint64
		}
		return parse(words[number-3])
	}, reason
}

// words builds an attribute from words of stat.
func (s *taskFiles) words(attr uint8, size int, numbers ...int) []ownAttribute {
	word, reason := s.stat()
	var payload []byte
	for _, at := range numbers {
		payload = number(payload, word(at), size)
	}
	return []ownAttribute{{attr: attr, payload: payload, reason: reason}}
}

// line returns the words of a line of a file.
func (s *taskFiles) line(file, name string) ([]string, Absent) {
	text, reason := s.text(file)
	for _, line := range strings.Split(text, "\n") {
		if before, after, found := strings.Cut(line, ":"); found && before == name {
			return strings.Fields(after), 0
		}
	}
	return nil, reason
}

// lines builds an attribute from the first numbers of lines, with all ones for missing lines.
func (s *taskFiles) lines(attr uint8, file string, size int, times uint64, names ...string) []ownAttribute {
	var payload []byte
	_, reason := s.text(file)
	for _, name := range names {
		value := uint64(math.MaxUint64)
		if words, _ := s.line(file, name); len(words) > 0 {
			value = parse(words[0]) * times
		}
		payload = number(payload, value, size)
	}
	return []ownAttribute{{attr: attr, payload: payload, reason: reason}}
}

// list builds an attribute from all numbers of a line of status.
func (s *taskFiles) list(attr uint8, name string) []ownAttribute {
	words, reason := s.line("status", name)
	payload := []byte{}
	for _, word := range words {
		payload = number(payload, parse(word), 4)
	}
	return []ownAttribute{{attr: attr, payload: payload, reason: reason}}
}

// files builds an attribute from files with one number each.
func (s *taskFiles) files(attr uint8, names ...string) []ownAttribute {
	var payload []byte
	for _, name := range names {
		text, reason := s.text(name)
		if reason != 0 {
			return []ownAttribute{{attr: attr, reason: reason}}
		}
		payload = number(payload, parse(strings.TrimSpace(text)), 4)
	}
	return []ownAttribute{{attr: attr, payload: payload}}
}

func (s *taskFiles) cpu() []ownAttribute {
	const tick = 1_000_000_000 / clockTicks
	word, reason := s.stat()
	user, system := word(14)*tick, word(15)*tick
	schedule, _ := s.text("schedstat")
	times := append(strings.Fields(schedule), "", "", "")
	switches := func(name string) uint64 {
		if words, _ := s.line("status", name); len(words) > 0 {
			return parse(words[0])
		}
		return math.MaxUint64
	}
	slack, slackReason := s.text("timerslack_ns")
	absent := map[Field]Absent{}
	if slackReason != 0 {
		absent[TimerSlackNS] = slackReason
	}
	var payload []byte
	for _, each := range []struct {
		value uint64
		size  int
	}{
		{user, 8}, {system, 8}, {word(16) * tick, 8}, {word(17) * tick, 8}, {parse(times[0]), 8}, {parse(times[1]), 8},
		{switches("voluntary_ctxt_switches"), 8}, {switches("nonvoluntary_ctxt_switches"), 8}, {word(19), 4}, {word(18), 4},
		{word(40), 4}, {word(41), 4}, {word(39), 4}, {0, 4}, {0, 8}, {user, 8}, {system, 8}, {word(43) * tick, 8},
		{word(44) * tick, 8}, {word(42) * tick, 8}, {parse(strings.TrimSpace(slack)), 8}, {parse(times[2]), 8},
	} {
		payload = number(payload, each.value, each.size)
	}
	return []ownAttribute{{attrCPU, payload, reason, absent}, s.affinity()}
}

// affinity builds the set of processors, which status has in hexadecimal, in words of 32 bits.
func (s *taskFiles) affinity() ownAttribute {
	words, reason := s.line("status", "Cpus_allowed")
	if len(words) == 0 {
		return ownAttribute{attr: attrAffinity, reason: reason}
	}
	digits := strings.ReplaceAll(words[0], ",", "")
	digits = strings.Repeat("0", (16-len(digits)%16)%16) + digits
	mask, err := hex.DecodeString(digits)
	if err != nil {
		return ownAttribute{attr: attrAffinity, reason: Unsupported}
	}
	payload := []byte{}
	for end := len(mask); end > 0; end -= 8 {
		word := uint64(0)
		for _, part := range mask[end-8 : end] {
			word = word<<8 | uint64(part)
		}
		payload = number(payload, word, 8)
	}
	return ownAttribute{attr: attrAffinity, payload: payload}
}

func (s *taskFiles) memory() []ownAttribute {
	if words, reason := s.line("status", "VmSize"); len(words) == 0 && reason == 0 {
		return []ownAttribute{{attr: attrMem, reason: NoMemory}}
	}
	return s.lines(attrMem, "status", 8, 1024, "VmSize", "RssAnon", "RssFile", "RssShmem", "VmSwap", "VmPeak", "VmHWM",
		"VmExe", "VmData", "VmStk", "VmLib", "VmLck", "VmPin", "VmPTE", "HugetlbPages")
}

func (s *taskFiles) namespaces() []ownAttribute {
	shared := s.directory
	if thread, _ := s.worker.liveThread(shared, s.started); thread != "" {
		shared = thread
	}
	absent := map[Field]Absent{}
	var payload []byte
	for i, name := range []string{"pid", "pid_for_children", "mnt", "net", "user", "uts", "ipc", "cgroup", "time"} {
		target, err := os.Readlink(shared + "/ns/" + name)
		if err != nil {
			absent[NSPID+Field(i)] = s.worker.reasonOf(err, "ns/"+name)
		}
		_, inode, _ := strings.Cut(strings.TrimSuffix(target, "]"), "[")
		payload = number(payload, parse(inode), 8)
	}
	return append(s.list(attrNspids, "NSpid"), ownAttribute{attrNamespaces, payload, 0, absent})
}

func (s *taskFiles) cgroup() []ownAttribute {
	text, reason := s.text("cgroup")
	for _, line := range strings.Split(text, "\n") {
		if path := strings.TrimPrefix(line, "0::"); path != line {
			return []ownAttribute{{attr: attrCgroupPath, payload: []byte(path)}, s.cgroupOf(path)}
		}
	}
	if reason == 0 {
		reason = Unsupported
	}
	return []ownAttribute{{attr: attrCgroupPath, reason: reason}, {attr: attrCgroup, reason: reason}}
}

// cgroupOf builds the attribute with the id of a cgroup, which is its inode number.
func (s *taskFiles) cgroupOf(path string) ownAttribute {
	var of syscall.Stat_t
	reason := Unsupported
	switch {
	case path == "/..", strings.HasPrefix(path, "/../"):
		// Outside this process's cgroup namespace, and therefore outside the mount.
	case strings.HasSuffix(path, " (deleted)"):
		// The cgroup of a zombie may have been removed.
		reason = Gone
	default:
		if mount, device, found := s.worker.cgroupMount(); found {
			if err := syscall.Lstat(mount+path, &of); err != nil {
				reason = s.worker.reasonOf(err, "cgroup")
			} else if uint64(of.Dev) == device {
				return ownAttribute{attr: attrCgroup, payload: number(nil, of.Ino, 8)}
			}
		}
	}
	return ownAttribute{attr: attrCgroup, reason: reason}
}

// cgroupMount returns the mount point of the unified hierarchy, and its device number. A mount that
// is covered by another file system does not lead to cgroups.
func (w *worker) cgroupMount() (point string, device uint64, found bool) {
	const cgroup2Magic = 0x63677270
	text, err := os.ReadFile("/proc/self/mountinfo")
	w.note(err)
	for _, line := range strings.Split(string(text), "\n") {
		mount, system, isMount := strings.Cut(line, " - ")
		words := strings.Fields(mount)
		if !isMount || !strings.HasPrefix(system, "cgroup2 ") || len(words) < 5 || words[3] != "/" {
			continue
		}
		point := escaped.Replace(words[4])
		var kind syscall.Statfs_t
		var root syscall.Stat_t
		if syscall.Statfs(point, &kind) == nil && kind.Type == cgroup2Magic && syscall.Stat(point, &root) == nil {
			return point, uint64(root.Dev), true
		}
	}
	return "", 0, false
}

// escaped replaces what the kernel writes for some bytes of a path in mountinfo.
var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func (s *taskFiles) signals() []ownAttribute {
	_, reason := s.text("status")
	var payload []byte
	for _, name := range []string{"SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"} {
		words, _ := s.line("status", name)
		value, err := strconv.ParseUint(strings.Join(words, ""), 16, 64)
		if err != nil && reason == 0 {
			reason = Unsupported
		}
		payload = number(payload, value, 8)
	}
	queued, _ := s.line("status", "SigQ")
	count, _, _ := strings.Cut(strings.Join(queued, ""), "/")
	return []ownAttribute{{attr: attrSignals, payload: number(payload, parse(count), 8), reason: reason}}
}

// limitTitles are the first words of the lines of limits, in the order of RLIMIT_*.
var limitTitles = [len(limitNames)]string{
	"Max cpu time", "Max file size", "Max data size", "Max stack size", "Max core file size", "Max resident set",
	"Max processes", "Max open files", "Max locked memory", "Max address space", "Max file locks",
	"Max pending signals", "Max msgqueue size", "Max nice priority", "Max realtime priority", "Max realtime timeout",
}

func (s *taskFiles) limits() []ownAttribute {
	text, reason := s.text("limits")
	payload := make([]byte, 0, 16*len(limitTitles))
	for _, title := range limitTitles {
		_, rest, _ := strings.Cut(text, title+" ")
		words := append(strings.Fields(rest), "", "")
		// "unlimited" is not a number, and becomes all ones.
		payload = number(number(payload, parse(words[0]), 8), parse(words[1]), 8)
	}
	return []ownAttribute{{attr: attrLimits, payload: payload, reason: reason}}
}

func (s *taskFiles) paths() []ownAttribute {
	var list []ownAttribute
	for _, link := range []struct {
		attr uint8
		name string
	}{{attrExe, "exe"}, {attrCwd, "cwd"}, {attrRoot, "root"}} {
		target, err := os.Readlink(s.directory + "/" + link.name)
		of := ownAttribute{attr: link.attr, payload: []byte(target)}
		if err != nil {
			of = ownAttribute{attr: link.attr, reason: s.worker.reasonOf(err, link.name)}
		}
		// Memory that is gone does not come back, so its size is read after the link.
		if link.attr == attrExe && of.reason == Gone {
			if _, size, found := s.worker.statOf(s.directory); found && size == 0 {
				of.reason = NoMemory
			}
		}
		list = append(list, of)
	}
	words, reason := s.line("status", "Umask")
	mask, err := strconv.ParseUint(strings.Join(words, ""), 8, 32)
	if err != nil && reason == 0 {
		// A task that is exiting has no umask.
		reason = Gone
	}
	return append(list, ownAttribute{attr: attrUmask, payload: number(nil, mask, 4), reason: reason})
}

func (s *taskFiles) descriptors() []ownAttribute {
	absent := map[Field]Absent{}
	count, reason := s.countFiles()
	if reason != 0 {
		absent[FDCount] = reason
	}
	size, reason := s.line("status", "FDSize")
	payload := number(nil, count, 4)
	return []ownAttribute{{attrFds, number(payload, parse(strings.Join(size, "")), 4), reason, absent}}
}

// countFiles returns the number of open files of a task. From Linux 6.2 on, it is the size of the
// directory, which takes no right to list it. This process has open files, so its own size tells
// whether the kernel has that.
func (s *taskFiles) countFiles() (uint64, Absent) {
	var of, own syscall.Stat_t
	if err := syscall.Stat("/proc/self/fd", &own); err == nil && own.Size > 0 {
		if err := syscall.Stat(s.directory+"/fd", &of); err != nil {
			return 0, s.worker.reasonOf(err, "fd")
		}
		return uint64(of.Size), 0
	}
	count := 0
	directory, err := os.Open(s.directory + "/fd")
	for err == nil {
		var names []string
		if names, err = directory.Readdirnames(1024); err == nil {
			count += len(names)
		}
	}
	if directory != nil {
		directory.Close()
	}
	if err != io.EOF {
		return 0, s.worker.reasonOf(err, "fd")
	}
	return uint64(count), 0
}

func (s *taskFiles) layout() []ownAttribute {
	list := s.words(attrLayout, 8, 26, 27, 45, 46, 47, 28, 48, 49, 50, 51)
	word, reason := s.stat()
	switch {
	case reason != 0:
	case word(23) == 0:
		list[0].reason = NoMemory
	case word(26) == 1 && word(27) == 1:
		// The kernel hides the addresses from who may not trace the task.
		list[0].reason = Denied
	}
	text, reason := s.text("personality")
	value, err := strconv.ParseUint(strings.TrimSpace(text), 16, 32)
	if err != nil && reason == 0 {
		reason = Unsupported
	}
	return append(list, ownAttribute{attr: attrPersonality, payload: number(nil, value, 4), reason: reason})
}
