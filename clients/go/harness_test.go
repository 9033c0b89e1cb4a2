package taskdiag

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Common parts of the tests. Tests of the broker need root: it loads BPF programs.

const nobody = 65534

var isRoot = os.Geteuid() == 0

// asNobody is set in the environment if the test's program runs as nobody. It has the path of the
// socket, and the pids of processes by name.
const asNobody = "TASKDIAG_TEST_AS_NOBODY"

func TestMain(m *testing.M) {
	code := m.Run()
	stopShared()
	os.Exit(code)
}

// built returns the path of a program built from this tree.
func built(t testing.TB, name string) string {
	t.Helper()
	target := os.Getenv("CARGO_TARGET_DIR")
	if target == "" {
		target = "../../target"
	}
	path, err := filepath.Abs(filepath.Join(target, "debug", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: 'make test-go' builds it", err)
	}
	return path
}

// needRoot skips a test that must start a broker, unless all tests are required.
func needRoot(t testing.TB) {
	t.Helper()
	if !isRoot {
		t.Skip("the broker loads BPF programs: run this as root")
	}
}

// broker is a broker started by a test.
type broker struct {
	path    string
	process *exec.Cmd
	log     bytes.Buffer
}

// shared is a broker for all tests that do not harm it.
var shared struct {
	sync.Mutex
	broker    *broker
	directory string
}

// startBroker starts a broker at a path, and waits until it answers.
func startBroker(t testing.TB, path string) *broker {
	t.Helper()
	b := &broker{path: path, process: exec.Command(built(t, "taskdiagd"), "--socket", path)}
	b.process.Stderr = &b.log
	// The broker ends with the tests, however they end.
	b.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := b.process.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the broker answers", func() bool {
		client, err := Dial(context.Background(), Socket(path))
		if err == nil {
			client.Close()
		}
		return err == nil
	})
	return b
}

func (b *broker) stop() {
	_ = b.process.Process.Signal(syscall.SIGTERM)
	_ = b.process.Wait()
}

