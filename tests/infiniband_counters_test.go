package tests

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counters are those that perfquery prints.
func counters(t *testing.T, text string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+):\.+(\d+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		require.NoError(t, err)
		all[m[1]] = n
	}
	require.NotEmpty(t, all, text)
	return all
}

// TestInfiniBandTraffic: an adapter sends and receives while the GPU beside it is busy: in sysfs, and in datagrams with counters of 64
// and of 32 bits, also at the other end of the cable. An adapter beside an idle GPU does not.
func TestInfiniBandTraffic(t *testing.T) {
	sections(t, `c=$C/mlx5_3/ports/1
lid=$(leaflid su01-rail1) port=$(leafport su01-rail1 'dgx01 mlx5_3')
at first; perfquery -x -C mlx5_3
at leaf; perfquery -x -C mlx5_3 $lid $port
f=$c/counters/port_xmit_data; a=$(cat $f); until [ $(cat $f) != $a ]; do sleep 0.05; done
a=$(cat $f); until [ $(cat $f) != $a ]; do sleep 0.05; done # written after both
at files; for i in port_xmit_data port_rcv_data port_xmit_packets unicast_rcv_packets; do cat $c/counters/$i; done; cat $c/hw_counters/rx_write_requests
at second; perfquery -x -C mlx5_3
at idle; perfquery -x -C mlx5_0; cat $C/mlx5_0/ports/1/counters/port_xmit_data
at cleared; perfquery -R -C mlx5_3 > /dev/null; perfquery -C mlx5_3
at narrow; until perfquery -C mlx5_3 | grep -q 'PortXmitPkts:.*[1-9]'; do sleep 0.05; done; perfquery -C mlx5_3
n set --gpu 2 utilization.gpu=100
f=$C/mlx5_4/ports/1/counters/port_rcv_data; until [ $(cat $f) != 0 ]; do sleep 0.05; done
n set --gpu 2 utilization.gpu=0
a=-1; until [ $(cat $f) = $a ]; do a=$(cat $f); sleep 0.6; done
at still; perfquery -x -C mlx5_4; at file; cat $f`,
		func(t *testing.T, of map[string]string) {
			first, second, leaf := counters(t, of["first"]), counters(t, of["second"]), counters(t, of["leaf"])
			for i, name := range []string{"PortXmitData", "PortRcvData", "PortXmitPkts", "PortUnicastRcvPkts"} {
				assert.Less(t, first[name], second[name], name)
				file, err := strconv.ParseUint(strings.Fields(of["files"])[i], 10, 64)
				require.NoError(t, err)
				assert.LessOrEqual(t, first[name], file, name)
				assert.LessOrEqual(t, file, second[name], name)
			}
			assert.LessOrEqual(t, first["PortXmitData"], leaf["PortRcvData"])
			assert.LessOrEqual(t, leaf["PortRcvData"], second["PortXmitData"])
			assert.NotEqual(t, "0", strings.Fields(of["files"])[4], "writes were received")
			idle := counters(t, of["idle"])
			assert.Zero(t, idle["PortXmitData"]+idle["PortRcvData"]+idle["PortXmitPkts"])
			assert.Contains(t, of["idle"], "\n0\n")
			assert.Less(t, counters(t, of["cleared"])["PortXmitPkts"], second["PortXmitPkts"])
			narrow := counters(t, of["narrow"])
			assert.NotZero(t, narrow["PortXmitData"])
			assert.LessOrEqual(t, narrow["PortXmitData"], uint64(0xffffffff))
			assert.Equal(t, strings.TrimSpace(of["file"]), strconv.FormatUint(counters(t, of["still"])["PortRcvData"], 10))
		}, "devices: [{index: 1, dynamic_metrics: {utilization: {pattern: busy}}}]")
}
