package rm

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLayout compares sizes and numbers with kernel/uapi/nvrm.h, by a C program that does not compile if one differs.
func TestLayout(t *testing.T) {
	source := "#include <stddef.h>\n#include \"nvrm.h\"\n"
	equal := func(expression string, value int) {
		source += fmt.Sprintf("_Static_assert((%s) == %d, \"%s\");\n", expression, value, expression)
	}
	for name, v := range map[string]any{
		"nvos00": free{}, "nvos54": control{}, "nvos64": alloc{}, "nv_card_info": card{}, "nv_id_info_v2": idInfo{},
		"nv0080_alloc": deviceParams{}, "nv2080_alloc": uint32(0), "nv_memory_allocation": memoryParams{}, "nv_channel_group": groupParams{},
		"nv_register_fd": int32(0),
	} {
		equal("sizeof(struct "+name+")", binary.Size(v))
	}
	for name, value := range map[string]int{
		"NV_ESC_RM_FREE": escFree, "NV_ESC_RM_CONTROL": escControl, "NV_ESC_RM_ALLOC": escAlloc, "NV_ESC_CARD_INFO": escCardInfo,
		"NV_ESC_REGISTER_FD": escRegisterFD, "NV01_MEMORY_LOCAL_USER": classMemory, "NV01_ROOT_CLIENT": classClient,
		"NV01_DEVICE_0": classDevice, "NV20_SUBDEVICE_0": classSubdevice, "KEPLER_CHANNEL_GROUP_A": classGroup,
		"NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2": getIDInfo, "NVA06C_CTRL_CMD_SET_TIMESLICE": setTimeslice,
		"NVA06C_CTRL_CMD_GET_TIMESLICE": getTimeslice, "NV_ERR_NO_MEMORY": int(NoMemory), "NV_ERR_NOT_SUPPORTED": int(NotSupported),
		"NV_GPU_IDS":                            32,
		"offsetof(struct nv_card_info, gpu_id)": 16, "offsetof(struct nv_card_info, minor_number)": 56,
		"offsetof(struct nv_memory_allocation, size)": 64, "offsetof(struct nv_channel_group, engineType)": 12,
		"offsetof(struct nv_id_info_v2, deviceInstance)": 8, "offsetof(struct nvos64, status)": 40, "offsetof(struct nvos54, status)": 28,
	} {
		equal(name, value)
	}
	path := filepath.Join(t.TempDir(), "layout.c")
	require.NoError(t, os.WriteFile(path, []byte(source), 0o644))
	out, err := exec.Command("gcc", "-std=c11", "-fsyntax-only", "-I", "../uapi", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
