/* SPDX-License-Identifier: GPL-2.0-only */
/* The timeslice that the driver gets in place of the one asked for. */
#ifndef LOGIC_TIMESLICE_H
#define LOGIC_TIMESLICE_H

#include "portable.h"

struct timeslice_rule {
	u32 weight;		/* 0: as 1 */
	u64 min_us, max_us;	/* 0: no bound; where they contradict each other, max wins */
};

/* Microseconds. Multiplication saturates. 0 stays 0: the driver refuses it, as it would have. */
u64 timeslice_rewrite(u64 asked_us, const struct timeslice_rule *rule);

#endif
