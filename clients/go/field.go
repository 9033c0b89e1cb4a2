package taskdiag

import (
	"sort"
	"strings"
)

// A Field identifies a value of a process: a row of the field table, see docs/fields.md.
type Field uint8

// A Kind is the kind of a field's values.
type Kind uint8

// The kinds of fields.
const (
	KindNumber Kind = iota // an id or another number that is not counted
	KindUser
	KindGroup
	KindCount
	KindSigned
	KindBytes
	KindNanoseconds
	KindMode // permission bits
	KindPercent
	KindFlag
	KindLetter
	KindText // bytes, usually text
	KindTime
	KindTexts
	KindIDs
	KindCPUs
	KindCapabilities // a bit mask
	KindSignals      // a bit mask: signal N is bit N - 1
	KindMask
	KindAddress
	KindLimits
)

// Info is the description of a field in the table.
type Info struct {
	// Name is the field's name, as in the command's columns and JSON.
	Name string
	// Group is the name of its group: fields that are read together.
	Group string
	// Origin is where /proc/PID has the value, or the fields that it is derived from.
	Origin string
	// Since is the first kernel version that has it there. It is empty if all supported kernels do.
	Since string
	// Access is the right needed to see it for another user's process: "trace", "nice", or empty.
	Access string
	// Meaning describes the value.
	Meaning string
	// Kind is the kind of its values.
	Kind Kind
}

// fieldInfo is a row of the table: the description of a field, and its place in a record.
type fieldInfo struct {
	Info
	group  uint8 // the bit of the group; groupDerived if the library makes it of other fields
	form   form
	attr   uint8
	offset uint8
	// allOnes is what all ones mean, if they are no number.
	allOnes Absent
	proc    procPlace
}

// procPlace is where procfs has a value: the file, the key of its line, which word of the file it is,
// and which word of the line. Words of stat count from 1, others from 0.
type procPlace struct {
	file, key string
	at, word  uint8
}

// groupDerived is the group of fields that no record has.
const groupDerived = 31

// form is how a record represents a value.
type form uint8

const (
	formDerived form = iota
	formHeader32
	formHeader64
	formKernelThread
	formUnsigned32
	formUnsigned64
	formSigned32
	formLetter
	formNamespace // 0: it has given up its namespaces
	formComm
	formUserTime
	formSystemTime
	formResident
	formUnique
	formExecutable
	formPayload
)

// Info returns the description of the field.
func (f Field) Info() Info {
	if int(f) >= len(fieldTable) {
		return Info{}
	}
	return fieldTable[f].Info
}

// String returns the name of the field.
func (f Field) String() string { return f.Info().Name }

// needsMemory reports whether only tasks with an address space have the field.
func (f Field) needsMemory() bool {
	const groups = groupMem | groupArgs | groupEnv | groupLayout | groupRollup
	return 1<<fieldTable[f].group&groups != 0 && f != Personality
}

// Fields returns all fields, in the order of the table.
func Fields() []Field {
	all := make([]Field, len(fieldTable))
	for i := range all {
		all[i] = Field(i)
	}
	return all
}

// ParseField returns the field with this name. If there is none, the error is an
// [*UnknownFieldError].
func ParseField(name string) (Field, error) {
	for i := range fieldTable {
		if fieldTable[i].Name == name {
			return Field(i), nil
		}
	}
	return 0, &UnknownFieldError{name, near(name)}
}

// ParseFields returns the fields with these names. Each argument may contain several, separated by
// commas.
func ParseFields(names ...string) ([]Field, error) {
	var fields []Field
	for _, list := range names {
		for _, name := range strings.Split(list, ",") {
			field, err := ParseField(strings.TrimSpace(name))
			if err != nil {
				return nil, err
			}
			fields = append(fields, field)
		}
	}
	return fields, nil
}

// near returns up to five names similar to a name, most similar first. The rule is that of the
// library: crates/taskdiag-core/src/field/near.rs.
func near(name string) []string {
	const longest, most = 100, 5
	if len(name) > longest {
		return nil
	}
	type candidate struct {
		distance, length int
		name             string
	}
	var found []candidate
	name = strings.ToLower(name)
	for i := range fieldTable {
		other := fieldTable[i].Name
		isLong := len(name) >= 3
		distance := 0
		switch {
		case isLong && strings.HasPrefix(other, name):
		case isLong && (strings.Contains(other, name) || strings.Contains(name, other)):
			distance = 1
		default:
			distance = levenshtein([]rune(name), []rune(other))
		}
		if distance <= 1+len(other)/4 {
			length := len(other) - len(name)
			if length < 0 {
				length = -length
			}
			found = append(found, candidate{distance, length, other})
		}
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.distance != b.distance {
			return a.distance < b.distance
		}
		if a.length != b.length {
			return a.length < b.length
		}
		return a.name < b.name
	})
	var names []string
	for i := 0; i < len(found) && i < most; i++ {
		names = append(names, found[i].name)
	}
	return names
}

// levenshtein returns the number of insertions, deletions and replacements that turn a into b.
func levenshtein(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			least := diagonal
			if a[i] != b[j] {
				least++
			}
			diagonal = row[j+1]
			if diagonal+1 < least {
				least = diagonal + 1
			}
			if row[j]+1 < least {
				least = row[j] + 1
			}
			row[j+1] = least
		}
	}
	return row[len(b)]
}

// Absent is the reason why a value is missing; 0 if the value is present. A missing value is never
// represented as 0 or as an empty text.
type Absent uint8

// String returns the reason in a few words, as the command prints it; empty if the value is
// present.
func (a Absent) String() string {
	if int(a) >= len(absentNames) {
		return Unsupported.String()
	}
	return absentNames[a]
}

// absentFromWire returns the reason with this number in a record. An unknown number, from a newer
// broker, becomes Unsupported.
func absentFromWire(number uint16) Absent {
	if number == 0 || int(number) >= len(absentNames) {
		return Unsupported
	}
	return Absent(number)
}
