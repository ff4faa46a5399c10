/* These are entries of the table of unnamed functions that nvidia-smi gets from nvmlInternalGetExportTable.
 * nvmlInternalSlotN is entry N. Entries that are not declared here answer NOT_SUPPORTED. The generator reads this
 * file once, after the newest nvml.h; the C compiler reads it after each.
 *
 * Arguments and meaning were found by observing what nvidia-smi prints after each answer. A comment that names no
 * version is about 470, 535 and 550. Entries that nvidia-smi calls and that are not declared: 26, called for each
 * line that is printed; 209, a voltage in µV, and 232, a deferred memory clock, which are N/A on every captured board; 156 of 450 and 197 of 460, which have
 * other meanings later, where 208 replaces them. */
#ifndef NVMLFAB_SLOTS_H
#define NVMLFAB_SLOTS_H

#pragma GCC visibility push(hidden)

/* the parts of a bus id: [domain:]bus:device.function */
nvmlReturn_t nvmlInternalSlot12(const char *busId, unsigned int *domain, unsigned int *bus, unsigned int *device,
                                unsigned int *function);
/* the address of the GPU of that index; compared with 12, whose function must be 0 */
nvmlReturn_t nvmlInternalSlot75(unsigned int index, unsigned int *domain, unsigned int *bus, unsigned int *device);
/* the handle of the GPU of that index, before nvidia-smi asks the public function for it. The third argument is 0x22 in
 * all versions. */
nvmlReturn_t nvmlInternalSlot81(unsigned int index, nvmlDevice_t *device, unsigned int unknown);
/* the level of the path between two bus ids: 0 PIX, 1 PXB, 2 PHB, 3 NODE, 4 SYS. Numbers from 5 on are printed as
 * NV1 and so on, but nvidia-smi counts the links itself. */
nvmlReturn_t nvmlInternalSlot23(const char *busId1, const char *busId2, unsigned int *level);

/* --gpu-reset: whether the GPU drives the console */
nvmlReturn_t nvmlInternalSlot20(nvmlDevice_t device, unsigned int *primary);
/* --gpu-reset: the number of a new group of GPUs. An array of devices and their number follow. 470, 535 and 550 take
 * the group along to entry 183 and give it back to entry 184. */
nvmlReturn_t nvmlInternalSlot182(unsigned long long *group);
/* --gpu-reset: other GPUs that have to be reset with those of a group; the list has room for 48 bus ids or handles, and
 * what it holds was never seen. A count other than 0 refuses the reset. */
nvmlReturn_t nvmlInternalSlot183(unsigned long long group, unsigned long long list, unsigned int *count);
/* --gpu-reset: the end of a group */
nvmlReturn_t nvmlInternalSlot184(unsigned long long group);
/* --gpu-reset: how the fabric lets GPUs be reset. After 1 nvidia-smi calls entry 13 for each GPU, after 0 and 2 entry
 * 168 with the number of GPUs and their handles. After an error it prints that the state is not known, and calls 13. */
nvmlReturn_t nvmlInternalSlot169(unsigned int *state);
/* --gpu-reset: resets the GPU */
nvmlReturn_t nvmlInternalSlot13(nvmlDevice_t device);

/* 390, 418: architecture. topo -m needs it, and 418 uses it to choose the ECC counters that it prints. 470 asks for it
 * before it resets a GPU. */
nvmlReturn_t nvmlInternalSlot65(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture);
/* whether dmon and pmon may monitor the GPU; 390 asks both entries */
nvmlReturn_t nvmlInternalSlot72(nvmlDevice_t device, unsigned int *supported);
nvmlReturn_t nvmlInternalSlot139(nvmlDevice_t device, unsigned int *supported);

/* the power limit in force, in mW: enforced.power.limit of --query-gpu */
nvmlReturn_t nvmlInternalSlot108(nvmlDevice_t device, unsigned int *limit);
/* dmon -s v: tviol. After a success 470 and 535 compare temperature and threshold, and 550 prints 0 whatever the
 * value is. After an error all of them print a dash. */
nvmlReturn_t nvmlInternalSlot138(nvmlDevice_t device, unsigned int *violation);

typedef struct {
    unsigned int value;
} nvmlInternalCount_t;

/* Samples for pmon. A sample has 8 bytes of time and then 80 bytes for each of SMs, memory, encoders and decoders,
 * and on 550 also for JPEG and OFA. These 80 bytes start with a load in percent (4 bytes); the pid that it belongs
 * to is at offset 8. So a sample has 328 bytes, and on 550 488 bytes, and the call does not tell which. pmon has
 * room for 100 samples. It adds the loads of a pid and divides the sum by the number of samples. 418 crashes after
 * an error. The struct has the size of 20 samples of 550, which is less than the room in 470. */
typedef struct {
    unsigned char bytes[9760];
} nvmlInternalSamples_t;

nvmlReturn_t nvmlInternalSlot145(nvmlDevice_t device, unsigned long long lastSeen, unsigned int *type,
                                 nvmlInternalCount_t *count, nvmlInternalSamples_t *samples);

/* 390: the number of processes in a list that nvml.h does not have; its entries are unknown */
nvmlReturn_t nvmlInternalSlot157(nvmlDevice_t device, unsigned int *count);

/* nvmlDeviceGetFieldValues for fields of its own: 1 is relaxed ordering, which is N/A on every captured board; 2 is
 * the number of lanes of the link that the scope names. On 418 and 450, 1 is the number of links to NVSwitches and 2
 * is relaxed ordering. */
nvmlReturn_t nvmlInternalSlot165(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values);

/* the state of a guest's licence, one of NVML_GRID_LICENSE_STATE. After an error -q prints nothing about licences. */
nvmlReturn_t nvmlInternalSlot189(nvmlDevice_t device, unsigned int *state);

/* 470: module id */
nvmlReturn_t nvmlInternalSlot207(nvmlDevice_t device, unsigned int *moduleId);
/* -q: voltage of the graphics units, in microvolts; absent from 570 on */
nvmlReturn_t nvmlInternalSlot209(nvmlDevice_t device, unsigned int *voltage);
/* nvlink -ec, 470 also -e: corrected errors of each lane of a link, with bit 31 for an overflow; counter and lanes
 * were always 4 */
nvmlReturn_t nvmlInternalSlot208(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter, unsigned int lanes,
                                 unsigned long long *counts);
/* 470: version of the GSP firmware; no length is passed */
nvmlReturn_t nvmlInternalSlot211(nvmlDevice_t device, char *version);

/* a process in the lists of entries 213 to 215 */
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
/* 555: sets the persistence mode, in place of the public function; what it writes is whether a daemon keeps the driver
 * loaded, 0 for the driver itself, which nvidia-smi calls the legacy mode */
nvmlReturn_t nvmlInternalSlot251(nvmlDevice_t device, nvmlEnableState_t mode, unsigned int *daemon);

#pragma GCC visibility pop

#endif
