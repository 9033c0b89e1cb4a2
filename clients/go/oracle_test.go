package taskdiag

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Animals whose values do not change by themselves.
var quiet = []string{
	"comm-parens", "comm-newline", "comm-not-utf8", "comm-empty", "comm-15", "comm-control", "args-none",
	"args-one-empty", "args-odd", "args-4096", "args-2m", "environment", "title-long", "title-moved",
	"title-nowhere", "threads-500", "dead-leader", "zombie", "stopped", "family", "signals",
	"burner-parent", "pid-namespace", "user-namespace", "ids-all-different", "groups-100", "capabilities",
	"no-new-privs", "seccomp-filter", "undumpable", "nice-7", "sched-fifo-10", "affinity-cpu-0", "terminal",
	"oom-score-adj-500", "memory-anon", "memory-file", "memory-locked", "exe-deleted", "exe-renamed",
	"files-10000", "cgroup-deep",
}

// askable returns the fields that this client has, except those that depend on the mappings of
// other processes, and network traffic, which this broker does not count.
func askable() []Field {
	var fields []Field
	for _, field := range Fields() {
		if _, err := groupsOf([]Field{field}); err == nil && fieldTable[field].attr != attrRollup && fieldTable[field].attr != attrNet {
			fields = append(fields, field)
		}
	}
	return fields
}

// Check that all fields of strange processes equal those of the command.
func TestFieldsAreThoseOfTheCommand(t *testing.T) {
	socket := theBroker(t)
	pids := values(zoo(t, os.Geteuid(), quiet...))
	compare(t, socket, false, pids)
	compare(t, socket, true, pids[:4])
}

// compare compares all fields with the command's, repeatedly if a value may have changed.
func compare(t *testing.T, socket string, threads bool, pids []int) {
	t.Helper()
	const tries = 8
	client := connectTo(t, socket)
	fields := askable()
	ask := client.Processes
	if threads {
		ask = client.Threads
	}
	differ := map[string][2]any{}
	for try := 0; try < tries; try++ {
		table, err := ask(context.Background(), fields, PIDs(pids...))
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := rowsOf(t, table), ps(t, socket, fields, threads, pids...)
		if len(mine) != len(theirs) || len(mine) < len(pids) {
			t.Fatalf("%d rows, and the command has %d, of %d processes", len(mine), len(theirs), len(pids))
		}
		now := map[string][2]any{}
		for i := range mine {
			for _, field := range fields {
				name := field.String()
				a, b := valueOf(mine[i], name), valueOf(theirs[i], name)
				key := string(asText(mine[i]["comm"])) + ": " + name
				_, differed := differ[key]
				if !same(a, b) && (differed || try == 0) {
					now[key] = [2]any{a, b}
				}
			}
		}
		if differ = now; len(differ) == 0 {
			return
		}
	}
	for key, both := range differ {
		t.Errorf("%s is %.100v, and the command says %.100v", key, both[0], both[1])
	}
}

// valueOf returns a value of a JSON row, or the reason why it is missing.
func valueOf(row object, name string) any {
	if value, found := row[name]; found {
		return value
	}
	absent, _ := row["absent"].(map[string]any)
	return map[string]any{"absent": absent[name]}
}

func asText(value any) string {
	text, _ := value.(string)
	return text
}

// Check that sums of page tables equal those of smaps_rollup.
func TestRollupsAreThoseOfTheFile(t *testing.T) {
	client := connect(t)
	pid := zoo(t, os.Geteuid(), "stopped")["stopped"]
	row, err := client.Process(context.Background(), pid, []Field{PSSBytes, USSBytes, RollupRSSBytes, AnonHugeBytes})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	line := func(name string) uint64 {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":")
		kilobytes, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kilobytes << 10
	}
	rss, _ := row.RollupRSSBytes()
	huge, _ := row.AnonHugeBytes()
	uss, _ := row.USSBytes()
	pss, _ := row.PSSBytes()
	private := line("Private_Clean") + line("Private_Dirty")
	if rss != line("Rss") || huge != line("AnonHugePages") || rss == 0 {
		t.Errorf("%d and %d are not those of\n%s", rss, huge, text)
	}
	// Processes that come and go share pages with it.
	if uss > rss || private > rss || pss < uss || pss > rss {
		t.Errorf("%d unique, %d proportional and %d resident bytes do not go together", uss, pss, rss)
	}
}

// Check that the start time of a process equals that of the command.
func TestStartTimes(t *testing.T) {
	socket := theBroker(t)
	client := connect(t)
	pid := zoo(t, os.Geteuid(), "stopped")["stopped"]
	row, err := client.Process(context.Background(), pid, []Field{StartNS})
	if err != nil {
		t.Fatal(err)
	}
	start, _ := row.StartNS()
	told, err := time.Parse(time.RFC3339, asText(ps(t, socket, []Field{StartTime}, false, pid)[0]["start_time"]))
	if err != nil {
		t.Fatal(err)
	}
	// The command prints whole seconds of whole ticks.
	if off := BootTime().Add(time.Duration(start)).Sub(told); off < -20*time.Millisecond || off > 1020*time.Millisecond {
		t.Errorf("%v after %v", off, told)
	}
}
