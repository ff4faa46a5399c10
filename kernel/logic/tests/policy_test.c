// SPDX-License-Identifier: GPL-2.0-only
#include "../policy.h"
#include "suite.h"

#define MIB (1ull << 20)
#define ANY VGPU_MINOR_ANY

static struct policies p;
static struct policy_defaults defaults;
static struct policy out;

static void start(void)
{
	memset(&p, 0, sizeof(p));
	memset(&defaults, 0, sizeof(defaults));
}

static const struct vgpu_limits *limits(u64 memory, u64 min, u64 max, u32 weight, u32 flags)
{
	static struct vgpu_limits l;

	l = (struct vgpu_limits){ memory, min, max, weight, flags };
	return &l;
}

/* Resolves the policy of process 10 in cgroup 300, which is below 200, which is below 100. */
static void resolve(u32 tgid, u32 minor)
{
	struct policy_subject s = { tgid, minor, 3, { 300, 200, 100 } };

	memset(&out, 0xa5, sizeof(out));
	policy_resolve(&p, &s, &defaults, &out);
}

static void policy_checks(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 0, 0, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_check(limits(U64_MAX, U64_MAX, U64_MAX, VGPU_WEIGHT_MAX, VGPU_LIMIT_DRY_RUN)), 0);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 0, 0, VGPU_WEIGHT_MAX + 1, 0)), -EINVAL);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 0, 0, U32_MAX, 0)), -EINVAL);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 0, 0, 0, 2)), -EINVAL);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 0, 0, 0, 1u << 31)), -EINVAL);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 5, 4, 0, 0)), -EINVAL);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 5, 5, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_check(limits(0, 5, 0, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 0, limits(0, 5, 4, 0, 0)), -EINVAL);
	KUNIT_EXPECT_EQ(test, policy_set_cgroup(&p, 1, 0, limits(0, 5, 4, 0, 0)), -EINVAL);
	KUNIT_EXPECT_EQ(test, p.tgid.count + p.cgroup.count, 0ull);
}

static void policy_tables(struct kunit *test)
{
	struct vgpu_limits l;

	start();
	KUNIT_EXPECT_EQ(test, policy_get_tgid(&p, 10, 0, &l), -ENOENT);
	KUNIT_EXPECT_EQ(test, policy_clear_tgid(&p, 10, 0), -ENOENT);
	KUNIT_EXPECT_EQ(test, policy_get_cgroup(&p, 10, 0, &l), -ENOENT);
	KUNIT_EXPECT_EQ(test, policy_clear_cgroup(&p, 10, 0), -ENOENT);
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, 0, limits(1, 2, 3, 4, 1)), 0);
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, ANY, limits(5, 0, 0, 0, 0)), 0);
	KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, 10, 0, limits(6, 0, 0, 0, 0)), 0);
	KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, 1ull << 32 | 10, 0, limits(7, 0, 0, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_get_tgid(&p, 10, 0, &l), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&l, limits(1, 2, 3, 4, 1), sizeof(l)), 0);
	KUNIT_EXPECT_EQ(test, policy_get_tgid(&p, 10, ANY, &l), 0);
	KUNIT_EXPECT_EQ(test, l.memory_limit_bytes, 5ull);
	KUNIT_EXPECT_EQ(test, policy_get_tgid(&p, 10, 1, &l), -ENOENT);	/* the policy for any GPU has an entry of its own */
	KUNIT_EXPECT_EQ(test, policy_get_cgroup(&p, 10, 0, &l), 0);
	KUNIT_EXPECT_EQ(test, l.memory_limit_bytes, 6ull);
	KUNIT_EXPECT_EQ(test, policy_get_cgroup(&p, 1ull << 32 | 10, 0, &l), 0);
	KUNIT_EXPECT_EQ(test, l.memory_limit_bytes, 7ull);

	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, 0, limits(8, 0, 0, 0, 0)), 0);	/* replaces it */
	KUNIT_EXPECT_EQ(test, p.tgid.count, 2ull);
	KUNIT_EXPECT_EQ(test, policy_get_tgid(&p, 10, 0, &l), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&l, limits(8, 0, 0, 0, 0), sizeof(l)), 0);

	KUNIT_EXPECT_EQ(test, policy_clear_tgid(&p, 10, 0), 0);
	KUNIT_EXPECT_EQ(test, policy_clear_tgid(&p, 10, 0), -ENOENT);
	KUNIT_EXPECT_EQ(test, policy_get_tgid(&p, 10, ANY, &l), 0);
	KUNIT_EXPECT_EQ(test, policy_clear_cgroup(&p, 10, 0), 0);
	KUNIT_EXPECT_EQ(test, policy_get_cgroup(&p, 10, 0, &l), -ENOENT);
	policies_clear(&p);
	KUNIT_EXPECT_EQ(test, p.tgid.count + p.cgroup.count, 0ull);
}

