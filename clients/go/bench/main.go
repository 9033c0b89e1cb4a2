// Measures the client and gopsutil in one process: bench -socket PATH -zoo PROGRAM [PROCESSES...]
//
// Eight values of all processes: name, parent, ids, state, memory, processor times, start, number
// of threads. The contenders take turns. `zoo farm` creates idle processes; run the benchmark as
// root on a quiet machine (clients/go/bench.sh).
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/process"
	taskdiag "github.com/taskdiag/taskdiag/clients/go"
)

// fields correspond to gopsutil's eight methods, which do not return shared memory separately.
var fields = []taskdiag.Field{
	taskdiag.PID, taskdiag.Comm, taskdiag.PPID, taskdiag.UID, taskdiag.EUID, taskdiag.SUID, taskdiag.FSUID,
	taskdiag.State, taskdiag.RSSBytes, taskdiag.VsizeBytes, taskdiag.SwapBytes, taskdiag.PeakRSSBytes,
	taskdiag.DataBytes, taskdiag.StackBytes, taskdiag.LockedBytes, taskdiag.UtimeNS, taskdiag.StimeNS,
	taskdiag.CutimeNS, taskdiag.CstimeNS, taskdiag.StartNS, taskdiag.ThreadsCount,
}

// cost is the cost of a pass.
type cost struct {
	elapsed, processor, broker time.Duration
	allocations, bytes         uint64
}

type contender struct {
	name string
	// run makes a pass and returns the number of processes.
	run func() (int, error)
}

var sink uint64

