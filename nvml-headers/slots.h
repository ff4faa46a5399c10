/* Entries of the table of unnamed functions that nvidia-smi asks nvmlInternalGetExportTable
 * for. nvmlInternalSlotN is entry N, and every entry that is not declared here answers
 * NOT_SUPPORTED. The generator reads this file once, after the newest nvml.h; the C compiler
 * reads it after each.
 *
 * Arguments and meaning were seen from what nvidia-smi prints after each answer: that of 470,
 * 535 and 550 where a comment names no version. These were seen in use and are left out: 26,
 * called for each line that is printed; 81, a handle by index, for which the public function
 * steps in; 209, a voltage in µV, and 232, a deferred memory clock, which read N/A on every
 * captured board; 156 of 450 and 197 of 460, which became other functions later and are 208
 * there. */
#ifndef NVMLFAB_SLOTS_H
#define NVMLFAB_SLOTS_H

#pragma GCC visibility push(hidden)

/* what a bus id consists of: [domain:]bus:device.function */
nvmlReturn_t nvmlInternalSlot12(const char *busId, unsigned int *domain, unsigned int *bus, unsigned int *device,
                                unsigned int *function);
/* the address of the GPU of that index; compared with 12, whose function must be 0 */
nvmlReturn_t nvmlInternalSlot75(unsigned int index, unsigned int *domain, unsigned int *bus, unsigned int *device);
/* the level of the path between two bus ids: 0 PIX, 1 PXB, 2 PHB, 3 NODE, 4 SYS. From 5 on
 * NV1 and so forth is printed, but nvidia-smi counts the links itself. */
nvmlReturn_t nvmlInternalSlot23(const char *busId1, const char *busId2, unsigned int *level);

/* 390, 418: architecture. topo -m does not work without it, and 418 prints the ECC counters that
 * it has. */
nvmlReturn_t nvmlInternalSlot65(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture);
/* whether dmon and pmon may watch the GPU; 390 asks both */
nvmlReturn_t nvmlInternalSlot72(nvmlDevice_t device, unsigned int *supported);
nvmlReturn_t nvmlInternalSlot139(nvmlDevice_t device, unsigned int *supported);

/* the power limit in force, in mW: enforced.power.limit of --query-gpu */
nvmlReturn_t nvmlInternalSlot108(nvmlDevice_t device, unsigned int *limit);
/* dmon -s v: tviol. After a success 470 and 535 compare temperature and threshold, 550 prints 0
 * whatever is written; after an error all print a dash. */
nvmlReturn_t nvmlInternalSlot138(nvmlDevice_t device, unsigned int *violation);

typedef struct {
    unsigned int value;
} nvmlInternalCount_t;

/* Samples as pmon takes them: 8 bytes of time, then for SMs, memory, encoders and decoders, on
 * 550 for JPEG and OFA too, 80 bytes each with a load in percent (4 bytes) and, 8 bytes on, the
 * pid that it belongs to. A sample is thus 328 bytes long, on 550 488, and nothing in the call
 * tells the two apart. pmon has room for 100, adds a pid's loads up and divides by the number
 * of samples. 418 crashes after an error. The struct is what 20 samples of 550 take up, which
 * is less than the room that 470 has. */
typedef struct {
    unsigned char bytes[9760];
} nvmlInternalSamples_t;

nvmlReturn_t nvmlInternalSlot145(nvmlDevice_t device, unsigned long long lastSeen, unsigned int *type,
                                 nvmlInternalCount_t *count, nvmlInternalSamples_t *samples);

/* 390: the number of processes in a list beside those of nvml.h, whose entries are unknown */
nvmlReturn_t nvmlInternalSlot157(nvmlDevice_t device, unsigned int *count);

/* nvmlDeviceGetFieldValues for fields of its own: 1 relaxed ordering, which reads N/A on every
 * captured board; 2 the number of a link's lanes, the link being the scope. 418 and 450: 1 the
 * number of links to NVSwitches, 2 relaxed ordering. */
nvmlReturn_t nvmlInternalSlot165(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values);

/* 470: module id */
nvmlReturn_t nvmlInternalSlot207(nvmlDevice_t device, unsigned int *moduleId);
/* nvlink -ec, 470 also -e: corrected errors of each of a link's lanes, bit 31 for an overflow;
 * counter and lanes were always 4 */
nvmlReturn_t nvmlInternalSlot208(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter, unsigned int lanes,
                                 unsigned long long *counts);
/* 470: version of the GSP firmware; no length is passed */
nvmlReturn_t nvmlInternalSlot211(nvmlDevice_t device, char *version);

/* a process as the entries 213 to 215 list it */
typedef struct {
    unsigned int pid;
    unsigned int reserved0;
    unsigned long long usedGpuMemory; /* bytes */
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
    unsigned long long reserved1;
    char name[4096];
} nvmlInternalProcess_t;

/* compute, MPS compute and graphics processes, in this order */
nvmlReturn_t nvmlInternalSlot213(nvmlDevice_t device, unsigned int *count, nvmlInternalProcess_t *processes);
nvmlReturn_t nvmlInternalSlot214(nvmlDevice_t device, unsigned int *count, nvmlInternalProcess_t *processes);
nvmlReturn_t nvmlInternalSlot215(nvmlDevice_t device, unsigned int *count, nvmlInternalProcess_t *processes);

/* PCIe atomics, as the bits FETCHADD_32, FETCHADD_64, SWAP_32, SWAP_64, CAS_32, CAS_64 and
 * CAS_128; 0 prints N/A */
typedef struct {
    unsigned int outbound;
    unsigned int inbound;
} nvmlInternalAtomicCaps_t;

nvmlReturn_t nvmlInternalSlot226(nvmlDevice_t device, nvmlInternalAtomicCaps_t *caps);
/* the highest PCIe generation of the host */
nvmlReturn_t nvmlInternalSlot230(nvmlDevice_t device, unsigned int *generation);
/* GPU part number and FRU part number */
nvmlReturn_t nvmlInternalSlot231(nvmlDevice_t device, char *partNumber, unsigned int length);
nvmlReturn_t nvmlInternalSlot237(nvmlDevice_t device, char *partNumber, unsigned int length);
/* T.Limit, in °C; while it answers, T.Limit thresholds are printed instead of absolute ones */
nvmlReturn_t nvmlInternalSlot240(nvmlDevice_t device, int *limit);
/* addressing mode: 0 None, 1 HMM, 2 ATS */
nvmlReturn_t nvmlInternalSlot242(nvmlDevice_t device, unsigned int *mode);
/* sparse operation mode, 535 and 550 */
nvmlReturn_t nvmlInternalSlot243(nvmlDevice_t device, unsigned int *mode);
nvmlReturn_t nvmlInternalSlot249(nvmlDevice_t device, unsigned int *mode);

#pragma GCC visibility pop

#endif