static void policy_drops(struct kunit *test)
{
	struct vgpu_limits l;
	u32 i;

	start();
	for (i = 0; i < 200; i++) {
		KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, i % 20, i / 20, limits(1, 0, 0, 0, 0)), 0);
		KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, i % 20, i / 20 ? i / 20 : ANY, limits(1, 0, 0, 0, 0)), 0);
	}
	KUNIT_EXPECT_EQ(test, policy_drop_tgid(&p, 7), 10u);
	KUNIT_EXPECT_EQ(test, policy_drop_tgid(&p, 7), 0u);
	KUNIT_EXPECT_EQ(test, policy_drop_tgid(&p, 77), 0u);
	KUNIT_EXPECT_EQ(test, policy_drop_cgroup(&p, 8), 10u);
	KUNIT_EXPECT_EQ(test, policy_drop_cgroup(&p, 8), 0u);
	KUNIT_EXPECT_EQ(test, p.tgid.count, 190ull);
	KUNIT_EXPECT_EQ(test, p.cgroup.count, 190ull);
	for (i = 0; i < 200; i++) {
		KUNIT_ASSERT_EQ(test, policy_get_tgid(&p, i % 20, i / 20, &l), i % 20 == 7 ? -ENOENT : 0);
		KUNIT_ASSERT_EQ(test, policy_get_cgroup(&p, i % 20, i / 20 ? i / 20 : ANY, &l), i % 20 == 8 ? -ENOENT : 0);
	}
	policies_clear(&p);
}

static void policy_max(struct kunit *test)
{
	u32 i;

	start();
	p.max = 2;
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 0, limits(1, 0, 0, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 1, limits(1, 0, 0, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 2, limits(1, 0, 0, 0, 0)), -ENOSPC);
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 1, limits(2, 0, 0, 0, 0)), 0);	/* replacing needs no further entry */
	KUNIT_EXPECT_EQ(test, policy_set_cgroup(&p, 1, 0, limits(1, 0, 0, 0, 0)), 0);	/* cgroups have a table of their own */
	KUNIT_EXPECT_EQ(test, policy_clear_tgid(&p, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 2, limits(1, 0, 0, 0, 0)), 0);
	policies_clear(&p);

	p.max = 0;
	for (i = 0; i < POLICIES_MAX; i++)
		KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, i, 0, limits(1, 0, 0, 0, 0)), 0);
	KUNIT_EXPECT_EQ(test, policy_set_cgroup(&p, i, 0, limits(1, 0, 0, 0, 0)), -ENOSPC);
	policies_clear(&p);
}

static void expect_limit(struct kunit *test, u32 i, u64 bytes, u64 cgroup, bool dry_run)
{
	KUNIT_EXPECT_EQ(test, out.limit[i].bytes, bytes);
	KUNIT_EXPECT_EQ(test, out.limit[i].cgroup, cgroup);
	KUNIT_EXPECT_EQ(test, out.limit[i].dry_run, dry_run);
}

static void policy_scopes(struct kunit *test)
{
	start();
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_NONE);
	KUNIT_EXPECT_EQ(test, out.limits, 0u);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 0u);
	KUNIT_EXPECT_EQ(test, out.timeslice.max_us, 0ull);
	KUNIT_EXPECT_FALSE(test, out.dry_run);

	policy_set_cgroup(&p, 200, ANY, limits(20 * MIB, 0, 0, 2, 0));
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_CGROUP);
	KUNIT_EXPECT_EQ(test, out.cgroup_id, 200ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 2u);
	KUNIT_EXPECT_EQ(test, out.limits, 1u);
	expect_limit(test, 0, 20 * MIB, 200, false);

	policy_set_tgid(&p, 10, ANY, limits(10 * MIB, 0, 0, 3, 0));
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_TGID);
	KUNIT_EXPECT_EQ(test, out.cgroup_id, 0ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 3u);
	KUNIT_EXPECT_EQ(test, out.limits, 1u);
	expect_limit(test, 0, 10 * MIB, 0, false);
	resolve(11, 0);			/* another process in the cgroup */
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_CGROUP);

	policy_set_tgid(&p, 10, ANY, limits(0, 0, 0, 3, 0));	/* a policy without a limit: the cgroup's limit does not apply either */
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.limits, 0u);
	policies_clear(&p);
}

