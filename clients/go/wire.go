package taskdiag

import "syscall"

// The messages of docs/protocol.md. No I/O: bytes in, values out. The program that listens on the
// broker's socket is not trusted, so decoding any bytes must be safe.

const (
	taskDiag    = 0xd101 // the type of requests, and of messages about tasks
	messageErr  = 2      // NLMSG_ERROR
	messageDone = 3      // NLMSG_DONE

	messageHeader = 16 // struct nlmsghdr
	taskHeader    = 12 // struct task_diag_msg
	nlattrHeader  = 4  // struct nlattr
	bitsSize      = 24 // the payload of wireBits
	recordHeader  = 24 // struct td_record
	attrHeader    = 8  // struct td_attr

	requestSize = 40
	maxPacket   = 64 << 10

	wireRecord = 128 // types of attributes of messages
	wireBits   = 129
	wireOpened = 131

	groupsShift = 16 // where the bits of groups are in show_flags
	showMaps    = 1 << 60
	showSmaps   = 1 << 61
	showBits    = 1 << 63
)

// strategy says which tasks a request is about.
type strategy uint64

const (
	allProcesses strategy = iota
	oneProcess
	allThreads
	childrenOf
	threadsOf
)

// request is a request to the broker.
type request struct {
	seq      uint32
	show     uint64
	strategy strategy
	pid      uint32
}

func (r request) encode() (packet [requestSize]byte) {
	order.PutUint32(packet[0:], requestSize)
	order.PutUint16(packet[4:], taskDiag)
	order.PutUint16(packet[6:], 1) // NLM_F_REQUEST
	order.PutUint32(packet[8:], r.seq)
	order.PutUint64(packet[16:], r.show)
	order.PutUint64(packet[24:], uint64(r.strategy))
	order.PutUint32(packet[32:], r.pid)
	return packet
}

// malformed says why bytes are not an answer.
type malformed string

func (m malformed) Error() string { return "the broker sent " + string(m) }

// message is a message of an answer. An error message has an error number; a message about tasks
// has attributes, and the place where they start.
type message struct {
	kind       uint16
	errno      syscall.Errno
	attributes []byte
	at         int
}

// nextMessage decodes the message at a place in bytes. It also returns the place after it.
func nextMessage(bytes []byte, at int, seq uint32) (message, int, error) {
	rest := bytes[at:]
	if len(rest) < messageHeader {
		return message{}, 0, malformed("a message that is shorter than its header")
	}
	length := uint64(order.Uint32(rest))
	if length < messageHeader || length > uint64(len(rest)) {
		return message{}, 0, malformed("a message of an impossible length")
	}
	if order.Uint32(rest[8:]) != seq {
		return message{}, 0, malformed("an answer to another request")
	}
	body := rest[messageHeader:length]
	next := len(bytes)
	if padded := padded(length, 4); padded < uint64(len(rest)) {
		next = at + int(padded)
	}
	m := message{kind: order.Uint16(rest[4:])}
	switch m.kind {
	case taskDiag:
		if len(body) < taskHeader {
			return m, 0, malformed("a message about a task that is too short")
		}
		m.attributes, m.at = body[taskHeader:], at+messageHeader+taskHeader
	case messageDone:
	case messageErr:
		if len(body) < 4 {
			return m, 0, malformed("an error without its number")
		}
		number := int32(order.Uint32(body))
		if number >= 0 || number < -4095 {
			return m, 0, malformed("an error with an invalid number")
		}
		m.errno = syscall.Errno(-number)
	default:
		return m, 0, malformed("a message of an unknown type")
	}
	return m, next, nil
}

// eachMessage calls each with the messages of a packet about tasks, from start on. It returns whether
// the answer ends in the packet.
func eachMessage(packet []byte, start int, seq uint32, each func(message)) (bool, error) {
	for at := start; at < len(packet); {
		m, next, err := nextMessage(packet, at, seq)
		if err != nil {
			return false, err
		}
		switch m.kind {
		case messageDone:
			return true, nil
		case messageErr:
			return true, answeredErrno{m.errno}
		}
		each(m)
		at = next
	}
	return false, nil
}

// nextWire returns the type and payload of the attribute at a place of a message, and the place
// after it. At the end, or before an incomplete attribute, there is no payload.
func nextWire(bytes []byte, at int) (kind uint16, payload []byte, next int) {
	if at > len(bytes) || len(bytes)-at < nlattrHeader {
		return 0, nil, 0
	}
	length := int(order.Uint16(bytes[at:]))
	if length < nlattrHeader || length > len(bytes)-at {
		return 0, nil, 0
	}
	return order.Uint16(bytes[at+2:]), bytes[at+nlattrHeader : at+length : at+length], at + int(padded(uint64(length), 4))
}

// findWire returns the payload of the first attribute of a type.
func findWire(attributes []byte, wanted uint16) []byte {
	for at := 0; ; {
		kind, payload, next := nextWire(attributes, at)
		if payload == nil || kind == wanted {
			return payload
		}
		at = next
	}
}

func padded(length, to uint64) uint64 { return (length + to - 1) &^ (to - 1) }

// isRecord reports whether bytes are exactly one record.
func isRecord(bytes []byte) bool {
	return len(bytes) >= recordHeader && uint64(order.Uint32(bytes)) == uint64(len(bytes)) && len(bytes)%8 == 0
}

// nextAttr returns the type of the attribute at a place of a record, the place of its payload, and
// the place after it; 0 as the latter at the end, or before an incomplete attribute.
func nextAttr(record []byte, at int) (kind uint16, payload, next int) {
	if at > len(record) || len(record)-at < attrHeader {
		return 0, 0, 0
	}
	length := uint64(order.Uint32(record[at:]))
	if length > uint64(len(record)-at-attrHeader) {
		return 0, 0, 0
	}
	return order.Uint16(record[at+4:]), at + attrHeader, at + attrHeader + int(padded(length, 8))
}

// brokerBits is the broker's description of itself.
type brokerBits struct {
	known, ofAll uint64
	version      uint32
}

func decodeBits(payload []byte) (brokerBits, bool) {
	if len(payload) < bitsSize {
		return brokerBits{}, false
	}
	return brokerBits{order.Uint64(payload), order.Uint64(payload[8:]), order.Uint32(payload[16:])}, true
}
