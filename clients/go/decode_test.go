package taskdiag

import (
	"encoding/json"
	"testing"
)

// decode decodes an answer as a query does, and reads every value of every row.
func decode(packets []byte) (*Table, error) {
	table := newTable(Fields(), shape{})
	table.groups = 1<<groupDerived - 1
	for len(packets) > 0 {
		// Two bytes have the length of the next packet.
		length := 0
		if len(packets) >= 2 {
			length = int(packets[0]) | int(packets[1])<<8
			packets = packets[2:]
		}
		if length > len(packets) {
			length = len(packets)
		}
		start := len(table.bytes)
		table.bytes = append(table.bytes, packets[:length]...)
		if packets = packets[length:]; length == 0 {
			break
		}
		done, err := table.take(start, 5)
		if err != nil {
			return table, err
		}
		if done {
			break
		}
	}
	table.index()
	return table, nil
}

// packet prefixes a packet with its length, for decode.
func packet(bytes []byte) []byte {
	return append([]byte{byte(len(bytes)), byte(len(bytes) >> 8)}, bytes...)
}

// FuzzDecoder decodes any bytes as an answer: it must not fail, and its rows must be valid JSON.
func FuzzDecoder(f *testing.F) {
	var all [][]byte
	for kind := uint16(1); kind < maxAttr; kind++ {
		payload := make([]byte, 184)
		for i := range payload {
			payload[i] = byte(i) + byte(kind)
		}
		all = append(all, attribute(kind, payload))
	}
	for _, flags := range []uint32{0, flagKernelThread, flagNoMM, flagDeferred, flagHasAbsent, flagAgain, ^uint32(0)} {
		var p packets
		p.task(5, wire(wireRecord, record(9, flags, all...)))
		p.task(5, wire(wireRecord, record(3, flags, all[:4]...)), wire(77, []byte{1}))
		first := packet(p.bytes)
		f.Add(first)
		p = packets{}
		p.task(5, wire(wireRecord, record(4, flags)))
		p.done(5)
		f.Add(append(first, packet(p.bytes)...))
	}
	var p packets
	p.fail(5, 3)
	f.Add(packet(p.bytes))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		table, err := decode(bytes)
		if err != nil {
			return
		}
		text, err := json.Marshal(table)
		if err != nil || !json.Valid(text) {
			t.Fatalf("%v: %.200q", err, text)
		}
		for _, field := range table.fields {
			if list := table.Uint64s(nil, field, 0); len(list) != table.Len() {
				t.Fatalf("%d values of %v, and %d rows", len(list), field, table.Len())
			}
		}
		for i := 1; i < table.Len(); i++ {
			if table.rows[i-1].tid > table.rows[i].tid {
				t.Fatal("rows are not in order")
			}
		}
		_, _ = wasOpened(bytes, 5, showMaps)
		_ = received(bytes, "fuzz") // control messages without descriptors
		(&connection{}).fuzzBits(bytes)
	})
}

func (c *connection) fuzzBits(bytes []byte) { _, _ = c.takeBits(bytes, 5) }

// Check the arithmetic of processor times at its limits.
func TestTimesAreThoseOfTheKernel(t *testing.T) {
	const most = ^uint64(0)
	for _, each := range []struct{ user, system, runtime, prevUser, prevSystem, wantUser, wantSystem uint64 }{
		{0, 0, 0, 7, 8, 7, 8},
		{1, 1, 100, 0, 0, 50, 50},
		{0, 5, 100, 0, 0, 0, 100},
		{5, 0, 100, 0, 0, 100, 0},
		{3, 1, 100, 80, 0, 80, 20},
		{1, 3, 100, 0, 80, 20, 80},
		{most, most, most, 0, 0, most/2 + 1, most / 2},
		{0, 0, 5, most, most, most, most},
	} {
		payload := make([]byte, 152)
		for at, value := range map[int]uint64{
			cpuUtimeNS: each.user, cpuStimeNS: each.system, cpuSumExecRuntime: each.runtime,
			cpuPrevUtime: each.prevUser, cpuPrevStime: each.prevSystem,
		} {
			order.PutUint64(payload[at:], value)
		}
		var p packets
		p.task(5, wire(wireRecord, record(1, 0, attribute(attrCPU, payload))))
		table, err := decode(packet(p.bytes))
		if err != nil {
			t.Fatal(err)
		}
		user, _ := table.Row(0).UtimeNS()
		system, _ := table.Row(0).StimeNS()
		if user != each.wantUser || system != each.wantSystem {
			t.Errorf("%+v: %d and %d", each, user, system)
		}
	}
}