static void policy_unknown_minor(struct kunit *test)
{
	start();
	policy_set_tgid(&p, 10, 5, limits(7, 20, 900, 0, 0));
	policy_set_tgid(&p, 10, 6, limits(0, 30, 0, 4, 0));
	policy_set_tgid(&p, 10, 7, limits(9, 10, 800, 2, 0));
	policy_set_tgid(&p, 10, ANY, limits(8, 40, 0, 5, 0));
	policy_set_tgid(&p, 10, 8, limits(1, 1, 1, 1, VGPU_LIMIT_DRY_RUN));
	resolve(10, ANY);
	KUNIT_EXPECT_EQ(test, out.limits, 1u);
	expect_limit(test, 0, 7, 0, false);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 2u);
	KUNIT_EXPECT_EQ(test, out.timeslice.min_us, 10ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.max_us, 800ull);
	KUNIT_EXPECT_FALSE(test, out.dry_run);
	policy_drop_tgid(&p, 10);
	policy_set_tgid(&p, 10, 8, limits(3, 0, 0, 0, VGPU_LIMIT_DRY_RUN));
	policy_set_cgroup(&p, 200, 3, limits(4, 0, 0, 0, 0));
	defaults.memory_limit_bytes = 5;
	resolve(10, ANY);		/* neither process nor cgroup may have a policy for that GPU */
	KUNIT_EXPECT_EQ(test, out.limits, 3u);
	expect_limit(test, 0, 3, 0, true);
	expect_limit(test, 1, 4, 200, false);
	expect_limit(test, 2, 5, 0, false);
	policies_clear(&p);
}

static void policy_minors(struct kunit *test)
{
	start();
	policy_set_tgid(&p, 10, ANY, limits(1, 0, 0, 1, 0));
	policy_set_tgid(&p, 10, 5, limits(2, 0, 0, 2, 0));
	policy_set_cgroup(&p, 300, ANY, limits(3, 0, 0, 3, 0));
	policy_set_cgroup(&p, 300, 5, limits(4, 0, 0, 4, 0));
	policy_set_cgroup(&p, 100, 6, limits(5, 0, 0, 5, 0));
	resolve(10, 5);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 2u);
	resolve(10, 6);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 1u);
	resolve(10, ANY);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 1u);
	resolve(11, 5);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 4u);
	KUNIT_EXPECT_EQ(test, out.limits, 1u);
	resolve(11, 6);			/* a near policy for any GPU wins over a far one for the minor */
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 3u);
	KUNIT_EXPECT_EQ(test, out.limits, 2u);
	expect_limit(test, 0, 3, 300, false);
	expect_limit(test, 1, 5, 100, false);
	resolve(11, ANY);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 3u);
	KUNIT_EXPECT_EQ(test, out.limits, 2u);
	expect_limit(test, 0, 3, 300, false);
	expect_limit(test, 1, 5, 100, false);
	policy_clear_tgid(&p, 10, ANY);
	resolve(10, 6);			/* its own policy is for another GPU */
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_CGROUP);
	policies_clear(&p);
}

