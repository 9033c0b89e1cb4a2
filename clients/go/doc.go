// Package taskdiag asks the broker of taskdiag about the processes and threads of this machine: all
// of them in one binary request, with the fields that are asked for, and nothing else.
//
// A query returns a [Table]. Its bytes are those that the broker sent, and values are read in place,
// so a query takes the same few allocations for ten processes and for ten thousand. Each value comes
// with an [Absent], which is 0 if the value is there and otherwise says why it is missing: a value
// that is not known is never 0.
//
// The broker, taskdiagd, loads BPF programs and answers for processes that may not, with what /proc
// would show them. It has to run; docs/protocol.md and docs/packaging.md say how. Command lines,
// environments, sums of page tables, and what BPF can't read exactly, this package reads from /proc
// itself. No process can make it wait for longer than its patience.
//
// The package needs neither cgo nor other modules.
package taskdiag
