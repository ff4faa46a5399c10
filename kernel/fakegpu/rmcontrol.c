// SPDX-License-Identifier: GPL-2.0-only
/* RM_CONTROL: the commands that the personality's objects understand. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvidia.h"

/* The arguments of a control: the object, and its parameters, copied and with the right length. nv_rm_lock is held. */
struct control {
	struct nv_object *object;
	u32 (*run)(struct control *c);
	union {
		u32 ids[3 * NV_GPU_IDS];
		struct { u32 ids[NV_GPU_IDS], failed; } attach;
		struct nv_id_info info;
		struct nv_id_info_v2 info2;
		u64 timeslice_us;
		struct nv_build_version version;
		struct nv_build_version_v2 version2;
		struct nv_build_version_v2_570 version2_570;
		struct nv_boost_groups groups;
		struct { u32 count, class[200]; } classes;
		u8 raw[4];
	} p;
	u32 bytes;		/* of the parameters */
	u32 class;		/* of the object */
	bool texts;		/* for version: texts to be written to the caller's pointers after the lock is released */
};

static void fill_ids(u32 *ids, bool with_gpus)
{
	u32 i;

	for (i = 0; i < NV_GPU_IDS; i++)
		ids[i] = with_gpus && i < nv_gpu_count ? gpu_id(&nv_gpus[i].is) : NV_GPU_ID_INVALID;
}

/* Every GPU counts as attached, since none has to be initialised first. */
static u32 get_attached_ids(struct control *c)
{
	fill_ids(c->p.ids, true);
	return NV_OK;
}

/* The ids, then the ids of excluded GPUs, and from release 580 on flags. */
static u32 get_probed_ids(struct control *c)
{
	fill_ids(c->p.ids, true);
	fill_ids(c->p.ids + NV_GPU_IDS, false);
	memset(c->p.ids + 2 * NV_GPU_IDS, 0, sizeof(u32[NV_GPU_IDS]));
	return NV_OK;
}

static u32 check_ids(const u32 *ids, u32 *failed)
{
	u32 i;

	if (ids[0] == NV0000_CTRL_GPU_ALL_IDS)
		return NV_OK;
	for (i = 0; i < NV_GPU_IDS && ids[i] != NV_GPU_ID_INVALID; i++) {
		if (!nv_gpu_by_id(ids[i])) {
			*failed = ids[i];
			return NV_ERR_INVALID_ARGUMENT;
		}
	}
	return NV_OK;
}

static u32 attach_ids(struct control *c)
{
	return check_ids(c->p.attach.ids, &c->p.attach.failed);
}

static u32 detach_ids(struct control *c)
{
	u32 failed;

	return check_ids(c->p.ids, &failed);
}

static u32 get_id_info_v2(struct control *c)
{
	struct nv_id_info_v2 *i = &c->p.info2;
	const struct nv_gpu *gpu = nv_gpu_by_id(i->gpuId);

	if (!gpu)
		return NV_ERR_INVALID_ARGUMENT;
	*i = (struct nv_id_info_v2){
		.gpuId = i->gpuId, .gpuFlags = gpu->devices ? 1 : 0, .deviceInstance = gpu->instance,
		.boardId = gpu_id(&gpu->is), .gpuInstance = gpu->instance, .numaId = -1,
	};
	return NV_OK;
}

/* Present releases do not write szName any more. */
static u32 get_id_info(struct control *c)
{
	struct nv_id_info *i = &c->p.info;
	const struct nv_gpu *gpu = nv_gpu_by_id(i->gpuId);

	if (!gpu)
		return NV_ERR_INVALID_ARGUMENT;
	*i = (struct nv_id_info){
		.gpuId = i->gpuId, .gpuFlags = gpu->devices ? 1 : 0, .deviceInstance = gpu->instance, .szName = i->szName,
		.boardId = gpu_id(&gpu->is), .gpuInstance = gpu->instance, .numaId = -1,
	};
	return NV_OK;
}

#define TITLE "nvmlfab"

