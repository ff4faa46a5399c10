// SPDX-License-Identifier: GPL-2.0-only
#include "../ledger.h"
#include "suite.h"

#define MIB (1ull << 20)
#define ANY VGPU_MINOR_ANY
#define DEVICE 0x80u
#define MEMORY 0x40u

static struct ledger l;
static struct vgpu_usage usage;

static void start(void)
{
	memset(&l, 0, sizeof(l));
}

/* Process N of cgroup N * 10, which is below cgroup 7, on GPU 0. */
static struct policy_subject process(u32 tgid)
{
	return (struct policy_subject){ tgid, 0, 2, { tgid * 10, 7 } };
}

static int add(u32 tgid, u64 file, u32 client, u32 parent, u32 object, u32 class, struct ledger_charge *charge)
{
	struct rm_call call = { .kind = RM_ALLOC, .client = client, .parent = parent, .object = object, .code = class };
	struct policy_subject s = process(tgid);

	return ledger_add(&l, &s, file, &call, object, charge);
}

static int charge(u32 tgid, enum rm_memory kind, u64 bytes, struct ledger_charge **c)
{
	struct policy_subject s = process(tgid);
	const struct policy_limit *over;

	return ledger_charge(&l, &s, kind, bytes, NULL, c, &over);
}

/* Allocates device memory below the client itself. */
static int memory(u32 tgid, u32 client, u32 object, u64 bytes)
{
	struct ledger_charge *c;
	int err = charge(tgid, RM_MEMORY_DEVICE, bytes, &c);

	return err ? err : add(tgid, tgid, client, client, object, MEMORY, c);
}

static int dup(u32 tgid, u32 client, u32 object, u32 source_client, u32 source)
{
	struct rm_call call = { .kind = RM_DUP, .client = client, .parent = client, .object = object, .source_client = source_client,
				.source_object = source };
	struct policy_subject s = process(tgid);

	return ledger_dup(&l, &s, &call, object);
}

static u64 used(enum vgpu_scope scope, u64 id)
{
	memset(&usage, 0, sizeof(usage));
	return ledger_usage(&l, scope, id, ANY, &usage) ? 0 : usage.device_bytes;
}

#define TASK(tgid) used(VGPU_SCOPE_TGID, tgid)
#define CGROUP(id) used(VGPU_SCOPE_CGROUP, id)

/* A process's use counts in its own account and in those of all cgroups above it. */
#define EXPECT_USE(test, tgid, bytes) \
	do { \
		KUNIT_EXPECT_EQ(test, TASK(tgid), (u64)(bytes)); \
		KUNIT_EXPECT_EQ(test, CGROUP((tgid) * 10), (u64)(bytes)); \
	} while (0)

static void ledger_add_and_free(struct kunit *test)
{
	start();
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 100, 2, DEVICE, NULL), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, 4 * MIB), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 4, 8 * MIB), 0);
	EXPECT_USE(test, 1, 12 * MIB);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 12 * MIB);
	KUNIT_EXPECT_EQ(test, usage.allocations, 2ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 4), 8 * MIB);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 4), 0ull);		/* twice */
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 99), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 99, 3), 0ull);
	EXPECT_USE(test, 1, 4 * MIB);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 12 * MIB);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 100), 4 * MIB);	/* the client */
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 12 * MIB);
	KUNIT_EXPECT_EQ(test, usage.allocations, 0ull);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 0ull);
	KUNIT_EXPECT_PTR_EQ(test, l.clients, NULL);
	ledger_clear(&l);
}

static void ledger_cancels(struct kunit *test)
{
	struct ledger_charge *a, *b, *c;

	start();
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1 * MIB, &a), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2 * MIB, &b), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 4 * MIB, &c), 0);
	EXPECT_USE(test, 1, 7 * MIB);		/* before the driver has answered */
	ledger_cancel(&l, b);
	EXPECT_USE(test, 1, 5 * MIB);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 100, 2, MEMORY, a), 0);
	ledger_cancel(&l, c);
	ledger_cancel(&l, NULL);
	EXPECT_USE(test, 1, 1 * MIB);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 2), 1 * MIB);
	EXPECT_USE(test, 1, 0);
	ledger_clear(&l);
}

