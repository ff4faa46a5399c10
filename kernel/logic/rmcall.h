/* SPDX-License-Identifier: GPL-2.0-only */
/* What a call of the driver asks for: reads structures that have been copied from user space. Nothing here follows a pointer of theirs. */
#ifndef LOGIC_RMCALL_H
#define LOGIC_RMCALL_H

#include "portable.h"
#include "../uapi/nvrm.h"

enum rm_kind {
	RM_OTHER = 0,		/* nothing that is accounted or changed */
	RM_ALLOC,
	RM_FREE,
	RM_CONTROL,
	RM_DUP,
	RM_MALFORMED,		/* a known number with a size that the driver refuses */
};

enum rm_memory {
	RM_MEMORY_NONE = 0,	/* an object that is no memory */
	RM_MEMORY_DEVICE,	/* on the GPU: counts against limits */
	RM_MEMORY_SYSTEM,	/* on the host */
	RM_MEMORY_VIRTUAL,	/* a range of addresses */
	RM_MEMORY_KINDS,
};

/*
 * Where the parameters of a call lie in user space and how many bytes of them are wanted, so that the caller can fetch them; 0 if there are
 * none to fetch. Of an allocation that depends on the class alone: the driver does not look at the size that the call gives. Of a control it is
 * that size, which the driver checks against the command's.
 */
struct rm_params { u64 address; u32 bytes; };

struct rm_call {
	enum rm_kind kind;
	u8 escape;		/* NV_ESC_* */
	u32 client, parent, object;	/* object 0, of an allocation: the driver chooses; see rm_result */
	u32 source_client, source_object;	/* RM_DUP */
	u32 code;		/* class or control command */
	bool serialized;	/* FINN: the parameters cannot be read; who enforces refuses what is to be accounted or changed */
	struct rm_params params;
	enum rm_memory memory;	/* RM_ALLOC */
	u64 bytes;		/* RM_ALLOC of memory: as asked for; U64_MAX if it cannot be told */
	u32 device;		/* RM_ALLOC of NV01_DEVICE_0: the device instance; U32_MAX if it cannot be told */
	u32 status_offset;	/* of the status in the structure; 0 if it has none */
};

/* The parts of an ioctl command that the driver looks at. */
static inline u32 rm_escape(u32 cmd) { return cmd & 0xff; }
static inline u32 rm_size(u32 cmd) { return cmd >> 16 & 0x3fff; }

/* Greatest structure that rm_decode wants to see; of a longer one its head is enough. */
#define RM_CALL_BYTES 184

/* Whether the size is one with which the driver takes that number; true for numbers that are not known here. */
bool rm_size_valid(u32 escape, u32 size);
/* Whether a call of that number is of interest: the others need not be copied. */
bool rm_interesting(u32 escape);
/* From the structure, of size bytes, of which min(size, RM_CALL_BYTES) are at arg. */
void rm_decode(u32 escape, u32 size, const void *arg, struct rm_call *call);
/* The greatest number of parameter bytes that rm_decode_params wants. */
#define RM_PARAMS_BYTES 128
/* How many bytes of parameters the driver itself reads of an allocation of that class; 0 where none are wanted here. At most RM_PARAMS_BYTES. */
u32 rm_params_whole(u32 class);
/* Adds what the parameters say: bytes are at params, as many as were asked for by call->params or fewer. */
void rm_decode_params(struct rm_call *call, const void *params, u32 bytes);

struct rm_result { u32 status; u32 object; };
/* From the structure as the driver left it. */
struct rm_result rm_result(u32 escape, u32 size, const void *arg);

/* Which memory a class of RM_ALLOC makes, when attr and flags are as given. */
enum rm_memory rm_memory_of(u32 class, u32 attr, u32 flags);

#endif
