package handwritten

import (
	"encoding/binary"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// From the fifth generation on, an NVLink is a port of the kind that NVIDIA's network adapters have, with the registers of their
// programmer's reference manual (PRM). Link 0 is local port 1, since port 0 is the device's own.

// port is the link of a local port; false if there is no such port.
func port(d *engine.Device, number uint32) (link uint32, ok bool) {
	return number - 1, number >= 1 && number <= d.LinkCount()
}

// hasPorts says whether the GPU's links are such ports.
func hasPorts(d *engine.Device) bool { return countsPackets(d) && d.LinkCount() > 0 }

// portCounters count what a link does: what it carries, in bytes, and its errors. What never happens on these links, such as a
// recovery, is 0.
var portCounters = table[abi.PRMCounterId_t, func(traffic, errors uint64) uint64]{
	{abi.PRM_COUNTER_ID_PPCNT_PHYSICAL_LAYER_CTRS_LINK_DOWN_EVENTS, never},
	{abi.PRM_COUNTER_ID_PPCNT_PHYSICAL_LAYER_CTRS_SUCCESSFUL_RECOVERY_EVENTS, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TOTAL_SUCCESSFUL_RECOVERY_EVENTS, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TIME_SINCE_LAST_RECOVERY, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TIME_BETWEEN_LAST_TWO_RECOVERIES, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TIME_IN_LAST_HOST_SERDES_FEQ_RECOVERY, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TOTAL_TIME_IN_HOST_SERDES_FEQ_RECOVERY, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TOTAL_HOST_SERDES_FEQ_RECOVERY_COUNT, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TOTAL_HOST_SERDES_FEQ_SUCCESSFUL_RECOVERY_COUNT, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_LAST_HOST_SERDES_FEQ_ATTEMPTS_COUNT, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_LAST_SUCCESSFUL_RECOVERY_STEP_ATTEMPTS, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_LAST_SUCCESSFUL_RECOVERY_TIME, never},
	{abi.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TOTAL_SUCCESSFUL_RECOVERY_TIME, never},
	{abi.PRM_COUNTER_ID_PPCNT_PORTCOUNTERS_PORT_XMIT_WAIT, never},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_RCV_CODES, packets},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_RCV_CODE_ERR, failures},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_RCV_UNCORRECTABLE_CODE, never},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_XMIT_CODES, packets},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_XMIT_RETRY_CODES, failures},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_XMIT_RETRY_EVENTS, failures},
	{abi.PRM_COUNTER_ID_PPCNT_PLR_SYNC_EVENTS, never},
	{abi.PRM_COUNTER_ID_PPRM_OPER_RECOVERY, never}, // no recovery is under way
}

func never(_, _ uint64) uint64         { return 0 }
func packets(traffic, _ uint64) uint64 { return traffic / packetBytes }
func failures(_, errors uint64) uint64 { return errors }

// DeviceReadPRMCounters_v1 answers a list of counters of NVLinks, each with its own return code: INVALID_ARGUMENT for a counter or
// a port that there is not. It is NOT_SUPPORTED before the fifth generation of links.
func DeviceReadPRMCounters_v1(d *engine.Device, _ *abi.PRMCounterList_v1_t, counters []abi.PRMCounter_v1_t) abi.Return {
	if !hasPorts(d) {
		return abi.ERROR_NOT_SUPPORTED
	}
	for i := range counters {
		c := &counters[i]
		link, isPort := port(d, c.InData.LocalPort)
		count, known := portCounters.Find(abi.PRMCounterId_t(c.CounterId))
		c.CounterValue = abi.PRMCounterValue_v1_t{Status: abi.ERROR_INVALID_ARGUMENT}
		if isPort && known {
			c.CounterValue = abi.PRMCounterValue_v1_t{
				OutputType: abi.VALUE_TYPE_UNSIGNED_LONG_LONG, OutputValue: abi.Value_t{count(d.LinkTraffic()<<10, d.LinkErrors(link))},
			}
		}
	}
	return abi.SUCCESS
}

