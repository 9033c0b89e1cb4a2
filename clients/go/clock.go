package taskdiag

import (
	"syscall"
	"time"
	"unsafe"
)

// BootTime returns when this machine booted, according to the current setting of the clock. A
// process started at BootTime().Add(time.Duration(start)), where start is its StartNS.
func BootTime() time.Time {
	const tries = 3
	var boot time.Time
	shortest := time.Duration(-1)
	// The shortest of several attempts is the most accurate.
	for try := 0; try < tries; try++ {
		before := sinceBoot()
		now := time.Now()
		after := sinceBoot()
		if took := after - before; shortest < 0 || took < shortest {
			shortest, boot = took, now.Add(-(before+after)/2)
		}
	}
	// Round drops Go's monotonic clock, so that boot times are compared by wall clock.
	return boot.Round(0)
}

// sinceBoot returns CLOCK_BOOTTIME, which every kernel has.
func sinceBoot() time.Duration {
	const clockBoottime = 7
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}
