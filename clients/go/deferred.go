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
	groupTTY:        func(s *taskFiles) []ownAttribute { return s.numbers(groupTTY) },
	groupGroups:     func(s *taskFiles) []ownAttribute { return s.list(attrGroups, "Groups") },
	groupCPU:        (*taskFiles).cpu,
	groupFaults:     func(s *taskFiles) []ownAttribute { return s.numbers(groupFaults) },
	groupMem:        (*taskFiles).memory,
	groupOOM:        func(s *taskFiles) []ownAttribute { return s.numbers(groupOOM) },
	groupNamespaces: (*taskFiles).namespaces,
	groupCgroup:     (*taskFiles).cgroup,
	groupIO:         func(s *taskFiles) []ownAttribute { return s.numbers(groupIO) },
	groupSignals:    func(s *taskFiles) []ownAttribute { return s.numbers(groupSignals) },
	groupLimits:     (*taskFiles).limits,
	groupPaths:      (*taskFiles).paths,
	groupFds:        func(s *taskFiles) []ownAttribute { return s.numbers(groupFds) },
	groupAudit:      func(s *taskFiles) []ownAttribute { return s.numbers(groupAudit) },
	groupLayout:     (*taskFiles).layout,
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

// parse parses a decimal number. It returns all ones for other text, which no kernel writes.
func parse(text string) uint64 {
	if value, err := strconv.ParseUint(text, 10, 64); err == nil {
		return value
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

// stat returns the words of stat from the third on, which follow the name.
func (s *taskFiles) stat() ([]string, Absent) {
	text, reason := s.text("stat")
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:]), reason
}

// numbers builds the attributes of a group that consist of numbers, from their places in the table.
// An attribute without any is missing, for the reason of its first number.
func (s *taskFiles) numbers(group uint32) []ownAttribute {
	var list []ownAttribute
	for field := range fieldTable {
		info := &fieldTable[field]
		size := info.form.size()
		if 1<<info.group != group || size == 0 {
			continue
		}
		value, reason := s.number(info)
		at := 0
		for at < len(list) && list[at].attr != info.attr {
			at++
		}
		if at == len(list) {
			list = append(list, ownAttribute{info.attr, nil, reason, map[Field]Absent{}})
		}
		of := &list[at]
		if reason == 0 {
			of.reason = 0
		} else {
			of.absent[Field(field)] = reason
		}
		end := int(info.offset) + size
		if end > len(of.payload) {
			of.payload = append(of.payload, make([]byte, end-len(of.payload))...)
		}
		copy(of.payload[info.offset:], number(nil, value, size))
	}
	return list
}

// number reads the number of a field from its place.
func (s *taskFiles) number(info *fieldInfo) (uint64, Absent) {
	const tick = 1_000_000_000 / clockTicks
	place, at := info.proc, int(info.proc.at)
	base, unit := 10, uint64(1)
	var words []string
	var reason Absent
	switch place.file {
	case "fd":
		return s.countFiles()
	case "ns":
		target, err := os.Readlink(s.directory + "/ns/" + place.key)
		if err != nil {
			return 0, s.worker.reasonOf(err, "ns/"+place.key)
		}
		_, inode, _ := strings.Cut(strings.TrimSuffix(target, "]"), "[")
		words, at = []string{inode}, 0
	case "stat":
		words, reason = s.stat()
		at -= 3
		if info.Kind == KindNanoseconds {
			unit = tick
		}
	case "status", "io":
		words, reason = s.line(place.file, place.key)
		at = int(place.word)
		if place.file == "status" && info.Kind == KindBytes {
			unit = 1024
		}
	default:
		var text string
		text, reason = s.text(place.file)
		words = strings.Fields(text)
	}
	switch {
	case reason != 0:
		return 0, reason
	case at >= len(words):
		return 0, Unsupported
	case info.Kind == KindMode:
		base = 8
	case info.Kind == KindCapabilities, info.Kind == KindSignals, place.file == "personality":
		base = 16
	}
	// A number and its maximum have a slash between them.
	word, _, _ := strings.Cut(words[at], "/")
	if value, err := strconv.ParseUint(word, base, 64); err == nil {
		return value * unit, 0
	}
	value, err := strconv.ParseInt(word, base, 64)
	if err != nil {
		return 0, Unsupported
	}
	return uint64(value), 0
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

// list builds an attribute from all numbers of a line of status.
func (s *taskFiles) list(attr uint8, name string) []ownAttribute {
	words, reason := s.line("status", name)
	payload := []byte{}
	for _, word := range words {
		payload = number(payload, parse(word), 4)
	}
	return []ownAttribute{{attr: attr, payload: payload, reason: reason}}
}

func (s *taskFiles) cpu() []ownAttribute {
	list := s.numbers(groupCPU)
	// The kernel has already scaled the two times. With a run time of 0, readers take these.
	times := list[0].payload
	copy(times[cpuPrevUtime:], times[cpuUtimeNS:cpuUtimeNS+8])
	copy(times[cpuPrevStime:], times[cpuStimeNS:cpuStimeNS+8])
	return append(list, s.affinity())
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
	return s.numbers(groupMem)
}

func (s *taskFiles) namespaces() []ownAttribute {
	shared := *s
	if thread, _ := s.worker.liveThread(s.directory, s.started); thread != "" {
		shared.directory = thread
	}
	return append(s.list(attrNspids, "NSpid"), shared.numbers(groupNamespaces)...)
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
	umask := s.numbers(groupPaths)
	if umask[0].reason == Unsupported {
		// A task that is exiting has no umask.
		umask[0].reason = Gone
	}
	return append(list, umask...)
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
	list := s.numbers(groupLayout)
	words, reason := s.stat()
	if reason != 0 || len(words) < 25 {
		return list
	}
	// The size of the memory, and the addresses at which the code begins and ends.
	switch size, start, end := words[23-3], words[26-3], words[27-3]; {
	case size == "0":
		list[0].reason = NoMemory
	case start == "1" && end == "1":
		// The kernel hides the addresses from who may not trace the task.
		list[0].reason = Denied
	}
	return list
}