static void ledger_kinds(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_SYSTEM, 1, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 100, 2, 0x3e, c), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_VIRTUAL, 2, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 100, 3, 0x50a0, c), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 4, 4), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_NONE, 8, &c), 0);
	KUNIT_EXPECT_PTR_EQ(test, c, NULL);
	usage = (struct vgpu_usage){ .cgroup_id = 11, .tgid = 22, .minor = 33, .device_bytes = 44 };
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 1, 0, &usage), 0);
	KUNIT_EXPECT_EQ(test, usage.device_bytes, 4ull);
	KUNIT_EXPECT_EQ(test, usage.system_bytes, 1ull);
	KUNIT_EXPECT_EQ(test, usage.virtual_bytes, 2ull);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 4ull);
	KUNIT_EXPECT_EQ(test, usage.allocations, 3ull);
	KUNIT_EXPECT_EQ(test, usage.cgroup_id, 11ull);
	KUNIT_EXPECT_EQ(test, usage.tgid, 22u);
	KUNIT_EXPECT_EQ(test, usage.minor, 33u);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 1, 1, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 2, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_CGROUP, 1, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 2), 0ull);		/* no device memory */
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), 4ull);
	ledger_clear(&l);
}

/* Freeing an object frees everything below it, in whatever order the objects were added. */
static void ledger_parents(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 100, 2, DEVICE, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 2, 3, NV20_SUBDEVICE_0, NULL), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 2, 4, MEMORY, c), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 3, 5, MEMORY, c), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 6, 4), 0);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 2), 3ull);		/* the device */
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), 0ull);
	EXPECT_USE(test, 1, 4);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 2ull);
	ledger_clear(&l);
}

/* A client and a device that are older than the module: the ledger learns later what they are, or never. */
static void ledger_made_up(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 2, 3, MEMORY, c), 0);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 3ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 2), 1ull);		/* the device, which the ledger never saw allocated */
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 2, 3, MEMORY, c), 0);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 5), 2ull);
	EXPECT_USE(test, 1, 0);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 0ull);
	ledger_clear(&l);
}

/* Another thread uses an object before the call that makes it has returned. That call replaces nothing. */
static void ledger_seen_late(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 2, 3, MEMORY, c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 6, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	EXPECT_USE(test, 1, 1);
	KUNIT_ASSERT_EQ(test, add(1, 6, 100, 100, 9, NV20_SUBDEVICE_0, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 6, 100, 9, 2, DEVICE, NULL), 0);
	EXPECT_USE(test, 1, 1);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 5), 0ull);		/* the file of the client is known by now */
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 9), 1ull);		/* the device is in its place by now */
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 1ull);

	/* Memory may be a parent before the ledger sees it, and brings its charge with it. It may also be below its own
	 * child. */
	KUNIT_ASSERT_EQ(test, add(1, 6, 100, 20, 21, DEVICE, NULL), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 6, 100, 21, 20, MEMORY, c), 0);
	EXPECT_USE(test, 1, 2);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 20), 2ull);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 1ull);
	ledger_clear(&l);
}

static void ledger_replaced(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, 1), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, 2), 0);			/* freed while it was a placeholder */
	EXPECT_USE(test, 1, 2);
	KUNIT_EXPECT_EQ(test, usage.allocations, 1ull);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 4, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 3, 4, MEMORY, c), 0);	/* below it */
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 8, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 4, 3, MEMORY, c), 0);	/* and now the other way round */
	EXPECT_USE(test, 1, 8);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);	/* the client again */
	EXPECT_USE(test, 1, 0);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 1ull);
	ledger_clear(&l);
}

static void ledger_odd_handles(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_EXPECT_EQ(test, add(1, 1, 100, 100, 0, MEMORY, c), 0);		/* no handle */
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_EXPECT_EQ(test, add(1, 1, 100, 100, 100, MEMORY, c), 0);		/* the client's own */
	KUNIT_EXPECT_EQ(test, dup(1, 100, 0, 100, 5), 0);
	KUNIT_EXPECT_EQ(test, dup(1, 100, 100, 100, 5), 0);
	EXPECT_USE(test, 1, 0);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 1ull);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_EXPECT_EQ(test, add(1, 1, 100, 5, 5, MEMORY, c), 0);		/* its own parent */
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2, &c), 0);
	KUNIT_EXPECT_EQ(test, add(1, 1, 100, 0, 6, MEMORY, c), 0);		/* none */
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 4, &c), 0);
	KUNIT_EXPECT_EQ(test, add(1, 1, 0, 0, 200, NV01_ROOT, c), 0);		/* a client is no memory */
	EXPECT_USE(test, 1, 3);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), 1ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 100), 2ull);
	ledger_clear(&l);
}

