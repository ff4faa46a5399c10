// SPDX-License-Identifier: GPL-2.0-only
#include "timeslice.h"

u64 timeslice_rewrite(u64 asked_us, const struct timeslice_rule *rule)
{
	u64 us = asked_us;

	if (!us)
		return 0;
	if (rule->weight)
		us = us > U64_MAX / rule->weight ? U64_MAX : us * rule->weight;
	if (us < rule->min_us)
		us = rule->min_us;
	if (rule->max_us && us > rule->max_us)
		us = rule->max_us;
	return us;
}
