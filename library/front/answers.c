/* The two functions that the front answers without the core: error texts, and the table of unnamed functions that
 * nvidia-smi asks for. */
#include "front.h"

/* The texts are those of driver 550, since programs print and parse them. */
const char *nvmlfab_error_string(nvmlReturn_t code)
{
    static const char *const text[] = {
        [0] = "Success",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires reset",
        [17] = "GPU access blocked by the operating system",
        [18] = "Driver/library version mismatch",
        [19] = "In use by another client",
        [20] = "Insufficient Memory",
        [21] = "No data",
        [22] = "vGPU ECC not supported",
        [23] = "Insufficient Resources",
        [24] = "Invalid Frequency",
        [25] = "Argument version mismatch",
        [26] = "Requested functionality has been deprecated",
        [27] = "System is not in ready state",
        [28] = "No supported GPUs were found",
        [29] = "Resource not in correct state to perform requested operation",
    };
    size_t n = (size_t)code;
    if (n < sizeof text / sizeof text[0] && text[n] != NULL)
        return text[n];
    return "Unknown Error";
}

/* The arguments differ between entries and are not always pointers, so this writes nothing. */
nvmlReturn_t nvmlfab_unknown_slot(void) { return NVML_ERROR_NOT_SUPPORTED; }

nvmlReturn_t nvmlfab_export_table(const void **table, const void *guid)
{
    static const unsigned char smi[16] = {
        0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
    };
    if (table == NULL || guid == NULL || memcmp(guid, smi, sizeof smi) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *table = nvmlfab_slots;
    return NVML_SUCCESS;
}
