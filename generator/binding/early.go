package binding

// early lists functions that drivers have although the header of their version does not declare them, with the NVML
// version of the first such driver, or of the last version before it. Drivers of long-lived branches got these
// functions in later updates; the libraries in Debian export them.
var early = map[string]string{
	"nvmlDeviceGetMPSComputeRunningProcesses": "11.0", // 390 and 418 too

	"nvmlComputeInstanceGetInfo_v2":            "11.0", // 450.248.02
	"nvmlDeviceGetAttributes_v2":               "11.0",
	"nvmlDeviceGetComputeRunningProcesses_v2":  "11.0",
	"nvmlDeviceGetGraphicsRunningProcesses_v2": "11.0",
	"nvmlDeviceGetRowRemapperHistogram":        "11.0",
	"nvmlVgpuTypeGetGpuInstanceProfileId":      "11.0",

	"nvmlDeviceCreateGpuInstanceWithPlacement":      "11.1", // 460.106.00
	"nvmlDeviceSetTemperatureThreshold":             "11.1",
	"nvmlVgpuInstanceGetGpuInstanceId":              "11.1",
	"nvmlDeviceGetClkMonStatus":                     "11.1", // 470.256.02
	"nvmlDeviceGetGpuInstancePossiblePlacements_v2": "11.1",
	"nvmlDeviceGetGridLicensableFeatures_v4":        "11.1",
	"nvmlDeviceGetMPSComputeRunningProcesses_v2":    "11.1",
	"nvmlDeviceGetNvLinkRemoteDeviceType":           "11.1",
	"nvmlDeviceResetMemoryLockedClocks":             "11.1",
	"nvmlDeviceSetMemoryLockedClocks":               "11.1",
	"nvmlGetExcludedDeviceCount":                    "11.1",
	"nvmlGetExcludedDeviceInfoByIndex":              "11.1",

	"nvmlDeviceGetLastBBXFlushTime":   "12.2.140", // 535.261.03
	"nvmlDeviceGetSramEccErrorStatus": "12.2.140",
}