/* Process 1 allocates; 2 has a duplicate, and 3 a duplicate of that duplicate. */
static void share(struct kunit *test)
{
	start();
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(2, 2, 200, 0, 200, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(3, 3, 300, 0, 300, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 5, 8), 0);
	KUNIT_ASSERT_EQ(test, dup(2, 200, 6, 100, 5), 0);
	KUNIT_ASSERT_EQ(test, dup(3, 300, 7, 200, 6), 0);
	EXPECT_USE(test, 1, 8);
	KUNIT_EXPECT_EQ(test, TASK(2) + TASK(3), 0ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 8ull);
}

static void ledger_dups(struct kunit *test)
{
	share(test);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 200, 200), 0ull);
	EXPECT_USE(test, 1, 8);			/* it counts as long as anybody holds it */
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 300, 7), 8ull);
	EXPECT_USE(test, 1, 0);

	KUNIT_ASSERT_EQ(test, memory(1, 100, 5, 8), 0);
	KUNIT_ASSERT_EQ(test, dup(1, 100, 6, 100, 5), 0);
	KUNIT_ASSERT_EQ(test, dup(1, 100, 6, 100, 6), 0);	/* a duplicate of itself: nothing */
	KUNIT_ASSERT_EQ(test, dup(1, 100, 7, 100, 99), 0);	/* a duplicate of an unknown object */
	KUNIT_ASSERT_EQ(test, dup(9, 900, 7, 901, 99), 0);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 7), 0ull);
	KUNIT_ASSERT_EQ(test, dup(1, 100, 5, 100, 6), 0);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 6), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 100), 8ull);
	ledger_clear(&l);
}

/* The duplicate replaces an object that its source is below, so the source is gone. */
static void ledger_dup_replaces(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, memory(1, 100, 5, 8), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 16, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 5, 6, MEMORY, c), 0);
	KUNIT_ASSERT_EQ(test, dup(1, 100, 5, 100, 6), 0);
	EXPECT_USE(test, 1, 0);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), 0ull);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 5, 8), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 6, 16), 0);
	KUNIT_ASSERT_EQ(test, dup(1, 100, 5, 100, 6), 0);
	EXPECT_USE(test, 1, 16);
	ledger_clear(&l);
}

static void ledger_owner_exits(struct kunit *test)
{
	share(test);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 300, 7), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);		/* 2 still holds it and is charged now */
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 1, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 0ull);
	EXPECT_USE(test, 2, 8);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 8ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 8ull);
	KUNIT_ASSERT_EQ(test, dup(3, 300, 7, 200, 6), 0);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 2), 0ull);
	EXPECT_USE(test, 3, 8);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 3), 8ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 0ull);
	KUNIT_EXPECT_EQ(test, l.tasks.count, 0ull);
	ledger_clear(&l);
}

/* A process's files may be closed before or after it exits. The result is the same. */
static void ledger_owner_closes_and_exits(struct kunit *test)
{
	share(test);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 3), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), 0ull);
	EXPECT_USE(test, 1, 8);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	EXPECT_USE(test, 2, 8);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 2), 8ull);
	ledger_clear(&l);
}

/* 2 allocates through a client of 1, as a forked child may. The charge goes to 2, and to 1 when 2 has ended. */
static void ledger_child_exits(struct kunit *test)
{
	struct ledger_charge *c;
	u32 i;

	start();
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	for (i = 0; i < 100; i++) {	/* on many GPUs, so that new accounts are added while old ones are visited */
		struct policy_subject s = process(2);
		const struct policy_limit *over;
		struct rm_call call = { .client = 100, .parent = 100, .code = MEMORY };

		s.minor = i;
		KUNIT_ASSERT_EQ(test, ledger_charge(&l, &s, RM_MEMORY_DEVICE, 1, NULL, &c, &over), 0);
		KUNIT_ASSERT_EQ(test, ledger_add(&l, &s, 1, &call, 200 + i, c), 0);
	}
	EXPECT_USE(test, 2, 100);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 2), 0ull);
	EXPECT_USE(test, 1, 100);
	KUNIT_EXPECT_EQ(test, CGROUP(20), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 100ull);
	ledger_clear(&l);
}

