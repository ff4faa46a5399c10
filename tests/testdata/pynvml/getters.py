"""Calls every getter of pynvml and prints a line for each call: the name, the arguments that say what is asked, and the answer.

The first GPU is asked; where a getter takes two, also the last. What changes from one second to the next is called changing. What is
near which CPU depends on the machine, and is asked if an argument is affinity.
A getter with a parameter that is not named here is an error, so that none is left out.
"""
import ctypes, inspect, itertools, re, sys, time
import pynvml
from pynvml import *
from pynvml import NVMLLibraryMismatchError

nvmlInit()
count = nvmlDeviceGetCount()
first, last = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(count - 1)


def ask(function, *arguments):
    try:
        return function(*arguments)
    except NVMLError:
        return None


def several(function, *arguments):
    return list(ask(function, *arguments) or [])


def structure(name, version=None):
    s = getattr(pynvml, name)()
    if version:
        s.version = version
    return s


class Out:
    """An argument through which the getter answers: a function that makes one."""

    def __init__(self, make):
        self.make = make


def number(kind=ctypes.c_uint):
    return Out(lambda: kind())


def made(name, version=None):
    return Out(lambda: structure(name, version))


clocks = several(nvmlDeviceGetSupportedMemoryClocks, first)
vgpus, types = several(nvmlDeviceGetActiveVgpus, first), several(nvmlDeviceGetSupportedVgpus, first)
unit = ask(nvmlUnitGetHandleByIndex, 0)
mig = next(filter(None, (ask(nvmlDeviceGetMigDeviceHandleByIndex, first, i) for i in range(7))), None)
instances = [i for i in (ask(nvmlDeviceGetGpuInstanceById, first, n) for n in range(15)) if i]
computes = [i for g in instances for i in (ask(nvmlGpuInstanceGetComputeInstanceById, g, n) for n in range(8)) if i]

# What a parameter may be: by its name, and for some getters by the getter's name and its.
values = {
    "handle": [first], "device": [first], "handle1": [first], "device1": [first], "handle2": [last], "device2": [last],
    "unit": [unit] if unit else [], "migDevice": [mig] if mig else [], "vgpuInstance": vgpus[:1], "vgpuTypeId": types[:1],
    "gpuInstance": instances[:1], "computeInstance": computes[:1], "gpuInstanceId": [0, 1, 2], "computeInstanceId": [0, 1],
    "index": [0, 99], "serial": [ask(nvmlDeviceGetSerial, first) or "0"], "uuid": [nvmlDeviceGetUUID(first)],
    "pciBusId": [nvmlDeviceGetPciInfo(first).busId], "pciInfo": [nvmlDeviceGetPciInfo(first)],
    "type": range(4), "id": range(4), "link": [0, 1], "counter": range(2), "fan": [0, 9], "sensor": [0], "sensorindex": [15],
    "threshold": range(8), "infoRomObject": range(3), "errorType": range(2), "counterType": range(2), "locationType": range(8),
    "sourceFilter": range(2), "apiType": range(2), "sampling_type": [0, 1, 2, 5], "perfPolicyType": range(6), "timeStamp": [0],
    "capability": range(6), "level": [0, 10, 20, 30, 40, 50], "p2pIndex": range(5), "encoderQueryType": range(2), "pstate": [0, 8],
    "memoryClockMHz": clocks[:1] or [1], "pid": [4001], "mode": range(2), "version": [None], "profileId": [0, 2, 9], "profile": [0, 1, 14],
    "engProfile": [0], "scope": range(2), "cpuSetSize": [2], "nodeSetSize": [1], "cpuNumber": [0],
    "fieldIds": [[1, 4, 16, 26, 33, 44, 50, 60, 91, 94, 142, 167, 185, 192, 999]],
    "c_info": [made("nvmlPciInfoExt_v1_t", pynvml.nvmlPciInfoExt_v1)], "moduleId": [number()],
    "minSpeed": [number()], "maxSpeed": [number()], "fanControlPolicy": [number()], "minOffset": [number(ctypes.c_int)],
    "maxOffset": [number(ctypes.c_int)], "minClockMHz": [number()], "maxClockMHz": [number()], "isEnabled": [number()],
    "defaultMode": [number()], "c_clkMonInfo": [made("nvmlClkMonStatus_t")], "c_dynamicpstatesinfo": [made("c_nvmlGpuDynamicPstatesInfo_t")],
    "c_thermalsettings": [made("c_nvmlGpuThermalSettings_t")], "countRef": [Out(lambda: ctypes.c_uint(16))],
    "c_nonce": [[0] * 32], "settings": [made("c_nvmlSystemConfComputeSettings_v1_t")],
    "supported": [Out(lambda: (ctypes.c_uint * 2)())], "current": [Out(lambda: (ctypes.c_uint * 2)())],
    "nvmlDeviceGetGspFirmwareVersion version": [Out(lambda: ctypes.create_string_buffer(64))],
    "nvmlDeviceGetNvLinkErrorCounter counter": range(4), "nvmlDeviceGetNvLinkUtilizationCounter counter": range(2),
    "nvmlDeviceGetMemoryInfo version": [None, pynvml.nvmlMemory_v2], "nvmlUnitGetTemperature type": range(3),
    "nvmlDeviceGetGpuInstanceProfileInfo version": [2], "nvmlDeviceGetGpuInstanceProfileInfoV version": [2],
    "nvmlGpuInstanceGetComputeInstanceProfileInfo version": [2], "nvmlGpuInstanceGetComputeInstanceProfileInfoV version": [2],
    "nvmlGpuInstanceGetComputeInstanceProfileInfo device": instances[:1],
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV device": instances[:1],
    "nvmlDeviceGetRunningProcessDetailList version": [pynvml.nvmlProcessDetailList_v1],
    "nvmlDeviceGetGpuFabricInfo gpuFabricInfo": [made("c_nvmlGpuFabricInfo_t")],
    "nvmlDeviceGetGpuFabricInfoV gpuFabricInfo": [made("c_nvmlGpuFabricInfoV_t")],
    "status": [made("c_nvmlEccSramErrorStatus_v1_t", pynvml.nvmlEccSramErrorStatus_v1)],
    "placementsRef": [Out(lambda: (pynvml.c_nvmlGpuInstancePlacement_t * 16)())],
    "nvmlGpuInstanceGetComputeInstancePossiblePlacements placementsRef": [Out(lambda: (pynvml.c_nvmlComputeInstancePlacement_t * 16)())],
    "gpuInstancesRef": [Out(lambda: (pynvml.c_nvmlGpuInstance_t * 16)())],
    "computeInstancesRef": [Out(lambda: (pynvml.c_nvmlComputeInstance_t * 16)())],
    "vgpuMetadata": [Out(lambda: nvmlVgpuInstanceGetMetadata(vgpus[0]))] if vgpus else [],
    "pgpuMetadata": [Out(lambda: nvmlDeviceGetVgpuMetadata(first))] if vgpus else [],
}
handles = (pynvml.c_nvmlDevice_t, pynvml.c_nvmlUnit_t, pynvml.c_nvmlGpuInstance_t, pynvml.c_nvmlComputeInstance_t)
times = ("timestamp", "timeStamp", "referenceTime", "lastSeenTimeStamp")