// theBroker returns the socket of the shared broker.
func theBroker(t testing.TB) string {
	t.Helper()
	needRoot(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.broker == nil {
		directory, err := os.MkdirTemp("", "taskdiag-go-")
		if err != nil {
			t.Fatal(err)
		}
		// The user nobody also connects.
		if err := os.Chmod(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		shared.directory = directory
		shared.broker = startBroker(t, filepath.Join(directory, "socket"))
	}
	return shared.broker.path
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.broker != nil {
		shared.broker.stop()
		os.RemoveAll(shared.directory)
	}
}

// connect returns a client of the shared broker.
func connect(t testing.TB) *Client {
	t.Helper()
	return connectTo(t, theBroker(t))
}

func connectTo(t testing.TB, path string) *Client {
	t.Helper()
	client, err := Dial(context.Background(), Socket(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// until waits for a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// zoo starts processes of the zoo, and returns their pids by name.
func zoo(t testing.TB, uid int, names ...string) map[string]int {
	t.Helper()
	command := exec.Command(built(t, "zoo"), append([]string{"run"}, names...)...)
	if uid != os.Geteuid() {
		command = commandAs(uid, command.Args...)
	}
	command.Stderr = os.Stderr
	lines, input := pipes(t, command)
	pids := map[string]int{}
	for range names {
		line, err := lines.ReadString('\n')
		words := strings.SplitN(line, " ", 3)
		if err != nil || len(words) < 2 {
			t.Fatalf("the zoo says %q: %v", line, err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(words[1]))
		if err != nil {
			t.Fatal(err)
		}
		pids[words[0]] = pid
	}
	t.Cleanup(func() {
		input.Close()
		_ = command.Wait()
	})
	return pids
}

// farm starts idle processes.
func farm(t testing.TB, processes, threads int) {
	t.Helper()
	command := exec.Command(built(t, "zoo"), "farm", strconv.Itoa(processes), strconv.Itoa(threads))
	lines, input := pipes(t, command)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		_ = command.Wait()
	})
}

func pipes(t testing.TB, command *exec.Cmd) (*bufio.Reader, io.Closer) {
	t.Helper()
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(output), input
}

// object is a row of JSON, with numbers as written.
type object map[string]any

// asRows decodes rows.
func asRows(t testing.TB, text []byte) []object {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var rows []object
	if err := decoder.Decode(&rows); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return rows
}

// rowsOf returns a table in the form of JSON.
func rowsOf(t testing.TB, table *Table) []object {
	t.Helper()
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	return asRows(t, text)
}

// command returns the rows that the taskdiag command prints, run by the user of this process.
func command(t testing.TB, arguments ...string) []object {
	t.Helper()
	run := exec.Command(built(t, "taskdiag"), append(arguments, "--json")...)
	var output, errors bytes.Buffer
	run.Stdout, run.Stderr = &output, &errors
	// The status is 1 if something is missing.
	if err := run.Run(); err != nil && run.ProcessState.ExitCode() != 1 {
		t.Fatalf("taskdiag %v: %v: %s", arguments, err, errors.String())
	}
	var document struct{ Rows json.RawMessage }
	if err := json.Unmarshal(output.Bytes(), &document); err != nil {
		t.Fatalf("taskdiag %v: %v: %s", arguments, err, errors.String())
	}
	return asRows(t, document.Rows)
}

// ps returns the command's values of processes, read through the broker.
func ps(t testing.TB, socket string, fields []Field, threads bool, pids ...int) []object {
	t.Helper()
	arguments := []string{"ps", "--source", "broker", "--socket", socket, "-p", joined(pids), "-o", joined(fields)}
	if threads {
		arguments = append(arguments, "-T")
	}
	return command(t, arguments...)
}

func joined[T any](list []T) string {
	texts := make([]string, len(list))
	for i, each := range list {
		texts[i] = fmt.Sprint(each)
	}
	return strings.Join(texts, ",")
}

// fieldsOf returns the fields with these names.
func fieldsOf(t testing.TB, names ...string) []Field {
	t.Helper()
	fields, err := ParseFields(names...)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

func values(pids map[string]int) []int {
	var list []int
	for _, pid := range pids {
		list = append(list, pid)
	}
	return list
}

// same reports whether two JSON values are equal.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// runAsNobody runs a test of this program again as nobody, with the pids of processes.
func runAsNobody(t *testing.T, socket string, pids map[string]int) {
	t.Helper()
	told, err := json.Marshal(map[string]any{"socket": socket, "pids": pids})
	if err != nil {
		t.Fatal(err)
	}
	// Only root can read the program's directory.
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(filepath.Dir(socket), "as-nobody")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	run := commandAs(nobody, copied, "-test.run=^"+t.Name()+"$", "-test.v")
	run.Env = append(os.Environ(), asNobody+"="+string(told))
	output, err := run.CombinedOutput()
	if err != nil || !bytes.Contains(output, []byte("--- PASS")) {
		t.Fatalf("as nobody: %v\n%s", err, output)
	}
}

// commandAs runs a program as another user. SysProcAttr.Credential would make this process, whose
// memory the child shares until it executes the program, undumpable; the broker would then not
// count its capabilities.
func commandAs(uid int, arguments ...string) *exec.Cmd {
	id := strconv.Itoa(uid)
	return exec.Command("setpriv", append([]string{"--reuid", id, "--regid", id, "--clear-groups", "--"}, arguments...)...)
}

// told returns what runAsNobody passed to this process; nothing if the process was started
// normally.
func told(t *testing.T) (socket string, pids map[string]int, isNobody bool) {
	t.Helper()
	text := os.Getenv(asNobody)
	if text == "" {
		return "", nil, false
	}
	var what struct {
		Socket string
		PIDs   map[string]int
	}
	if err := json.Unmarshal([]byte(text), &what); err != nil {
		t.Fatal(err)
	}
	return what.Socket, what.PIDs, true
}

// SocketOfTests returns the socket of the shared broker, for the examples. If no broker can be
// started, it is the socket of this machine's broker.
func SocketOfTests() string {
	if !isRoot {
		return DefaultSocket
	}
	return theBroker(&testing.T{})
}
