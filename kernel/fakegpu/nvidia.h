/* SPDX-License-Identifier: GPL-2.0-only */
/* The NVIDIA personality: declarations that its files share. nvidia.c and uvm.c implement the devices, nvproc.c the
 * files in /proc, and rm*.c the resource manager. */
#ifndef FAKEGPU_NVIDIA_H
#define FAKEGPU_NVIDIA_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>

#include "../logic/gpus.h"
#include "../logic/objects.h"
#include "../uapi/nvrm.h"

struct nv_gpu {
	struct gpu is;
	u32 instance;		/* its index among the GPUs: the device instance of NV01_DEVICE_0 */
	u64 used;		/* bytes of its memory; nv_rm_lock */
	u32 devices;		/* objects of class NV01_DEVICE_0; nv_rm_lock */
};

struct class;

/* The GPUs of the machine. They do not change while the module is loaded. */
extern struct nv_gpu *nv_gpus;
extern u32 nv_gpu_count;
extern char *nv_driver_version;

struct nv_gpu *nv_gpu_by_id(u32 id);

/* An open descriptor of a device. */
struct nv_file {
	struct nv_gpu *gpu;		/* NULL: nvidiactl */
	struct file *ctl;		/* the nvidiactl that REGISTER_FD named; set once, under nv_rm_lock */
	bool attached;			/* ATTACH_GPUS_TO_FD has been called; nv_rm_lock */
	struct list_head clients;	/* nv_rm_lock */
	struct list_head events;	/* nv_rm_lock */
};

/* An object of the resource manager. nv_rm_lock guards all members that follow. */
struct nv_object {
	struct rm_object rm;
	struct nv_gpu *gpu;		/* of a device, and of what is below it */
	struct nv_file *file;		/* of a client: its file, and the place in the list of that file */
	struct list_head in_file;
	pid_t tgid;			/* of a client: who made it */
	struct nv_memory *memory;	/* of physical memory */
	u64 start, bytes;		/* of a range of addresses; for a device, start is where the next range may begin */
	struct list_head ranges;	/* nv_mapping: of memory, where it is mapped */
	struct list_head mapped;	/* list of nv_mapping: what is mapped into a range */
	u64 timeslice_us;		/* of a channel group */
};

extern struct mutex nv_rm_lock;

/* Finds an object of a client of this file; error is the status for an unknown client. Both need
 * nv_rm_lock. */
u32 nv_client(struct nv_file *f, u32 client, u32 error);
struct nv_object *nv_object(u32 client, u32 handle);

/* ---- rmclass.c: what kinds of objects there are; all of it needs nv_rm_lock. ---- */

union nv_params {
	struct nv0080_alloc device;
	struct nv2080_alloc subdevice;
	struct nv_memory_allocation memory;
	struct nv_memory_virtual_allocation range;
	struct nv_vaspace vaspace;
	struct nv_channel_group group;
	struct nv_event event;
};

struct nv_class {
	u32 class, bytes;	/* of the parameters */
	bool optional;		/* the parameters */
	u8 under;		/* what the object may be below */
	bool shared;		/* may be duplicated */
	/* Fills in the object from the parameters, and the parameters as the driver does. */
	u32 (*make)(struct nv_object *o, struct nv_object *parent, union nv_params *p);
};

const struct nv_class *nv_class_find(u32 class);
const struct nv_class *nv_host_class(u32 class);	/* of those that NV_ESC_RM_ALLOC_MEMORY makes, without parameters */
bool nv_class_may_be_under(const struct nv_class *class, const struct nv_object *parent);
/* Writes up to max classes, and returns how many there are. */
u32 nv_rm_classes(u32 *list, u32 max);
/* Adds or removes a holder. NULL stands for no memory. */
struct nv_memory *nv_memory_share(struct nv_memory *m);
void nv_memory_put(struct nv_memory *m);
/* The bytes of an object's memory, 0 if it has none. */
u64 nv_rm_memory_bytes(const struct nv_object *o);

/* ---- rm.c, rmcontrol.c, rmmap.c: calls ---- */

/* Handles a call of the resource manager, whose structure was copied to arg. -EINVAL if the driver
 * has no status for the error. */
int nv_rm_call(struct nv_file *f, u32 escape, void *arg, u32 size);
void nv_rm_close(struct nv_file *f);
bool nv_rm_exit(void);	/* called when no file is open any more; returns whether it reported a leak */
/* RM_CONTROL; returns the status. */
u32 nv_rm_control(struct nv_file *f, const struct nvos54 *call);
/* MAP_MEMORY_DMA and UNMAP_MEMORY_DMA, in each length that a release uses. */
int nv_rm_map_dma(struct nv_file *f, void *arg, u32 size);
int nv_rm_unmap_dma(struct nv_file *f, void *arg, u32 size);
/* Forgets every mapping of the object; nv_rm_lock. */
void nv_rm_unmap_all(struct nv_object *o);

/* /dev/nvidia-uvm, a device of the class. */
int nv_uvm_init(struct class *class);
void nv_uvm_exit(struct class *class);
int nv_proc_init(void);
void nv_proc_exit(void);

#endif
