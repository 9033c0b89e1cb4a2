package taskdiag

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The cases of conformance/cases.json: see the README there.

type conformanceCase struct {
	Name    string
	Rows    string
	Zoo     []string
	Fields  []string
	Where   string
	Sources []string
	As      []string
	Command bool
	Proc    []relation
	Absent  map[string]map[string]string
	Expect  map[string]int `json:"rows_expected"`
	Root    bool           `json:"needs_root"`
	Error   *struct {
		Kind     string
		Mentions []string
	}
}

type relation struct {
	Field, File, Line string
	Word, Stat        int
	Times             uint64
	Link, Entries     bool
	Args              bool
	Row               map[string]any
}

func cases(t *testing.T) []conformanceCase {
	t.Helper()
	text, err := os.ReadFile("../../conformance/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	// An unknown key would be a condition that is not checked.
	decoder.DisallowUnknownFields()
	var list []conformanceCase
	if err := decoder.Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// isMine reports whether this client can run a case: a request to the broker about processes or
// threads, without filters.
func (c *conformanceCase) isMine() bool {
	if !contains([]string{"", "processes", "threads"}, c.Rows) {
		return false
	}
	return c.Error == nil && c.Where == "" && contains(c.Sources, "broker") || c.Error != nil && c.Where == ""
}

func contains(list []string, wanted string) bool {
	for _, each := range list {
		if each == wanted {
			return true
		}
	}
	return false
}

// Check the cases, as root and as nobody.
func TestConformance(t *testing.T) {
	if socket, pids, isNobody := told(t); isNobody {
		runCases(t, socket, pids, "nobody")
		return
	}
	socket := theBroker(t)
	var all, ofNobody []string
	for _, each := range cases(t) {
		if !each.isMine() {
			continue
		}
		for _, name := range each.Zoo {
			if !contains(all, name) {
				all = append(all, name)
			}
			// The other case needs root.
			if !contains(ofNobody, name) && name != "groups-3" {
				ofNobody = append(ofNobody, name)
			}
		}
	}
	t.Run("root", func(t *testing.T) { runCases(t, socket, zoo(t, 0, all...), "root") })
	pids := zoo(t, nobody, ofNobody...)
	runAsNobody(t, socket, pids)
}

func runCases(t *testing.T, socket string, pids map[string]int, user string) {
	client := connectTo(t, socket)
	ran := 0
	for _, each := range cases(t) {
		each := each
		if each.isMine() && contains(each.As, user) {
			ran++
			t.Run(each.Name, func(t *testing.T) { each.check(t, client, socket, pids) })
		}
	}
	if ran < 3 {
		t.Errorf("only %d cases are for %s", ran, user)
	}
}

func (c *conformanceCase) check(t *testing.T, client *Client, socket string, animals map[string]int) {
	fields, err := ParseFields(c.Fields...)
	if c.Error != nil {
		if !errors.Is(err, ErrUnknownField) || c.Error.Kind != "invalid input" {
			t.Fatalf("%v is no error of the kind %q", err, c.Error.Kind)
		}
		for _, part := range c.Error.Mentions {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not mention %q", err, part)
			}
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	pids := make([]int, len(c.Zoo))
	for i, name := range c.Zoo {
		pids[i] = animals[name]
	}
	isThreads := c.Rows == "threads"
	ask := client.Processes
	if isThreads {
		ask = client.Threads
	}
	table, err := ask(context.Background(), fields, PIDs(pids...))
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, table)
	for i, name := range c.Zoo {
		c.checkRows(t, name, pids[i], rows)
	}
	if c.Command {
		if theirs := ps(t, socket, fields, isThreads, pids...); !same(rows, theirs) {
			t.Errorf("these are not the rows of the command:\n%v\n%v", rows, theirs)
		}
	}
}

func (c *conformanceCase) checkRows(t *testing.T, name string, pid int, rows []object) {
	t.Helper()
	number := 0
	for _, row := range rows {
		if fmt.Sprint(row["pid"]) != strconv.Itoa(pid) {
			continue
		}
		number++
		absent := map[string]string{}
		reasons, _ := row["absent"].(map[string]any)
		for field, reason := range reasons {
			absent[field] = fmt.Sprint(reason)
		}
		if expected := c.Absent[name]; len(absent)+len(expected) > 0 && !same(absent, expected) {
			t.Errorf("%s: %v are missing, and not %v", name, absent, expected)
		}
		for _, relation := range c.Proc {
			if expected := relation.of(t, pid); !same(row[relation.Field], expected) {
				t.Errorf("%s: %s is %v, and %v by %s", name, relation.Field, row[relation.Field], expected, relation.File)
			}
		}
	}
	expected, said := c.Expect[name]
	if !said {
		expected = 1
	}
	if number != expected {
		t.Errorf("%s has %d rows, and not %d", name, number, expected)
	}
}

// of returns the values in /proc, in the form of JSON.
func (r relation) of(t *testing.T, pid int) any {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/%s", pid, r.File)
	if r.Link {
		target, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	if r.Entries {
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		return json.Number(strconv.Itoa(len(entries)))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case r.Args:
		var list []any
		for _, each := range strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00") {
			list = append(list, inJSON(each))
		}
		return list
	case r.Stat > 0:
		rest := string(text[bytes.LastIndexByte(text, ')')+1:])
		return json.Number(strings.Fields(rest)[r.Stat-3])
	case r.Line == "":
		return inJSON(strings.TrimSuffix(string(text), "\n"))
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, rest, found := strings.Cut(line, ":"); found && name == r.Line {
			word := strings.Fields(rest)[r.Word]
			number, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return word
			}
			if r.Times > 0 {
				number *= r.Times
			}
			return json.Number(strconv.FormatUint(number, 10))
		}
	}
	t.Fatalf("%s has no line %s", path, r.Line)
	return nil
}

// inJSON returns a text in the form of JSON.
func inJSON(text string) any {
	if utf8.ValidString(text) {
		return text
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString([]byte(text))}
}