/* The texts go to the pointers in the parameters. A caller without buffers asks for their
 * lengths. */
static u32 get_build_version(struct control *c)
{
	struct nv_build_version *v = &c->p.version;

	if (!v->pDriverVersionBuffer || !v->pVersionBuffer || !v->pTitleBuffer) {
		v->sizeOfStrings = 64;
		return NV_OK;
	}
	c->texts = true;
	v->changelistNumber = 0;
	v->officialChangelistNumber = 0;
	return NV_OK;
}

static u32 get_build_version_v2(struct control *c)
{
	struct nv_build_version_v2 *v = &c->p.version2;
	struct nv_build_version_v2_570 *longer = &c->p.version2_570;
	bool is_longer = c->bytes == sizeof(*longer);

	memset(&c->p, 0, c->bytes);
	strscpy(v->driverVersionBuffer, nv_driver_version, sizeof(v->driverVersionBuffer));
	strscpy(v->versionBuffer, nv_driver_version, sizeof(v->versionBuffer));
	strscpy(is_longer ? longer->titleBuffer : v->titleBuffer, TITLE, sizeof(v->titleBuffer));
	if (is_longer)
		strscpy(longer->driverBranch, nv_driver_version, sizeof(longer->driverBranch));
	return NV_OK;
}

/* No features, no groups, no capabilities. */
static u32 get_nothing(struct control *c)
{
	memset(&c->p, 0, c->bytes);
	return NV_OK;
}

/* The share policy has no effect: only the process that made an object may duplicate it. */
static u32 set_share_policy(struct control *c)
{
	return NV_OK;
}

/* The list has no class of an engine, since the GPU does not compute. */
static u32 get_classes(struct control *c)
{
	memset(&c->p, 0, c->bytes);
	c->p.classes.count = nv_rm_classes(c->p.classes.class, ARRAY_SIZE(c->p.classes.class));
	return NV_OK;
}

/* In microseconds. A schedule must not be empty. */
static u32 set_timeslice(struct control *c)
{
	if (!c->p.timeslice_us)
		return NV_ERR_INVALID_ARGUMENT;
	c->object->timeslice_us = c->p.timeslice_us;
	return NV_OK;
}

static u32 get_timeslice(struct control *c)
{
	c->p.timeslice_us = c->object->timeslice_us;
	return NV_OK;
}

static const struct {
	u32 class, cmd, bytes;
	u32 (*run)(struct control *c);
} controls[] = {
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, sizeof(u32[NV_GPU_IDS]), get_attached_ids },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, sizeof(u32[2 * NV_GPU_IDS]), get_probed_ids },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, sizeof(u32[3 * NV_GPU_IDS]), get_probed_ids },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_ATTACH_IDS, sizeof(u32[NV_GPU_IDS + 1]), attach_ids },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_DETACH_IDS, sizeof(u32[NV_GPU_IDS]), detach_ids },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_GET_ID_INFO, sizeof(struct nv_id_info), get_id_info },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, sizeof(struct nv_id_info_v2), get_id_info_v2 },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, sizeof(struct nv_build_version), get_build_version },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2, sizeof(struct nv_build_version_v2), get_build_version_v2 },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2, sizeof(struct nv_build_version_v2_570), get_build_version_v2 },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_SYSTEM_GET_FEATURES, sizeof(u32), get_nothing },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO, sizeof(struct nv_boost_groups), get_nothing },
	{ NV01_ROOT_CLIENT, NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, sizeof(u32[3]), set_share_policy },
	{ NV01_DEVICE_0, NV0080_CTRL_CMD_HOST_GET_CAPS_V2, 3, get_nothing },
	{ NV01_DEVICE_0, NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, sizeof(u32[1 + 160]), get_classes },	/* 535 */
	{ NV01_DEVICE_0, NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, sizeof(u32[1 + 174]), get_classes },	/* 550 */
	{ NV01_DEVICE_0, NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, sizeof(u32[1 + 100]), get_classes },	/* 570 */
	{ NV01_DEVICE_0, NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, sizeof(u32[1 + 200]), get_classes },	/* 580, 595 */
	{ KEPLER_CHANNEL_GROUP_A, NVA06C_CTRL_CMD_SET_TIMESLICE, sizeof(u64), set_timeslice },
	{ KEPLER_CHANNEL_GROUP_A, NVA06C_CTRL_CMD_GET_TIMESLICE, sizeof(u64), get_timeslice },
};

