//go:build !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package taskdiag

import "encoding/binary"

// Numbers in messages and records are in the byte order of the machine.
var order = binary.BigEndian