static void policy_nested(struct kunit *test)
{
	struct policy_subject deep = { .tgid = 1, .cgroups = POLICY_CGROUP_DEPTH + 5 };
	u32 i;

	start();
	policy_set_cgroup(&p, 100, ANY, limits(50 * MIB, 100, 900, 1, VGPU_LIMIT_DRY_RUN));
	policy_set_cgroup(&p, 200, ANY, limits(0, 0, 0, 2, 0));
	policy_set_cgroup(&p, 300, ANY, limits(20 * MIB, 0, 0, 0, 0));
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.cgroup_id, 300ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 0u);	/* only the nearest counts, whatever it says */
	KUNIT_EXPECT_EQ(test, out.timeslice.min_us, 0ull);
	KUNIT_EXPECT_FALSE(test, out.dry_run);
	KUNIT_EXPECT_EQ(test, out.limits, 2u);
	expect_limit(test, 0, 20 * MIB, 300, false);
	expect_limit(test, 1, 50 * MIB, 100, true);
	policy_drop_cgroup(&p, 300);
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.cgroup_id, 200ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.weight, 2u);
	KUNIT_EXPECT_EQ(test, out.limits, 1u);
	policy_drop_cgroup(&p, 200);
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.cgroup_id, 100ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.min_us, 100ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.max_us, 900ull);
	KUNIT_EXPECT_TRUE(test, out.dry_run);
	policy_drop_cgroup(&p, 100);
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_NONE);

	for (i = 0; i < POLICY_CGROUP_DEPTH; i++) {
		deep.cgroup[i] = 1000 + i;
		policy_set_cgroup(&p, 1000 + i, ANY, limits(i + 1, 0, 0, 0, 0));
	}
	policy_resolve(&p, &deep, &defaults, &out);
	KUNIT_EXPECT_EQ(test, out.limits, (u32)POLICY_CGROUP_DEPTH);
	expect_limit(test, POLICY_CGROUP_DEPTH - 1, POLICY_CGROUP_DEPTH, 1000 + POLICY_CGROUP_DEPTH - 1, false);
	policies_clear(&p);
}

static void policy_module_defaults(struct kunit *test)
{
	start();
	defaults = (struct policy_defaults){ 100 * MIB, 1000, 5000, false };
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_MODULE);
	KUNIT_EXPECT_EQ(test, out.limits, 1u);
	expect_limit(test, 0, 100 * MIB, 0, false);
	KUNIT_EXPECT_EQ(test, out.timeslice.min_us, 1000ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.max_us, 5000ull);

	policy_set_cgroup(&p, 300, ANY, limits(0, 2000, 0, 3, 0));
	resolve(10, 0);			/* a policy covers it: the module's limit does not apply, but its bounds do where the policy has none */
	KUNIT_EXPECT_EQ(test, out.limits, 0u);
	KUNIT_EXPECT_EQ(test, out.timeslice.min_us, 2000ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.max_us, 5000ull);
	policy_set_tgid(&p, 10, 0, limits(0, 0, 3000, 0, 0));
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.limits, 0u);
	KUNIT_EXPECT_EQ(test, out.timeslice.min_us, 1000ull);
	KUNIT_EXPECT_EQ(test, out.timeslice.max_us, 3000ull);
	policies_clear(&p);

	defaults = (struct policy_defaults){ 0, 1000, 0, false };
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_MODULE);
	KUNIT_EXPECT_EQ(test, out.limits, 0u);
	defaults = (struct policy_defaults){ 0, 0, 1000, false };
	resolve(10, 0);
	KUNIT_EXPECT_EQ(test, out.scope, VGPU_SCOPE_MODULE);
}

static void policy_dry_run(struct kunit *test)
{
	start();
	policy_set_tgid(&p, 10, ANY, limits(1, 0, 0, 1, VGPU_LIMIT_DRY_RUN));
	policy_set_cgroup(&p, 300, ANY, limits(1, 0, 0, 1, 0));
	resolve(10, 0);
	KUNIT_EXPECT_TRUE(test, out.dry_run);
	expect_limit(test, 0, 1, 0, true);
	resolve(11, 0);
	KUNIT_EXPECT_FALSE(test, out.dry_run);
	expect_limit(test, 0, 1, 300, false);
	defaults.dry_run = true;	/* the module is in a dry run, whatever the policies say */
	resolve(11, 0);
	KUNIT_EXPECT_TRUE(test, out.dry_run);
	expect_limit(test, 0, 1, 300, true);
	policies_clear(&p);
	defaults.memory_limit_bytes = 9;
	resolve(11, 0);
	KUNIT_EXPECT_TRUE(test, out.dry_run);
	expect_limit(test, 0, 9, 0, true);
}

static void add_up(u64 id, u32 minor, const struct vgpu_limits *l, void *context)
{
	u64 *sum = context;

	*sum += id * 1000 + minor * 100 + l->weight;
}

