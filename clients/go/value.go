package taskdiag

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Value is the value of any field. The kind of the field says which method returns it. Its JSON
// is that of the command: see docs/output.md.
type Value struct {
	kind   Kind
	number uint64
	text   string
}

// Value returns the value of any field, or the reason why it is missing.
func (r Row) Value(field Field) (Value, Absent) {
	if int(field) >= len(fieldTable) {
		return Value{}, NotAsked
	}
	info := &fieldTable[field]
	switch info.Kind {
	case KindText, KindTime, KindTexts, KindIDs, KindCPUs, KindLimits:
		text, reason := r.text(field)
		return Value{info.Kind, 0, text}, reason
	}
	number, reason := r.uint64(field)
	return Value{info.Kind, number, ""}, reason
}

// Kind returns the kind of the field.
func (v Value) Kind() Kind { return v.kind }

// Uint64 returns a number or bit mask, 1 or 0 for a flag, the code of a letter, and 0 for other values.
func (v Value) Uint64() uint64 { return v.number }

// Int64 returns the same as Uint64, as a number that may be negative.
func (v Value) Int64() int64 { return int64(v.number) }

// Bool returns a flag.
func (v Value) Bool() bool { return v.number != 0 }

// Text returns a text. It may contain any bytes except NUL.
func (v Value) Text() string { return v.text }

// Texts returns a list of texts.
func (v Value) Texts() Texts { return Texts{v.text} }

// IDs returns a list of ids.
func (v Value) IDs() IDs { return IDs{v.text} }

// CPUs returns a set of processors.
func (v Value) CPUs() CPUSet { return CPUSet{v.text} }

// Limits returns resource limits.
func (v Value) Limits() ResourceLimits { return ResourceLimits{v.text} }

// String returns the value as text for people. It may contain any bytes.
func (v Value) String() string {
	switch v.kind {
	case KindSigned:
		return strconv.FormatInt(int64(v.number), 10)
	case KindFlag:
		return strconv.FormatBool(v.number != 0)
	case KindLetter:
		return string(rune(v.number))
	case KindText, KindTime:
		return v.text
	case KindTexts:
		return strings.Join(v.Texts().Slice(), " ")
	case KindIDs:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(v.IDs().Slice()), " ", ","), "[]")
	case KindCPUs:
		return v.CPUs().String()
	case KindCapabilities, KindSignals, KindMask, KindAddress:
		return "0x" + strconv.FormatUint(v.number, 16)
	case KindLimits:
		return v.Limits().String()
	}
	return strconv.FormatUint(v.number, 10)
}

// MarshalJSON returns the value as in the command's JSON: bit masks and addresses in hexadecimal,
// text that is not UTF-8 as {"base64": …}.
func (v Value) MarshalJSON() ([]byte, error) { return v.appendJSON(nil), nil }

func (v Value) appendJSON(out []byte) []byte {
	switch v.kind {
	case KindTexts:
		out = append(out, '[')
		for i, text := range v.Texts().Slice() {
			out = appendText(appendComma(out, i), text)
		}
		return append(out, ']')
	case KindIDs:
		out = append(out, '[')
		for i, id := range v.IDs().Slice() {
			out = strconv.AppendUint(appendComma(out, i), uint64(id), 10)
		}
		return append(out, ']')
	case KindLimits:
		return v.Limits().appendJSON(out)
	case KindText, KindTime:
		return appendText(out, v.text)
	case KindLetter, KindCPUs, KindCapabilities, KindSignals, KindMask, KindAddress:
		return appendText(out, v.String())
	}
	return append(out, v.String()...)
}

func appendComma(out []byte, i int) []byte {
	if i > 0 {
		out = append(out, ',')
	}
	return out
}

// appendText appends a text as JSON. A text that is not UTF-8 can't be a string.
func appendText(out []byte, text string) []byte {
	if !utf8.ValidString(text) {
		out = append(out, `{"base64":"`...)
		return append(append(out, base64.StdEncoding.EncodeToString([]byte(text))...), `"}`...)
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // strings can always be encoded
	return append(out, bytes.TrimRight(quoted.Bytes(), "\n")...)
}

// MarshalJSON returns the row as in the command's JSON: values by field name, in the requested
// order, and the reasons for missing values under "absent".
func (r Row) MarshalJSON() ([]byte, error) {
	if r.table == nil {
		return []byte("{}"), nil
	}
	out, absent := []byte{'{'}, []byte(nil)
	for _, field := range r.table.fields {
		value, reason := r.Value(field)
		if reason != 0 {
			absent = appendText(appendComma(absent, len(absent)), field.String())
			absent = appendText(append(absent, ':'), reason.String())
			continue
		}
		out = appendText(appendComma(out, len(out)-1), field.String())
		out = value.appendJSON(append(out, ':'))
	}
	if absent != nil {
		out = append(appendComma(out, len(out)-1), `"absent":{`...)
		out = append(append(out, absent...), '}')
	}
	return append(out, '}'), nil
}

// String returns the row in the form of [Row.MarshalJSON].
func (r Row) String() string {
	text, _ := r.MarshalJSON()
	return string(text)
}

// MarshalJSON returns the rows as in the command's JSON.
func (t *Table) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i := range t.rows {
		row, _ := Row{t, i}.MarshalJSON()
		out = append(appendComma(out, i), row...)
	}
	return append(out, ']'), nil
}