/* A process ends while one of its calls is still in the driver. */
static void ledger_exit_before_answer(struct kunit *test)
{
	struct ledger_charge *a, *b;

	start();
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &a), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2, &b), 0);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 1, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 3ull);			/* the cgroup is charged until it is known */
	ledger_cancel(&l, a);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 2ull);
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 100, 2, MEMORY, b), 0);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 2ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 5), 2ull);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 0ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);

	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &a), 0);	/* and everything ends while the call is in the driver */
	ledger_clear(&l);
	ledger_cancel(&l, a);
}

/* A process ends whose file is still open elsewhere. Its objects from that file stay charged to the cgroups until
 * the file is closed. */
static void ledger_leaves(struct kunit *test)
{
	struct ledger_charge *c;

	share(test);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 200, 6) + ledger_free(&l, 300, 7), 0ull);
	KUNIT_ASSERT_EQ(test, dup(1, 500, 5, 100, 5), 0);		/* a placeholder without a file: ends with the process */
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 16, &c), 0);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 1), 24ull);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 1, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 24ull);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	KUNIT_EXPECT_TRUE(test, ledger_holds(&l, 100, 100));
	KUNIT_EXPECT_FALSE(test, ledger_holds(&l, 500, 5));
	ledger_cancel(&l, c);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 8ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), 8ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 2ull);
	ledger_clear(&l);

	/* The charge goes to the process with a duplicate, as in ledger_exit. From there it goes to nobody: the last
	 * holder's client has no owner. */
	share(test);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 1), 8ull);
	EXPECT_USE(test, 3, 8);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 2), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 3), 0ull);
	KUNIT_EXPECT_EQ(test, CGROUP(30), 8ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), 8ull);
	KUNIT_EXPECT_EQ(test, CGROUP(30), 0ull);
	ledger_clear(&l);

	/* The charge skips a client without an owner, although that one duplicated it last. */
	share(test);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 2), 0ull);
	KUNIT_ASSERT_EQ(test, dup(2, 200, 8, 100, 5), 0);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	EXPECT_USE(test, 3, 8);
	ledger_clear(&l);

	/* An object that is made through a client without an owner belongs to its maker. When that ends, it has no owner
	 * either. */
	start();
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 1), 0ull);
	KUNIT_ASSERT_EQ(test, memory(2, 100, 5, 8), 0);
	EXPECT_USE(test, 2, 8);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 2), 0ull);
	KUNIT_EXPECT_EQ(test, CGROUP(20), 8ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), 8ull);
	ledger_clear(&l);
}

static void ledger_holding(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_EXPECT_FALSE(test, ledger_holds(&l, 100, 100));
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 100, 1, DEVICE, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 1, 2, NV20_SUBDEVICE_0, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 1, 3, NV20_SUBDEVICE_0, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 3, 4, MEMORY, NULL), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 2, 5, MEMORY, c), 0);
	KUNIT_EXPECT_TRUE(test, ledger_holds(&l, 100, 100) && ledger_holds(&l, 100, 1) && ledger_holds(&l, 100, 2) && ledger_holds(&l, 100, 5));
	KUNIT_EXPECT_FALSE(test, ledger_holds(&l, 100, 3));		/* an object beside it does */
	KUNIT_EXPECT_FALSE(test, ledger_holds(&l, 100, 4));
	KUNIT_EXPECT_FALSE(test, ledger_holds(&l, 100, 6));
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 1, &c), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 8, 9, MEMORY, c), 0);
	KUNIT_EXPECT_FALSE(test, ledger_holds(&l, 100, 8));		/* made up */
	KUNIT_EXPECT_TRUE(test, ledger_holds(&l, 100, 9));
	ledger_clear(&l);
}

static void ledger_cgroup_dropped(struct kunit *test)
{
	struct ledger_charge *c;

	start();
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, 1), 0);
	KUNIT_ASSERT_EQ(test, charge(1, RM_MEMORY_DEVICE, 2, &c), 0);
	ledger_drop_cgroup(&l, 10);
	ledger_drop_cgroup(&l, 10);
	ledger_drop_cgroup(&l, 99);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_CGROUP, 10, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, TASK(1), 3ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 3ull);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 4, 4), 0);			/* the same handle again, of another cgroup */
	KUNIT_EXPECT_EQ(test, CGROUP(10), 4ull);
	ledger_cancel(&l, c);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 3), 1ull);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 4ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 4ull);
	ledger_drop_cgroup(&l, 7);
	KUNIT_EXPECT_EQ(test, TASK(1), 4ull);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 4), 4ull);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 0ull);
	ledger_clear(&l);
}

