// Prints the processes that use the most memory: top [-n NUMBER] [-socket PATH]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	taskdiag "github.com/taskdiag/taskdiag/clients/go"
)

func main() {
	number := flag.Int("n", 10, "how many processes")
	socket := flag.String("socket", taskdiag.DefaultSocket, "the broker's socket")
	flag.Parse()
	if err := run(*number, *socket); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(number int, socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client, err := taskdiag.Dial(ctx, taskdiag.Socket(socket))
	if err != nil {
		return err
	}
	defer client.Close()
	table, err := client.Processes(ctx, []taskdiag.Field{taskdiag.PID, taskdiag.Comm, taskdiag.RSSBytes})
	if err != nil {
		return err
	}
	resident := table.Uint64s(nil, taskdiag.RSSBytes, 0)
	order := make([]int, table.Len())
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return resident[order[i]] > resident[order[j]] })
	if number < len(order) {
		order = order[:number]
	}
	for _, i := range order {
		row := table.Row(i)
		pid, _ := row.PID()
		name, _ := row.Comm()
		if rss, absent := row.RSSBytes(); absent != 0 {
			fmt.Printf("%8d %12v  %q\n", pid, absent, name)
		} else {
			fmt.Printf("%8d %12d  %q\n", pid, rss, name)
		}
	}
	return nil
}