// Check that values are printed and marshalled as by the command.
func TestValuesAreWrittenAsTheCommandsAre(t *testing.T) {
	bytes := func(numbers ...uint64) string {
		var out []byte
		for _, each := range numbers {
			out = number(out, each, 8)
		}
		return string(out)
	}
	for want, value := range map[string]Value{
		`18446744073709551615`:                  {KindCount, ^uint64(0), ""},
		`-5`:                                    {KindSigned, ^uint64(4), ""},
		`true`:                                  {KindFlag, 1, ""},
		`"S"`:                                   {KindLetter, 'S', ""},
		`"0x1ff"`:                               {KindMask, 0x1ff, ""},
		`"é\"\\\n<"`:                            {KindText, 0, "é\"\\\n<"},
		`{"base64":"/wA="}`:                     {KindText, 0, "\xff\x00"},
		`["a","",{"base64":"/w=="}]`:            {KindTexts, 0, "a\x00\x00\xff\x00"},
		`[]`:                                    {KindTexts, 0, ""},
		`[""]`:                                  {KindTexts, 0, "\x00"},
		`["a title"]`:                           {KindTexts, 0, "a title\x00\x00\x00"},
		`["a","b",""]`:                          {KindTexts, 0, "a\x00b\x00\x00"},
		`[7,0]`:                                 {KindIDs, 0, bytes(7)},
		`"0-1,3,64"`:                            {KindCPUs, 0, bytes(11, 1)},
		`{"cpu":{"soft":7,"hard":"unlimited"}}`: {KindLimits, 0, bytes(7, ^uint64(0))},
	} {
		if text, err := value.MarshalJSON(); err != nil || string(text) != want {
			t.Errorf("%s, and not %s: %v", text, want, err)
		}
	}
	limits := ResourceLimits{bytes(7, ^uint64(0), 1, 2)}
	if soft, hard, found := limits.Get("fsize"); !found || soft != 1 || hard != 2 {
		t.Errorf("%d and %d: %v", soft, hard, found)
	}
	if _, _, found := limits.Get("nofile"); found || limits.String() != "cpu=7:unlimited,fsize=1:2" {
		t.Errorf("%v", limits)
	}
	set := CPUSet{bytes(1|1<<63, 2)}
	if !set.Contains(63) || !set.Contains(65) || set.Contains(64) || set.Contains(-1) || set.Contains(1<<40) {
		t.Errorf("%v", set)
	}
}

// Check that nothing in the public interface panics without a table, and for numbers that are no
// fields.
func TestRowsWithoutTable(t *testing.T) {
	text, err := json.Marshal(Row{})
	if err != nil || string(text) != "{}" || (Row{}).String() != "{}" {
		t.Errorf("%s: %v", text, err)
	}
	for field := 0; field < 256; field++ {
		if value, reason := (Row{}).Value(Field(field)); reason != NotAsked {
			t.Errorf("field %d is %v: %v", field, value, reason)
		}
	}
	if name, reason := (Row{}).Comm(); reason != NotAsked {
		t.Errorf("%q: %v", name, reason)
	}
	if pid, reason := (Row{}).PID(); reason != NotAsked {
		t.Errorf("%d: %v", pid, reason)
	}
	var p packets
	p.task(5, wire(wireRecord, record(1, 0)))
	table, err := decode(packet(p.bytes))
	if err != nil {
		t.Fatal(err)
	}
	if column := table.Uint64s(nil, Field(200), 7); len(column) != 1 || column[0] != 7 {
		t.Errorf("%v", column)
	}
}
