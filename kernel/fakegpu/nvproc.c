// SPDX-License-Identifier: GPL-2.0-only
/* /proc/driver/nvidia, in the driver's format; see kernel-open/nvidia/nv-procfs.c in NVIDIA's open kernel modules. */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "nvidia.h"

static int show_version(struct seq_file *s, void *v)
{
	seq_printf(s, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (nvmlfab)  Thu Jan  1 00:00:00 UTC 1970\n",
		   nv_driver_version);
	seq_printf(s, "GCC version:  gcc version %d.%d.%d\n", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
	return 0;
}

/* The driver's parameters that programs read: those for making device nodes. */
static int show_params(struct seq_file *s, void *v)
{
	seq_puts(s, "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n");
	return 0;
}

static int show_information(struct seq_file *s, void *v)
{
	const struct gpu *gpu = &((struct nv_gpu *)s->private)->is;
	u64 mask = gpu->dma_bits == 64 ? U64_MAX : (1ull << gpu->dma_bits) - 1;

	seq_printf(s, "Model: \t\t %s\n", gpu->name);
	seq_puts(s, "IRQ:   \t\t 0\n");	/* there is no interrupt */
	seq_printf(s, "GPU UUID: \t %s\n", gpu->uuid_text);
	seq_printf(s, "Video BIOS: \t %s\n", gpu->vbios);
	seq_puts(s, "Bus Type: \t PCIe\n");
	seq_printf(s, "DMA Size: \t %u bits\n", gpu->dma_bits);
	seq_printf(s, "DMA Mask: \t 0x%llx\n", mask);
	seq_printf(s, "Bus Location: \t %04x:%02x:%02x.%x\n", gpu->domain, gpu->bus, gpu->slot, gpu->function);
	seq_printf(s, "Device Minor: \t %u\n", gpu->minor);
	seq_printf(s, "GPU Firmware: \t %s\n", gpu->firmware);
	seq_puts(s, "GPU Excluded:\t No\n");
	return 0;
}

static struct proc_dir_entry *root;

int nv_proc_init(void)
{
	struct proc_dir_entry *gpus, *dir;
	char address[sizeof("ffffffff:ff:1f.7")];
	u32 i;

	root = proc_mkdir("driver/nvidia", NULL);
	if (!root)
		return -ENOMEM;
	gpus = proc_mkdir("gpus", root);
	if (!gpus || !proc_create_single("version", 0444, root, show_version) || !proc_create_single("params", 0444, root, show_params))
		goto fail;
	for (i = 0; i < nv_gpu_count; i++) {
		const struct gpu *gpu = &nv_gpus[i].is;

		snprintf(address, sizeof(address), "%04x:%02x:%02x.%x", gpu->domain, gpu->bus, gpu->slot, gpu->function);
		dir = proc_mkdir(address, gpus);
		if (!dir || !proc_create_single_data("information", 0444, dir, show_information, &nv_gpus[i]))
			goto fail;
	}
	return 0;
fail:
	nv_proc_exit();
	return -ENOMEM;
}

void nv_proc_exit(void)
{
	proc_remove(root);
}
