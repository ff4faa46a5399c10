/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of fakegpu.ko share. */
#ifndef FAKEGPU_H
#define FAKEGPU_H

/* nvidia.c: the NVIDIA personality. Each is called once; init does nothing and returns 0 where no parameter asks for the personality. */
int fakegpu_nvidia_init(void);
void fakegpu_nvidia_exit(void);

#endif
