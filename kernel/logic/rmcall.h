/* SPDX-License-Identifier: GPL-2.0-only */
/* What a call asks of the driver. It reads structures that were copied from user space, and follows
 * no pointer in them. */
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

/* Where the parameters of a call lie in user space, and how many bytes of them the caller must
 * fetch; 0: none. For an allocation the class decides how many, since the driver ignores the size
 * that the call gives. For a control it is the given size, which the driver compares with the
 * command's. */
struct rm_params { u64 address; u32 bytes; };

struct rm_call {
	enum rm_kind kind;
	u8 escape;		/* NV_ESC_* */
	u32 client, parent, object;	/* object 0, of an allocation: the driver chooses; see rm_result */
	u32 source_client, source_object;	/* RM_DUP */
	u32 code;		/* class or control command */
	bool serialized;	/* FINN: the parameters cannot be read, so a call that must be accounted or changed is refused while enforcing */
	struct rm_params params;
	enum rm_memory memory;	/* RM_ALLOC */
	u64 bytes;		/* RM_ALLOC of memory: the size asked for; U64_MAX if it is not known */
	u32 device;		/* RM_ALLOC of NV01_DEVICE_0: the device instance; U32_MAX if it is not known */
	u32 status_offset;	/* of the status in the structure; 0 if it has none */
};

/* The parts of an ioctl command that the driver looks at. */
static inline u32 rm_escape(u32 cmd) { return cmd & 0xff; }
static inline u32 rm_size(u32 cmd) { return cmd >> 16 & 0x3fff; }

/* The longest structure that rm_decode needs whole. The head of a longer one is enough. */
#define RM_CALL_BYTES 184

/* Whether the driver accepts that number with this size; true for numbers that the module does not
 * know. */
bool rm_size_valid(u32 escape, u32 size);
/* Whether the module looks at calls of that number. It need not copy the others. */
bool rm_interesting(u32 escape);
/* Reads the structure of size bytes; arg holds its first min(size, RM_CALL_BYTES). */
void rm_decode(u32 escape, u32 size, const void *arg, struct rm_call *call);
/* The most bytes of parameters that rm_decode_params needs. */
#define RM_PARAMS_BYTES 128
/* How many bytes of parameters the driver reads for an allocation of that class, at most
 * RM_PARAMS_BYTES; 0 if the module needs none of them. */
u32 rm_params_whole(u32 class);
/* Adds what the parameters say. params holds that many bytes: as many as call->params asks for, or
 * fewer. */
void rm_decode_params(struct rm_call *call, const void *params, u32 bytes);

struct rm_result { u32 status; u32 object; };
/* Reads the structure as the driver left it. */
struct rm_result rm_result(u32 escape, u32 size, const void *arg);

/* Which memory a class of RM_ALLOC makes, when attr and flags are as given. */
enum rm_memory rm_memory_of(u32 class, u32 attr, u32 flags);

#endif
