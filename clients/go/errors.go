package taskdiag

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Errors of queries. Test for them with [errors.Is]; the returned errors contain more information,
// and what to do. A missing value is not an error: see [Absent].
var (
	// ErrNoBroker means that no broker answers on the socket.
	ErrNoBroker = errors.New("no broker answers")
	// ErrNoProcess means that the process does not exist, or that the caller may not see it.
	ErrNoProcess = errors.New("no such process")
	// ErrDenied means that the caller lacks a permission.
	ErrDenied = errors.New("denied")
	// ErrBusy means that the broker can't answer now: it has too many clients or unread answers, or
	// the process changed or did not answer. Try again.
	ErrBusy = errors.New("the broker is busy")
	// ErrNoMemory means that the process has no mappings: it is a kernel thread or a zombie.
	ErrNoMemory = errors.New("no memory")
	// ErrVersion means that the broker has another version than this client.
	ErrVersion = errors.New("the broker has another version")
	// ErrUnsupported means that the broker or this kernel lacks a feature.
	ErrUnsupported = errors.New("unsupported")
	// ErrMalformed means that the answer does not come from a broker that this client understands.
	ErrMalformed = errors.New("malformed answer")
	// ErrUnknownField means that no field has this name. The error is an [*UnknownFieldError].
	ErrUnknownField = errors.New("unknown field")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("the client is closed")
)

var errClosed = failf(ErrClosed, "the client is closed")

// failure is one of the errors above, with a message for people and a cause.
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
	// net's own text has the path, too.
	if errno := syscall.Errno(0); errors.As(cause, &errno) {
		cause = errno
	}
	switch {
	case errors.Is(cause, syscall.EACCES) || errors.Is(cause, syscall.EPERM):
		return &failure{ErrDenied, "no permission to connect to the broker's socket " + path, cause}
	case isLack(cause):
		// This says nothing about the broker.
		return &failure{nil, "can't use the broker's socket " + path, cause}
	case errors.Is(cause, syscall.ENOENT) || errors.Is(cause, syscall.ECONNREFUSED):
		return &failure{ErrNoBroker, message, &remedied{cause, "start it as root: taskdiagd --socket " + path}}
	}
	return &failure{ErrNoBroker, message, cause}
}

// remedied is a cause, with what to do about it.
type remedied struct {
	cause  error
	remedy string
}

func (r *remedied) Error() string { return r.cause.Error() + " (" + r.remedy + ")" }

func (r *remedied) Unwrap() error { return r.cause }

// UnknownFieldError is the error for an unknown field name.
type UnknownFieldError struct {
	// Name is the unknown name.
	Name string
	// Near are similar names, most similar first.
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
