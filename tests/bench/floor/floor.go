// Command floor is the smallest Go c-shared library with some of NVML's functions. It shows the lowest cost of a call
// into Go.
package main

import "C"

import "unsafe"

func main() {}

//export nvmlInit_v2
func nvmlInit_v2() C.int { return 0 }

//export nvmlShutdown
func nvmlShutdown() C.int { return 0 }

//export nvmlDeviceGetCount_v2
func nvmlDeviceGetCount_v2(count *C.uint) C.int {
	*count = 8
	return 0
}

//export nvmlDeviceGetHandleByIndex_v2
func nvmlDeviceGetHandleByIndex_v2(index C.uint, device *unsafe.Pointer) C.int {
	*device = unsafe.Pointer(device)
	return 0
}

//export nvmlDeviceGetTemperature
func nvmlDeviceGetTemperature(device unsafe.Pointer, sensor C.uint, temp *C.uint) C.int {
	*temp = 30
	return 0
}

//export nvmlDeviceGetBridgeChipInfo
func nvmlDeviceGetBridgeChipInfo(device, hierarchy unsafe.Pointer) C.int { return 3 }