func main() {
	socket := flag.String("socket", taskdiag.DefaultSocket, "the broker's socket")
	broker := flag.Int("broker", 0, "the broker's pid, whose processor time is shown")
	zoo := flag.String("zoo", "zoo", "the program that makes processes")
	rounds := flag.Int("rounds", 7, "how many passes each makes")
	flag.Parse()
	numbers := flag.Args()
	if len(numbers) == 0 {
		numbers = []string{"1000", "10000"}
	}
	client, err := taskdiag.Dial(context.Background(), taskdiag.Socket(*socket))
	check(err)
	contenders := []contender{
		{"gopsutil, 8 methods", byGopsutil},
		{"rows, all values", func() (int, error) { return byRows(client) }},
		{"columns", func() (int, error) { return byColumns(client) }},
		{"table, not read", func() (int, error) { return byTable(client) }},
	}
	fmt.Printf("gopsutil v3.24.5, %s, %d processors\n", runtime.Version(), runtime.NumCPU())
	for _, number := range numbers {
		processes, err := strconv.Atoi(number)
		check(err)
		measure(contenders, *zoo, processes, *rounds, *broker)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measure measures with this many additional processes, and prints a table.
func measure(contenders []contender, zoo string, processes, rounds, broker int) {
	farm := exec.Command(zoo, "farm", strconv.Itoa(processes))
	input, err := farm.StdinPipe()
	check(err)
	output, err := farm.StdoutPipe()
	check(err)
	check(farm.Start())
	_, err = bufio.NewReader(output).ReadString('\n')
	check(err)
	costs := make([][]cost, len(contenders))
	// The first round warms up.
	for round := 0; round <= rounds; round++ {
		for i, each := range contenders {
			took, err := one(each, processes, broker)
			check(err)
			if round > 0 {
				costs[i] = append(costs[i], took)
			}
		}
	}
	input.Close()
	_ = farm.Wait()

	fmt.Printf("\n%d processes, median of %d, milliseconds:\n\n", processes, rounds)
	fmt.Println("| | time | fastest | slowest | processor | with the broker's | allocations | KiB allocated | gopsutil's processor time | with the broker's | in the worst round |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|")
	for i, each := range contenders {
		of := costs[i]
		elapsed := sorted(of, func(c cost) float64 { return ms(c.elapsed) })
		ratios := make([]float64, len(of))
		whole := make([]float64, len(of))
		for round := range of {
			ratios[round] = ms(costs[0][round].processor) / ms(of[round].processor)
			whole[round] = ms(costs[0][round].processor) / ms(of[round].processor+of[round].broker)
		}
		sort.Float64s(ratios)
		sort.Float64s(whole)
		fmt.Printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.0f | %.1fx | %.1fx | %.1fx |\n", each.name,
			elapsed[len(elapsed)/2], elapsed[0], elapsed[len(elapsed)-1],
			median(of, func(c cost) float64 { return ms(c.processor) }),
			median(of, func(c cost) float64 { return ms(c.processor + c.broker) }),
			median(of, func(c cost) float64 { return float64(c.allocations) }),
			median(of, func(c cost) float64 { return float64(c.bytes) / 1024 }),
			ratios[len(ratios)/2], whole[len(whole)/2], whole[0])
	}
}

func ms(duration time.Duration) float64 { return duration.Seconds() * 1e3 }

func sorted(costs []cost, value func(cost) float64) []float64 {
	var list []float64
	for _, each := range costs {
		list = append(list, value(each))
	}
	sort.Float64s(list)
	return list
}

func median(costs []cost, value func(cost) float64) float64 {
	return sorted(costs, value)[len(costs)/2]
}

// one makes one pass.
func one(of contender, processes, broker int) (cost, error) {
	runtime.GC()
	var before, after runtime.MemStats
	others := runtimeOf(broker)
	runtime.ReadMemStats(&before)
	own, start := processor(), time.Now()
	number, err := of.run()
	took := cost{elapsed: time.Since(start), processor: processor() - own}
	runtime.ReadMemStats(&after)
	took.broker = runtimeOf(broker) - others
	took.allocations, took.bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	if err == nil && number < processes {
		err = fmt.Errorf("%s saw %d of %d processes", of.name, number, processes)
	}
	return took, err
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// runtimeOf returns the processor time of all threads of a process.
func runtimeOf(pid int) time.Duration {
	total := time.Duration(0)
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		if words := strings.Fields(string(text)); err == nil && len(words) > 0 {
			ns, err := strconv.ParseInt(words[0], 10, 64)
			check(err)
			total += time.Duration(ns)
		}
	}
	return total
}

func byGopsutil() (int, error) {
	all, err := process.Processes()
	if err != nil {
		return 0, err
	}
	number := 0
	for _, each := range all {
		// A process may end in between.
		name, err := each.Name()
		if err != nil {
			continue
		}
		ppid, _ := each.Ppid()
		ids, _ := each.Uids()
		status, _ := each.Status()
		memory, _ := each.MemoryInfo()
		times, _ := each.Times()
		started, _ := each.CreateTime()
		threads, _ := each.NumThreads()
		sink += uint64(len(name)) + uint64(ppid) + uint64(len(ids)) + uint64(len(status)) + uint64(started) + uint64(threads)
		if memory != nil && times != nil {
			sink += memory.RSS + memory.VMS + uint64(times.User+times.System)
		}
		number++
	}
	return number, nil
}

func byTable(client *taskdiag.Client) (int, error) {
	table, err := client.Processes(context.Background(), fields)
	if err != nil {
		return 0, err
	}
	return table.Len(), nil
}

func byRows(client *taskdiag.Client) (int, error) {
	table, err := client.Processes(context.Background(), fields)
	if err != nil {
		return 0, err
	}
	for i := 0; i < table.Len(); i++ {
		row := table.Row(i)
		name, _ := row.Comm()
		state, _ := row.State()
		sink += uint64(len(name)) + uint64(state)
		for _, read := range [...]func(taskdiag.Row) (uint64, taskdiag.Absent){
			taskdiag.Row.PID, taskdiag.Row.PPID, taskdiag.Row.UID, taskdiag.Row.EUID, taskdiag.Row.SUID, taskdiag.Row.FSUID,
			taskdiag.Row.RSSBytes, taskdiag.Row.VsizeBytes, taskdiag.Row.SwapBytes, taskdiag.Row.PeakRSSBytes,
			taskdiag.Row.DataBytes, taskdiag.Row.StackBytes, taskdiag.Row.LockedBytes, taskdiag.Row.UtimeNS,
			taskdiag.Row.StimeNS, taskdiag.Row.CutimeNS, taskdiag.Row.CstimeNS, taskdiag.Row.StartNS, taskdiag.Row.ThreadsCount,
		} {
			value, _ := read(row)
			sink += value
		}
	}
	return table.Len(), nil
}

var column []uint64

func byColumns(client *taskdiag.Client) (int, error) {
	table, err := client.Processes(context.Background(), fields)
	if err != nil {
		return 0, err
	}
	for _, field := range fields {
		column = table.Uint64s(column[:0], field, 0)
	}
	return table.Len(), nil
}