/* A charge does not move to a cgroup that is gone. */
static void ledger_moves_past_dropped(struct kunit *test)
{
	share(test);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 300, 300), 0ull);
	ledger_drop_cgroup(&l, 20);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, TASK(2), 8ull);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_CGROUP, 20, ANY, &usage), -ENOENT);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 8ull);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 2), 8ull);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
	ledger_clear(&l);
}

/* Without memory a charge cannot move. It stays with the cgroups of the process that ended, and is not lost. */
static void ledger_moves_without_memory(struct kunit *test)
{
	u32 i;

	for (i = 1; i <= 2; i++) {
		share(test);
		memory_fail_at = i;
		KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
		KUNIT_EXPECT_EQ(test, TASK(2) + TASK(3), 0ull);
		KUNIT_EXPECT_EQ(test, CGROUP(10), 8ull);
		KUNIT_EXPECT_EQ(test, CGROUP(7), 8ull);
		KUNIT_EXPECT_EQ(test, ledger_free(&l, 200, 6), 0ull);
		KUNIT_EXPECT_EQ(test, ledger_free(&l, 300, 7), 8ull);
		KUNIT_EXPECT_EQ(test, CGROUP(10), 0ull);
		ledger_clear(&l);
	}
}

static void ledger_files(struct kunit *test)
{
	start();
	KUNIT_ASSERT_EQ(test, add(1, 5, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 6, 200, 0, 200, NV01_ROOT_NON_PRIV, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 5, 300, 0, 300, NV01_ROOT, NULL), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, 1), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 200, 3, 2), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 300, 3, 4), 0);
	KUNIT_ASSERT_EQ(test, dup(9, 900, 1, 200, 3), 0);	/* made up without a file */
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 0), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 99), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 5), 5ull);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 5), 0ull);
	EXPECT_USE(test, 1, 2);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 4ull);
	ledger_clear(&l);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 0ull);
	KUNIT_EXPECT_PTR_EQ(test, l.clients, NULL);
}

static struct policy policy;

static int try_charge(u32 tgid, u32 minor, u64 bytes, struct ledger_charge **c, const struct policy_limit **over)
{
	struct policy_subject s = process(tgid);

	s.minor = minor;
	return ledger_charge(&l, &s, RM_MEMORY_DEVICE, bytes, &policy, c, over);
}

static void ledger_limits(struct kunit *test)
{
	struct ledger_charge *a, *b, *c;
	const struct policy_limit *over;

	start();
	policy = (struct policy){ .limits = 1, .limit = { { 10, 0, false } } };
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 11, &a, &over), -EDQUOT);
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[0]);
	KUNIT_EXPECT_PTR_EQ(test, a, NULL);
	EXPECT_USE(test, 1, 0);
	KUNIT_EXPECT_EQ(test, usage.denied, 1ull);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 10, &a, &over), 0);
	KUNIT_EXPECT_PTR_EQ(test, over, NULL);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 1, &b, &over), -EDQUOT);		/* two allocations at the same time cannot both take the last bytes */
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 0, &b, &over), 0);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, U64_MAX, &c, &over), -EDQUOT);
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 10, &c, &over), 0);		/* another process */
	EXPECT_USE(test, 1, 10);
	KUNIT_EXPECT_EQ(test, usage.denied, 3ull);
	ledger_cancel(&l, a);
	ledger_cancel(&l, c);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 10, &a, &over), 0);
	policy.limit[0].bytes = 5;						/* lowered below the present use */
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 0, &c, &over), -EDQUOT);
	ledger_cancel(&l, a);
	ledger_cancel(&l, b);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
	KUNIT_EXPECT_EQ(test, usage.denied, 4ull);
	ledger_clear(&l);
}

