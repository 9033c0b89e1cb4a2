package taskdiag

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// What can go wrong with a query. Test for them with [errors.Is]: the errors that are returned say
// more, and what to do. A value that is missing is no error: see [Absent].
var (
	// ErrNoBroker: nobody answers at the broker's socket.
	ErrNoBroker = errors.New("no broker answers")
	// ErrNoProcess: there is no such process, or the caller may not see it.
	ErrNoProcess = errors.New("no such process")
	// ErrDenied: the caller lacks a permission.
	ErrDenied = errors.New("denied")
	// ErrBusy: the broker has too much to do for this user. Try again.
	ErrBusy = errors.New("the broker is busy")
	// ErrNoMemory: the process has no mappings. It is a kernel thread or a zombie.
	ErrNoMemory = errors.New("no memory")
	// ErrVersion: the broker is of another version than this client.
	ErrVersion = errors.New("the broker is of another version")
	// ErrUnsupported: the broker, or this kernel, can't do it.
	ErrUnsupported = errors.New("unsupported")
	// ErrMalformed: the answer is not that of a broker that this client understands.
	ErrMalformed = errors.New("malformed answer")
	// ErrUnknownField: no field has this name. The error is an [*UnknownFieldError].
	ErrUnknownField = errors.New("unknown field")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("the client is closed")
)

var errClosed = failf(ErrClosed, "the client is closed")

// failure is one of the errors above, with a message for people, and what caused it.
type failure struct {
	kind    error
	message string
	cause   error
}

func (f *failure) Error() string {
	if f.cause == nil {
		return "taskdiag: " + f.message
	}
	return "taskdiag: " + f.message + ": " + f.cause.Error()
}

func (f *failure) Is(target error) bool { return target == f.kind }

func (f *failure) Unwrap() error { return f.cause }

func failf(kind error, format string, arguments ...any) error {
	return &failure{kind, fmt.Sprintf(format, arguments...), nil}
}

func noProcess(pid int) error {
	return failf(ErrNoProcess, "no process with pid %d (it may have ended, or be hidden from you)", pid)
}

func noBroker(path string, cause error) error {
	message := "no broker answers at " + path
	switch {
	case errors.Is(cause, syscall.EACCES) || errors.Is(cause, syscall.EPERM):
		message = "no permission to connect to the broker's socket " + path
	case errors.Is(cause, syscall.ENOENT) || errors.Is(cause, syscall.ECONNREFUSED):
		message += ": start taskdiagd there, or name its socket with Socket (taskdiag doctor --socket " + path + " tries it)"
	}
	return &failure{ErrNoBroker, message, cause}
}

// UnknownFieldError says that no field has a name.
type UnknownFieldError struct {
	// Name is the name asked for.
	Name string
	// Near are names that are near it, the nearest first.
	Near []string
}

func (e *UnknownFieldError) Error() string {
	name := e.Name
	if len(name) > 40 {
		name = name[:40] + "…"
	}
	message := fmt.Sprintf("taskdiag: unknown field %q", name)
	if len(e.Near) > 0 {
		message += "; near it are: " + strings.Join(e.Near, ", ")
	}
	return message
}

// Is makes errors.Is(err, ErrUnknownField) true.
func (e *UnknownFieldError) Is(target error) bool { return target == ErrUnknownField }