static bool put_text(u64 user, u32 size, const char *text)
{
	char whole[64] = "";

	strscpy(whole, text, sizeof(whole));
	return !user || !copy_to_user(u64_to_user_ptr(user), whole, min_t(u32, size, sizeof(whole)));
}

static bool put_texts(const struct nv_build_version *v)
{
	return put_text(v->pDriverVersionBuffer, v->sizeOfStrings, nv_driver_version) &&
	       put_text(v->pVersionBuffer, v->sizeOfStrings, nv_driver_version) && put_text(v->pTitleBuffer, v->sizeOfStrings, TITLE);
}

/* Finds the handler of a class's command for that many bytes, or the error. */
static u32 find(u32 class, const struct nvos54 *call, u32 (**run)(struct control *c))
{
	u32 i, status = NV_ERR_NOT_SUPPORTED;

	for (i = 0; i < ARRAY_SIZE(controls); i++) {
		if (controls[i].cmd != call->cmd || controls[i].class != class)
			continue;
		if (controls[i].bytes == call->paramsSize) {
			*run = controls[i].run;
			return NV_OK;
		}
		status = NV_ERR_INVALID_PARAM_STRUCT;
	}
	return status;
}

/* Finds the object and the handler. The caller holds nv_rm_lock. */
static u32 look_up(struct nv_file *f, const struct nvos54 *call, struct control *c)
{
	u32 status = nv_client(f, call->hClient, NV_ERR_INVALID_CLIENT);

	if (status != NV_OK)
		return status;
	if (!call->params != !call->paramsSize)
		return NV_ERR_INVALID_ARGUMENT;
	c->object = nv_object(call->hClient, call->hObject);
	if (!c->object)
		return NV_ERR_OBJECT_NOT_FOUND;
	c->class = c->object->rm.class;
	return find(c->class, call, &c->run);
}

static u32 control(struct nv_file *f, const struct nvos54 *call, struct control *c)
{
	void __user *params = u64_to_user_ptr(call->params);
	u32 status;

	mutex_lock(&nv_rm_lock);
	status = look_up(f, call, c);
	mutex_unlock(&nv_rm_lock);
	if (status != NV_OK)
		return status;
	if (copy_from_user(&c->p, params, call->paramsSize))
		return NV_ERR_INVALID_ADDRESS;
	c->bytes = call->paramsSize;

	/* Meanwhile the object may have been freed or replaced. */
	mutex_lock(&nv_rm_lock);
	status = look_up(f, call, c);
	if (status == NV_OK)
		status = c->run(c);
	mutex_unlock(&nv_rm_lock);
	if (c->texts && !put_texts(&c->p.version))
		status = NV_ERR_INVALID_ADDRESS;
	/* The driver gives back what a failed call has written, too. */
	if (copy_to_user(params, &c->p, call->paramsSize))
		return status == NV_OK ? NV_ERR_INVALID_ADDRESS : status;
	return status;
}

u32 nv_rm_control(struct nv_file *f, const struct nvos54 *call)
{
	struct control *c;
	u32 status;

	/* Every object accepts command 0 and number 0 of category 0, which do nothing. */
	if (!(call->cmd & 0xffff))
		return NV_OK;
	if (call->flags & NVOS54_FLAGS_FINN_SERIALIZED)
		return NV_ERR_NOT_SUPPORTED;
	c = kzalloc(sizeof(*c), GFP_KERNEL);
	if (!c)
		return NV_ERR_NO_MEMORY;
	status = control(f, call, c);
	pr_debug("control %#x of class %#x, %u bytes: %#x\n", call->cmd, c->class, call->paramsSize, status);
	kfree(c);
	return status;
}