static void ledger_limits_of_cgroups(struct kunit *test)
{
	struct ledger_charge *a, *b, *c;
	const struct policy_limit *over;

	start();
	policy = (struct policy){ .limits = 2, .limit = { { 10, 10, false }, { 15, 7, false } } };
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 10, &a, &over), 0);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 1, &b, &over), -EDQUOT);
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[0]);
	policy.limit[0].cgroup = 20;
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 6, &b, &over), -EDQUOT);		/* its own cgroup has room, the one above has not */
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[1]);
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 5, &b, &over), 0);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 15ull);

	policy.limit[1].dry_run = true;
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 5, &c, &over), 0);
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[1]);
	KUNIT_EXPECT_EQ(test, CGROUP(20), 10ull);
	KUNIT_EXPECT_EQ(test, usage.denied, 2ull);
	ledger_cancel(&l, c);
	policy.limit[0] = (struct policy_limit){ 1, 20, true };
	policy.limit[1].dry_run = false;
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 5, &c, &over), -EDQUOT);		/* *over is the limit that denies */
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[1]);
	policy.limit[1].bytes = 100;
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 5, &c, &over), 0);
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[0]);
	ledger_cancel(&l, c);
	policy.limit[1] = (struct policy_limit){ 1, 7, true };
	KUNIT_EXPECT_EQ(test, try_charge(2, 0, 5, &c, &over), 0);		/* both limits are dry_run: the first one */
	KUNIT_EXPECT_PTR_EQ(test, over, &policy.limit[0]);
	ledger_cancel(&l, c);
	ledger_cancel(&l, b);
	ledger_cancel(&l, a);
	ledger_clear(&l);
}

static void ledger_limits_of_minors(struct kunit *test)
{
	struct ledger_charge *a, *b, *c, *d;
	const struct policy_limit *over;

	start();
	policy = (struct policy){ .limits = 1, .limit = { { 10, 0, false } } };
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 8, &a, &over), 0);
	KUNIT_EXPECT_EQ(test, try_charge(1, 1, 8, &b, &over), 0);		/* another GPU */
	KUNIT_EXPECT_EQ(test, try_charge(1, ANY, 1, &c, &over), -EDQUOT);	/* it may belong to either GPU */
	policy.limit[0].bytes = 17;
	KUNIT_EXPECT_EQ(test, try_charge(1, ANY, 1, &c, &over), 0);
	policy.limit[0].bytes = 10;
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 2, &d, &over), -EDQUOT);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 1, &d, &over), 0);
	EXPECT_USE(test, 1, 18);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 18ull);
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_TGID, 1, 0, &usage), 0);
	KUNIT_EXPECT_EQ(test, usage.device_bytes, 9ull);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 9ull);
	KUNIT_EXPECT_EQ(test, usage.denied, 1ull);
	ledger_cancel(&l, a);
	ledger_cancel(&l, b);
	ledger_cancel(&l, c);
	ledger_cancel(&l, d);
	KUNIT_EXPECT_EQ(test, try_charge(1, 2, 10, &a, &over), 0);
	TASK(1);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, 18ull);			/* not the sum of the peaks */
	ledger_cancel(&l, a);
	ledger_clear(&l);
}

/* Only device memory counts against limits. */
static void ledger_limits_of_kinds(struct kunit *test)
{
	struct ledger_charge *c, *d;
	const struct policy_limit *over;
	struct policy_subject s = process(1);

	start();
	policy = (struct policy){ .limits = 1, .limit = { { 10, 0, false } } };
	KUNIT_ASSERT_EQ(test, ledger_charge(&l, &s, RM_MEMORY_SYSTEM, 20, &policy, &c, &over), 0);
	ledger_cancel(&l, c);
	KUNIT_ASSERT_EQ(test, ledger_charge(&l, &s, RM_MEMORY_VIRTUAL, 20, &policy, &c, &over), 0);
	KUNIT_EXPECT_PTR_EQ(test, over, NULL);
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 10, &d, &over), 0);
	ledger_cancel(&l, c);
	ledger_cancel(&l, d);
	ledger_clear(&l);
}

/* Unknown sizes make a sum that saturates. When they are freed, the sum is exact again. */
static void ledger_overflow(struct kunit *test)
{
	struct ledger_charge *c;
	const struct policy_limit *over;

	start();
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, U64_MAX), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 4, 5), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 5, U64_MAX), 0);
	EXPECT_USE(test, 1, U64_MAX);
	KUNIT_EXPECT_EQ(test, usage.peak_device_bytes, U64_MAX);
	policy = (struct policy){ .limits = 1, .limit = { { U64_MAX, 0, false } } };
	KUNIT_EXPECT_EQ(test, try_charge(1, 0, 1, &c, &over), -EDQUOT);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 3), U64_MAX);
	EXPECT_USE(test, 1, U64_MAX);
	KUNIT_EXPECT_EQ(test, ledger_free(&l, 100, 5), U64_MAX);
	EXPECT_USE(test, 1, 5);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, U64_MAX), 0);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), U64_MAX);
	EXPECT_USE(test, 1, 0);
	ledger_clear(&l);
}