// A register is read by a message of three parts in network byte order, each of which begins with its type and its length in words
// of four bytes: the operation, the register's content, and the end. These are the numbers in it.
const (
	operationPart, operationWords = 1, 4
	registerPart                  = 3
	registerClass                 = 1
	queryMethod                   = 1
	countersRegister              = 0x5008 // PPCNT
	countersBytes                 = 256    // of its content

	statusUnknownPart     = 3
	statusUnknownRegister = 4
	statusUnknownClass    = 5
	statusUnknownMethod   = 6
	statusBadParameter    = 7
)

// DeviceReadWritePRM_v1 answers a message that reads a register of an NVLink: PPCNT, with the groups of the physical layer and of the
// InfiniBand port. The status says what is wrong with any other message, as the device's firmware does.
func DeviceReadWritePRM_v1(d *engine.Device, m *abi.PRMTLV_v1_t) abi.Return {
	if !hasPorts(d) {
		return abi.ERROR_NOT_SUPPORTED
	}
	const header = operationWords * 4
	if m.DataSize < header || int64(m.DataSize) > int64(len(m.InData)) {
		return abi.ERROR_INVALID_ARGUMENT
	}
	data := m.InData[:m.DataSize]
	m.Status = readRegister(d, data)
	data[2] = data[2]&0x80 | uint8(m.Status)
	data[6] |= 0x80 // it is a response now
	return abi.SUCCESS
}

// readRegister fills in the content of the register that a message reads, and returns the status.
func readRegister(d *engine.Device, data []byte) (status uint32) {
	part := func(at int) (kind, words int) {
		head := binary.BigEndian.Uint16(data[at:])
		return int(head >> 11), int(head & 0x7ff)
	}
	const register = operationWords * 4
	if kind, words := part(0); kind != operationPart || words != operationWords || len(data) < register+4+countersBytes {
		return statusUnknownPart
	}
	if kind, words := part(register); kind != registerPart || words*4 < 4+countersBytes {
		return statusUnknownPart
	}
	switch method := data[6] & 0x7f; {
	case data[7] != registerClass:
		return statusUnknownClass
	case binary.BigEndian.Uint16(data[4:]) != countersRegister:
		return statusUnknownRegister
	case method != queryMethod:
		return statusUnknownMethod
	}
	content := data[register+4 : register+4+countersBytes]
	selector := binary.BigEndian.Uint32(content)
	link, ok := port(d, selector>>16&0xff|selector>>12&3<<8)
	if !ok {
		return statusBadParameter
	}
	counts, ok := portGroups[selector&0x3f]
	if !ok {
		return statusBadParameter
	}
	clear(content[8:])
	for _, c := range counts {
		value := portCounters.Of(c.counter)(d.LinkTraffic()<<10, d.LinkErrors(link))
		binary.BigEndian.PutUint32(content[8+c.at:], uint32(min(value, 1<<32-1)))
	}
	if selector&0x3f == physicalGroup {
		binary.BigEndian.PutUint64(content[8+symbolErrorsAt:], d.LinkErrors(link))
	}
	if clears := content[4]&0x80 != 0; clears {
		d.Change(func(t *change.Tx, i int) abi.Return { return t.ClearLinkErrors(i, link) })
	}
	return 0
}

// physicalGroup is the group of counters of the physical layer, in which symbolErrorsAt is where it counts symbol errors.
const physicalGroup, symbolErrorsAt = 0x12, 8

// portGroups are the groups of PPCNT, with the place of each counter of 32 bits that is known.
var portGroups = map[uint32][]struct {
	at      int
	counter abi.PRMCounterId_t
}{
	physicalGroup: {
		{0xa0, abi.PRM_COUNTER_ID_PPCNT_PHYSICAL_LAYER_CTRS_LINK_DOWN_EVENTS},
		{0xa4, abi.PRM_COUNTER_ID_PPCNT_PHYSICAL_LAYER_CTRS_SUCCESSFUL_RECOVERY_EVENTS},
	},
	0x20: {{0x24, abi.PRM_COUNTER_ID_PPCNT_PORTCOUNTERS_PORT_XMIT_WAIT}},
}
