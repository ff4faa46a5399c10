// SPDX-License-Identifier: GPL-2.0-only
/* The driver reads its arguments from user space, where other threads could change them after the
 * module checked them. While the module enforces, the driver reads a copy instead, on a page that
 * is mapped for this one call at an address that no other thread knows. */
#include <linux/mman.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/uaccess.h>

#include "calls.h"

#define LOWEST (1ul << 20)
#define HIGHEST (1ul << 46)		/* far below the first 57-bit address */
#define TRIES 16
#define PARAMS 1024			/* where on the page the parameters are */

static unsigned long map_page(void)
{
	unsigned long address = 0, span = min(TASK_SIZE, HIGHEST) - LOWEST - PAGE_SIZE;
	int i;

	for (i = 0; i < TRIES; i++) {
		address = vm_mmap(NULL, LOWEST + (get_random_u64() % span & PAGE_MASK), PAGE_SIZE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, 0);
		if (address != -EEXIST)
			break;
	}
	return address;
}

static void point_params(u8 *head, u64 address)
{
	memcpy(head + NVOS_PARAMS_OFFSET, &address, sizeof(address));
}

static int fill_page(struct call *c)
{
	c->callers = c->user;
	c->callers_params = c->rm.params.address;
	c->user = (void __user *)c->page;
	c->arg = c->page;
	if (c->params_bytes) {
		c->rm.params.address = c->page + PARAMS;
		point_params(c->head, c->rm.params.address);
		if (copy_to_user(c->user + PARAMS, c->params, c->params_bytes))
			return -EFAULT;
	}
	return copy_to_user(c->user, c->head, vgpu_head_bytes(c)) ? -EFAULT : 0;
}

int vgpu_private_begin(struct call *c)
{
	int err;

	/* The driver's answer will be copied there. */
	if (!vgpu_writable(c))
		return -EFAULT;
	if (c->rm.kind == RM_ALLOC && c->params_bytes && copy_to_user(u64_to_user_ptr(c->rm.params.address), c->params, sizeof(u32)))
		return -EFAULT;
	c->page = map_page();
	if (IS_ERR_VALUE(c->page)) {
		err = c->page == -EEXIST ? -ENOMEM : (int)c->page;
		c->page = 0;
		return err;
	}
	err = fill_page(c);
	if (err)
		vm_munmap(c->page, PAGE_SIZE);
	return err;
}

static long copy_back(const struct call *c)
{
	u8 head[RM_CALL_BYTES], params[RM_PARAMS_BYTES];

	if (copy_from_user(head, c->user, vgpu_head_bytes(c)) || copy_from_user(params, c->user + PARAMS, c->params_bytes))
		return -EFAULT;
	if (c->params_bytes) {
		point_params(head, c->callers_params);
		if (memcmp(params, c->params, c->params_bytes) &&
		    copy_to_user(u64_to_user_ptr(c->callers_params), params, c->params_bytes))
			return -EFAULT;
	}
	return copy_to_user(c->callers, head, vgpu_head_bytes(c)) ? -EFAULT : 0;
}

long vgpu_private_end(struct call *c, long result)
{
	if (result != -EFAULT)
		result = copy_back(c) ?: result;
	vm_munmap(c->page, PAGE_SIZE);
	return result;
}