static void ledger_minors(struct kunit *test)
{
	static const u32 minors[] = { 5, 3 };
	struct rm_call call = { .client = 100, .parent = 100, .object = 2, .code = NV01_DEVICE_0, .device = 1 };
	struct policy_subject s = process(1);

	start();
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL), 0);
	KUNIT_ASSERT_EQ(test, ledger_add(&l, &s, 1, &call, 2, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 2, 3, NV20_SUBDEVICE_0, NULL), 0);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 3, 4, MEMORY, NULL), 0);
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 2, minors, 2), 3u);
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 4, minors, 2), 3u);
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 4, minors, 1), ANY);	/* an unknown device instance */
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 100, minors, 2), ANY);
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 9, minors, 2), ANY);
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 101, 2, minors, 2), ANY);
	call = (struct rm_call){ .client = 100, .parent = 100, .object = 12, .source_client = 100, .source_object = 2 };
	KUNIT_ASSERT_EQ(test, ledger_dup(&l, &s, &call, 12), 0);
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 12, minors, 2), 3u);
	KUNIT_ASSERT_EQ(test, add(1, 1, 100, 20, 21, MEMORY, NULL), 0);	/* below a device that is made up */
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 21, minors, 2), ANY);
	call = (struct rm_call){ .client = 100, .parent = 100, .object = 20, .code = NV01_DEVICE_0 };
	KUNIT_ASSERT_EQ(test, ledger_add(&l, &s, 1, &call, 20, NULL), 0);	/* and is now seen */
	KUNIT_EXPECT_EQ(test, ledger_minor(&l, 100, 21, minors, 2), 5u);
	ledger_clear(&l);
}

static void ledger_timeslices(struct kunit *test)
{
	struct policy_subject s = process(1);

	start();
	s.minor = 1;
	ledger_timeslice(&l, &s, 2000);
	ledger_timeslice(&l, &s, 3000);
	s.minor = 2;
	ledger_timeslice(&l, &s, 1000);
	TASK(1);
	KUNIT_EXPECT_EQ(test, usage.timeslices, 3ull);
	KUNIT_EXPECT_EQ(test, usage.timeslice_us, 1000ull);		/* the last one, on any GPU */
	KUNIT_EXPECT_EQ(test, ledger_usage(&l, VGPU_SCOPE_CGROUP, 7, 1, &usage), 0);
	KUNIT_EXPECT_EQ(test, usage.timeslices, 2ull);
	KUNIT_EXPECT_EQ(test, usage.timeslice_us, 3000ull);
	s.minor = 1;
	ledger_timeslice(&l, &s, 4000);
	CGROUP(10);
	KUNIT_EXPECT_EQ(test, usage.timeslice_us, 4000ull);
	ledger_denied(&l, &s);
	TASK(1);
	KUNIT_EXPECT_EQ(test, usage.denied, 1ull);
	CGROUP(7);
	KUNIT_EXPECT_EQ(test, usage.denied, 1ull);
	KUNIT_EXPECT_EQ(test, usage.allocations, 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, l.tasks.count, 0ull);
	memory_fail_at = 1;			/* the count is lost without harm */
	ledger_denied(&l, &s);
	ledger_clear(&l);
	s.cgroups = 1000;			/* more than there can be */
	memset(s.cgroup, 1, sizeof(s.cgroup));
	ledger_denied(&l, &s);
	ledger_clear(&l);
}

/* A process ends while others have its file open: its memory stays charged to its cgroups until the file is closed. */
static void ledger_owner_leaves(struct kunit *test)
{
	start();
	KUNIT_ASSERT_EQ(test, memory(1, 100, 2, 4 * MIB), 0);
	KUNIT_ASSERT_EQ(test, memory(2, 200, 2, 8 * MIB), 0);
	KUNIT_ASSERT_EQ(test, memory(1, 100, 3, 16 * MIB), 0);
	KUNIT_ASSERT_EQ(test, dup(2, 200, 3, 100, 3), 0);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 1), 20 * MIB);
	KUNIT_EXPECT_EQ(test, TASK(1), 0ull);
	KUNIT_EXPECT_EQ(test, CGROUP(10), 4 * MIB);
	EXPECT_USE(test, 2, 24 * MIB);			/* its duplicate is charged to it now */
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 1), 0ull);
	KUNIT_EXPECT_EQ(test, ledger_exit(&l, 1), 0ull);	/* another process of that number */
	KUNIT_EXPECT_EQ(test, CGROUP(10), 4 * MIB);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 1), 4 * MIB);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 24 * MIB);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 2), 24 * MIB);
	KUNIT_EXPECT_EQ(test, ledger_close(&l, 2), 24 * MIB);
	KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
	KUNIT_EXPECT_EQ(test, l.tasks.count, 0ull);

	/* A client without a file ends with the process, since nothing else could end it. */
	KUNIT_ASSERT_EQ(test, dup(3, 300, 301, 1, 1), 0);
	KUNIT_EXPECT_EQ(test, ledger_leave(&l, 3), 0ull);
	KUNIT_EXPECT_EQ(test, l.objects.table.count, 0ull);
	ledger_clear(&l);
	KUNIT_EXPECT_EQ(test, memory_live, 0ull);
}

