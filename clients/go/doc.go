// Package taskdiag queries the taskdiag broker for the processes and threads of this machine: all
// of them with one binary request, and only the requested fields.
//
// A query returns a [Table]. It keeps the bytes that the broker sent and reads values in place, so
// a query needs the same few allocations for ten processes as for ten thousand. Each value comes
// with an [Absent], which is 0 if the value is present and otherwise is the reason why it is
// missing. A missing value is never reported as 0.
//
// The broker, taskdiagd, loads BPF programs and answers for processes that are not allowed to, with
// what /proc would show them. It must be running; see docs/protocol.md and docs/packaging.md. This
// package itself reads from /proc: command lines, environments, sums of page tables, and values
// that BPF can't read exactly. A process that does not answer delays a query by its [Patience], and
// one that answers slowly by five seconds. A reader that runs is waited for: the sums of page tables
// of a process with much memory take long.
//
// The package needs neither cgo nor other modules.
package taskdiag