def text(answer):
    if isinstance(answer, pynvml.c_nvmlDevice_t):
        return ("MIG device " if nvmlDeviceIsMigDeviceHandle(answer) else "GPU ") + str(nvmlDeviceGetIndex(answer)) if answer else "none"
    if isinstance(answer, handles):
        return "found" if answer else "none"
    if isinstance(answer, pynvml.c_nvmlFieldValue_t):
        kinds = [("double", "dVal"), ("unsigned int", "uiVal"), ("unsigned long", "ulVal"), ("unsigned long long", "ullVal"), ("long long", "sllVal"), ("int", "siVal")]
        kind, value = kinds[answer.valueType]
        return f"{answer.fieldId}: " + (f"{kind} {getattr(answer.value, value, 'unknown')}" if answer.nvmlReturn == 0 else f"error {answer.nvmlReturn}")
    if isinstance(answer, bytes):
        return repr(answer.decode(errors="backslashreplace"))
    if isinstance(answer, ctypes._SimpleCData):
        return text(answer.value)
    if isinstance(answer, ctypes.Array):
        items = answer.value if answer._type_ is ctypes.c_char else list(answer)
        while isinstance(items, list) and len(items) > 1 and text(items[-1]) == text(items[-2]):
            items.pop()  # the same to the end of the array
        return text(items)
    if isinstance(answer, ctypes.Union):
        return text(answer.uiVal)
    if isinstance(answer, ctypes.Structure):
        return "{" + ", ".join(f"{f[0]}={member(answer, f[0])}" for f in answer._fields_ if f[0] not in times) + "}"
    if isinstance(answer, (list, tuple)):
        items = list(map(text, answer))
        if len(items) > 20:
            items[3:] = [f"... {len(items) - 3} more"]
        return "[" + ", ".join(items) + "]"
    if type(answer).__module__ == "pynvml":
        return "{" + ", ".join(f"{k}={text(v)}" for k, v in sorted(vars(answer).items()) if k not in times) + "}"
    return repr(answer)


def member(answer, name):
    try:
        return text(getattr(answer, name))
    except UnicodeDecodeError:  # pynvml takes all arrays of characters for texts
        return "no text"


def getters():
    for name, function in sorted(vars(pynvml).items()):
        if re.match(r"nvml(System|Device|Unit|Vgpu(Type|Instance)|GpuInstance|ComputeInstance|Gpm)?(Get|Is|Query|OnSame)", name) and inspect.isfunction(function):
            yield name, function


def calls():
    for name, function in getters():
        if re.search("Affinity|TopologyGpuSet", name) and "affinity" not in sys.argv:
            continue
        names = list(inspect.signature(function).parameters)
        choices = [values.get(f"{name} {p}", values.get(p)) for p in names]
        if None in choices:
            raise SystemExit(f"{name}: nobody says what {names[choices.index(None)]} may be")
        source = inspect.getsource(function)
        references = [isinstance(v, Out) and not re.search(rf"(byref|pointer)\({p}\)", source) for p, v in zip(names, (c[0] if c else None for c in choices))]
        for chosen in itertools.product(*choices):
            arguments = [c.make() if isinstance(c, Out) else c for c in chosen]
            try:
                answer = function(*[ctypes.byref(a) if r else a for r, a in zip(references, arguments)])
                outs = [text(a) for c, a in zip(chosen, arguments) if isinstance(c, Out)]
                if answer or not outs:
                    outs.append(text(answer))
                said = ", ".join(outs)
            except (NVMLError, NVMLLibraryMismatchError, TypeError, AttributeError, ValueError, ctypes.ArgumentError) as error:
                said = type(error).__name__
            asked = ", ".join(f"{p}={c!r}" for p, c in zip(names, chosen) if not isinstance(c, handles + (ctypes.Structure, Out)))
            yield f"{name}({asked})", said


before = list(calls())
time.sleep(1.1)
for (call, said), (_, later) in zip(before, calls()):
    print(call, "=", said if said == later else "changing")