/* Each allocation in a short sequence of calls fails once. After each failure the accounts must be right, and empty
 * at the end. */
static int life(struct kunit *test)
{
	struct ledger_charge *c = NULL;
	int failed = 0;

	failed |= add(1, 1, 100, 0, 100, NV01_ROOT_CLIENT, NULL);
	failed |= add(2, 2, 200, 0, 200, NV01_ROOT_CLIENT, NULL);
	failed |= charge(1, RM_MEMORY_DEVICE, 8, &c);
	KUNIT_EXPECT_EQ(test, TASK(1), c ? 8ull : 0ull);
	failed |= add(1, 1, 100, 2, 3, MEMORY, c);
	KUNIT_EXPECT_EQ(test, TASK(1), CGROUP(10));
	failed |= dup(2, 200, 4, 100, 3);
	failed |= add(1, 1, 100, 100, 2, DEVICE, NULL);
	failed |= add(3, 3, 300, 301, 302, MEMORY, NULL);
	failed |= dup(4, 400, 402, 300, 302);
	KUNIT_EXPECT_EQ(test, CGROUP(7), TASK(1));
	return failed;
}

static void ledger_without_memory(struct kunit *test)
{
	u64 held, freed;
	u32 n;
	int failed;

	for (n = 1; n < 100; n++) {
		start();
		memory_fail_at = n;
		failed = life(test);
		KUNIT_EXPECT_TRUE(test, failed == 0 || failed == -ENOMEM);
		if (memory_fail_at)
			break;		/* no allocation was left to fail */
		held = CGROUP(7);
		freed = ledger_exit(&l, 1);
		freed += ledger_exit(&l, 2);
		freed += ledger_exit(&l, 3) + ledger_exit(&l, 4);
		KUNIT_EXPECT_EQ(test, freed, held);
		KUNIT_EXPECT_EQ(test, CGROUP(7), 0ull);
		KUNIT_EXPECT_EQ(test, l.objects.table.count, 0ull);
		ledger_clear(&l);
		KUNIT_EXPECT_EQ(test, memory_live, 0ull);
	}
	KUNIT_EXPECT_TRUE(test, n > 15 && n < 100);
	memory_fail_at = 0;
	ledger_clear(&l);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(ledger_add_and_free), KUNIT_CASE(ledger_cancels), KUNIT_CASE(ledger_kinds), KUNIT_CASE(ledger_parents),
	KUNIT_CASE(ledger_made_up), KUNIT_CASE(ledger_seen_late), KUNIT_CASE(ledger_replaced), KUNIT_CASE(ledger_odd_handles),
	KUNIT_CASE(ledger_dups), KUNIT_CASE(ledger_dup_replaces), KUNIT_CASE(ledger_owner_exits),
	KUNIT_CASE(ledger_owner_closes_and_exits), KUNIT_CASE(ledger_child_exits), KUNIT_CASE(ledger_exit_before_answer),
	KUNIT_CASE(ledger_leaves), KUNIT_CASE(ledger_holding), KUNIT_CASE(ledger_cgroup_dropped), KUNIT_CASE(ledger_moves_past_dropped),
	KUNIT_CASE(ledger_moves_without_memory), KUNIT_CASE(ledger_files), KUNIT_CASE(ledger_limits),
	KUNIT_CASE(ledger_limits_of_cgroups), KUNIT_CASE(ledger_limits_of_minors), KUNIT_CASE(ledger_limits_of_kinds),
	KUNIT_CASE(ledger_overflow), KUNIT_CASE(ledger_minors), KUNIT_CASE(ledger_timeslices), KUNIT_CASE(ledger_owner_leaves),
	KUNIT_CASE(ledger_without_memory), {}
};
SUITE(ledger, cases);
