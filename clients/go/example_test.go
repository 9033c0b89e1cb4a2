package taskdiag_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	taskdiag "github.com/taskdiag/taskdiag/clients/go"
)

// dial connects to the broker of the tests. A real program calls taskdiag.Dial(ctx).
func dial(ctx context.Context) *taskdiag.Client {
	client, err := taskdiag.Dial(ctx, taskdiag.Socket(taskdiag.SocketOfTests()))
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func Example() {
	ctx := context.Background()
	client := dial(ctx)
	defer client.Close()
	table, err := client.Processes(ctx, []taskdiag.Field{taskdiag.PID, taskdiag.Comm, taskdiag.RSSBytes})
	if err != nil {
		log.Fatal(err)
	}
	number := 0
	for i := 0; i < table.Len(); i++ {
		if rss, absent := table.Row(i).RSSBytes(); absent == 0 && rss > 0 {
			number++
		}
	}
	fmt.Println(number > 0)
	// Output: true
}

func ExampleClient_Process() {
	ctx := context.Background()
	client := dial(ctx)
	defer client.Close()
	row, err := client.Process(ctx, os.Getpid(), []taskdiag.Field{taskdiag.PID, taskdiag.Cmdline})
	if err != nil {
		log.Fatal(err)
	}
	pid, _ := row.PID()
	arguments, _ := row.Cmdline()
	fmt.Println(int(pid) == os.Getpid(), len(arguments.Slice()) == len(os.Args))
	_, err = client.Process(ctx, 1<<30, []taskdiag.Field{taskdiag.PID})
	fmt.Println(errors.Is(err, taskdiag.ErrNoProcess))
	// Output:
	// true true
	// true
}

func ExampleClient_OpenMaps() {
	ctx := context.Background()
	client := dial(ctx)
	defer client.Close()
	maps, err := client.OpenMaps(ctx, os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	defer maps.Close()
	fmt.Println(strings.HasSuffix(maps.Name(), "/maps"))
	// Output: true
}

func ExampleTable_Uint64s() {
	ctx := context.Background()
	client := dial(ctx)
	defer client.Close()
	table, err := client.Processes(ctx, []taskdiag.Field{taskdiag.UID, taskdiag.RSSBytes})
	if err != nil {
		log.Fatal(err)
	}
	users := table.Uint64s(nil, taskdiag.UID, 0)
	resident := table.Uint64s(nil, taskdiag.RSSBytes, 0) // 0 where there is no memory
	of := map[uint64]uint64{}
	for i := range users {
		of[users[i]] += resident[i]
	}
	fmt.Println(of[0] > 0)
	// Output: true
}

func ExampleParseFields() {
	fields, err := taskdiag.ParseFields("pid,comm", "rss_bytes")
	fmt.Println(fields, err)
	_, err = taskdiag.ParseFields("pid,rss")
	fmt.Println(err)
	fmt.Println(taskdiag.RSSBytes.Info().Meaning)
	// Output:
	// [pid comm rss_bytes] <nil>
	// taskdiag: unknown field "rss"; near it are: rss_bytes, rss_anon_bytes, rss_file_bytes, rss_shmem_bytes, peak_rss_bytes
	// Resident memory: the sum of rss_anon_bytes, rss_file_bytes and rss_shmem_bytes.
}