static void policy_listing(struct kunit *test)
{
	u64 sum = 0;

	start();
	policy_each(&p, VGPU_SCOPE_TGID, add_up, &sum);
	KUNIT_EXPECT_EQ(test, sum, 0ull);
	policy_set_tgid(&p, 10, 1, limits(0, 0, 0, 1, 0));
	policy_set_tgid(&p, 11, 2, limits(0, 0, 0, 2, 0));
	policy_set_cgroup(&p, 1ull << 40, 3, limits(0, 0, 0, 3, 0));
	policy_each(&p, VGPU_SCOPE_TGID, add_up, &sum);
	KUNIT_EXPECT_EQ(test, sum, 21303ull);
	sum = 0;
	policy_each(&p, VGPU_SCOPE_CGROUP, add_up, &sum);
	KUNIT_EXPECT_EQ(test, sum, (1000ull << 40) + 303);
	policies_clear(&p);
}

static void policy_without_memory(struct kunit *test)
{
	u32 i;

	start();
	for (i = 1; i <= 2; i++) {
		memory_fail_at = i;
		KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 0, limits(1, 0, 0, 0, 0)), -ENOMEM);
		memory_fail_at = i;
		KUNIT_EXPECT_EQ(test, policy_set_cgroup(&p, 1, 0, limits(1, 0, 0, 0, 0)), -ENOMEM);
		KUNIT_EXPECT_EQ(test, p.tgid.count + p.cgroup.count, 0ull);
	}
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 0, limits(1, 0, 0, 0, 0)), 0);
	memory_fail_at = 1;		/* replacing needs no memory */
	KUNIT_EXPECT_EQ(test, policy_set_tgid(&p, 1, 0, limits(2, 0, 0, 0, 0)), 0);
	policies_clear(&p);
}

static bool binds(bool timeslices)
{
	struct policy_subject s = { 10, ANY, 3, { 300, 200, 100 } };

	return policy_binds(&p, &s, &defaults, timeslices);
}

static void policy_binding(struct kunit *test)
{
	start();
	KUNIT_EXPECT_FALSE(test, binds(false) || binds(true));
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 11, 0, limits(1, 1, 1, 2, 0)), 0);
	KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, 400, 0, limits(1, 1, 1, 2, 0)), 0);
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, 0, limits(0, 0, 0, 1, 0)), 0);
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, 1, limits(1, 1, 1, 2, VGPU_LIMIT_DRY_RUN)), 0);
	KUNIT_EXPECT_FALSE(test, binds(false) || binds(true));		/* of others; none; and one in a dry run */
	KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, 100, 7, limits(1, 0, 0, 0, 0)), 0);
	KUNIT_EXPECT_TRUE(test, binds(false) && !binds(true));
	KUNIT_ASSERT_EQ(test, policy_set_cgroup(&p, 100, 7, limits(0, 0, 0, 2, 0)), 0);
	KUNIT_EXPECT_TRUE(test, !binds(false) && binds(true));
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, 0, limits(0, 5, 0, 0, 0)), 0);
	KUNIT_ASSERT_EQ(test, policy_clear_cgroup(&p, 100, 7), 0);
	KUNIT_EXPECT_TRUE(test, !binds(false) && binds(true));
	KUNIT_ASSERT_EQ(test, policy_set_tgid(&p, 10, 0, limits(0, 0, 5, 0, 0)), 0);
	KUNIT_EXPECT_TRUE(test, !binds(false) && binds(true));
	defaults.memory_limit_bytes = 1;
	KUNIT_EXPECT_TRUE(test, binds(false));
	defaults.dry_run = true;
	KUNIT_EXPECT_FALSE(test, binds(false) || binds(true));
	policies_clear(&p);
	defaults = (struct policy_defaults){ .timeslice_max_us = 1 };
	KUNIT_EXPECT_TRUE(test, !binds(false) && binds(true));
	defaults = (struct policy_defaults){ .timeslice_min_us = 1 };
	KUNIT_EXPECT_TRUE(test, !binds(false) && binds(true));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(policy_checks), KUNIT_CASE(policy_tables), KUNIT_CASE(policy_drops), KUNIT_CASE(policy_max),
	KUNIT_CASE(policy_scopes), KUNIT_CASE(policy_unknown_minor), KUNIT_CASE(policy_minors), KUNIT_CASE(policy_nested),
	KUNIT_CASE(policy_module_defaults), KUNIT_CASE(policy_dry_run), KUNIT_CASE(policy_listing), KUNIT_CASE(policy_binding),
	KUNIT_CASE(policy_without_memory), {}
};
SUITE(policy, cases);