// Texts is a command line or an environment: byte strings, as the process left them.
type Texts struct{ bytes string }

// Raw returns the bytes as the kernel gives them: each text ends in a NUL, except perhaps the last.
func (t Texts) Raw() string { return t.bytes }

// Slice returns the texts. They share the memory of the answer. NULs behind a title that a process
// wrote over its arguments are none.
func (t Texts) Slice() []string {
	if t.bytes == "" {
		return nil
	}
	// A program that writes a title over its arguments fills the rest of them with NULs.
	if title, rest, _ := strings.Cut(t.bytes, "\x00"); strings.Trim(rest, "\x00") == "" {
		return []string{title}
	}
	return strings.Split(strings.TrimSuffix(t.bytes, "\x00"), "\x00")
}

// IDs is a list of ids.
type IDs struct{ bytes string }

// Len returns the number of ids.
func (l IDs) Len() int { return len(l.bytes) / 4 }

// At returns the id with index i.
func (l IDs) At(i int) uint32 { return order.Uint32([]byte(l.bytes[i*4 : i*4+4])) }

// Slice returns the ids.
func (l IDs) Slice() []uint32 {
	list := make([]uint32, l.Len())
	for i := range list {
		list[i] = l.At(i)
	}
	return list
}

// CPUSet is a set of processors.
type CPUSet struct{ bytes string }

// Contains reports whether a processor is in the set.
func (s CPUSet) Contains(cpu int) bool {
	return cpu >= 0 && cpu/64 < len(s.bytes)/8 && s.word(cpu/64)>>(cpu%64)&1 != 0
}

func (s CPUSet) word(i int) uint64 { return order.Uint64([]byte(s.bytes[i*8 : i*8+8])) }

// Slice returns the processors in ascending order.
func (s CPUSet) Slice() []int {
	var list []int
	for i := 0; i < len(s.bytes)/8; i++ {
		for rest := s.word(i); rest != 0; rest &= rest - 1 {
			list = append(list, i*64+bits.TrailingZeros64(rest))
		}
	}
	return list
}

// String returns the set as the kernel writes it (cpuset(7)), for example 0-3,7.
func (s CPUSet) String() string {
	var out []byte
	list := s.Slice()
	for i := 0; i < len(list); {
		last := i
		for last+1 < len(list) && list[last+1] == list[last]+1 {
			last++
		}
		out = strconv.AppendInt(appendComma(out, i), int64(list[i]), 10)
		if last > i {
			out = strconv.AppendInt(append(out, '-'), int64(list[last]), 10)
		}
		i = last + 1
	}
	return string(out)
}

// limitNames are in the order of RLIMIT_*.
var limitNames = [...]string{
	"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks",
	"sigpending", "msgqueue", "nice", "rtprio", "rttime",
}

// Unlimited means no limit.
const Unlimited = math.MaxUint64

// ResourceLimits are the limits of getrlimit(2). data, stack, core, rss, memlock, as, fsize and
// msgqueue are in bytes, cpu in seconds, rttime in microseconds; the others are counts.
type ResourceLimits struct{ bytes string }

// Get returns the soft and hard limit with a name, which is in lower case without RLIMIT_; and
// whether it exists. Either limit may be Unlimited.
func (l ResourceLimits) Get(name string) (soft, hard uint64, found bool) {
	for i := 0; i < l.len(); i++ {
		if limitNames[i] == name {
			soft, hard = l.at(i)
			return soft, hard, true
		}
	}
	return 0, 0, false
}

func (l ResourceLimits) len() int {
	if number := len(l.bytes) / 16; number < len(limitNames) {
		return number
	}
	return len(limitNames)
}

func (l ResourceLimits) at(i int) (soft, hard uint64) {
	both := []byte(l.bytes[i*16 : i*16+16])
	return order.Uint64(both), order.Uint64(both[8:])
}

// String returns the limits as in nofile=1024:524288, soft and hard, separated by commas.
func (l ResourceLimits) String() string {
	var out []byte
	for i := 0; i < l.len(); i++ {
		soft, hard := l.at(i)
		out = append(append(appendComma(out, i), limitNames[i]...), '=')
		out = append(append(append(out, limitText(soft)...), ':'), limitText(hard)...)
	}
	return string(out)
}

func (l ResourceLimits) appendJSON(out []byte) []byte {
	out = append(out, '{')
	for i := 0; i < l.len(); i++ {
		soft, hard := l.at(i)
		out = append(appendText(appendComma(out, i), limitNames[i]), `:{"soft":`...)
		out = append(appendLimit(out, soft), `,"hard":`...)
		out = append(appendLimit(out, hard), '}')
	}
	return append(out, '}')
}

func appendLimit(out []byte, limit uint64) []byte {
	if limit == Unlimited {
		return append(out, `"unlimited"`...)
	}
	return strconv.AppendUint(out, limit, 10)
}

func limitText(limit uint64) string {
	if limit == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(limit, 10)
}
