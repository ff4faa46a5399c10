// Every function that a library of one NVML version exports, as described by the generated table.c, and memory for its
// arguments that ends where the library must stop.
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "core.h"

// Older headers do not have this constant.
enum { ARGUMENT_VERSION_MISMATCH = 25 };

// The role of an argument, as in generator/binding.
enum role {
	VALUE,     // a scalar
	HANDLE,    // of a kind below
	TEXT,      // const char *
	OUT,       // T *
	IN,        // T * that is read
	BUFFER,    // char *, and its length by value
	FIXED,     // char * of a documented length
	SIZED,     // bytes, and a pointer to their number
	LIST,      // elements, and a pointer to their number
	ALSO,      // more elements under the number of the list before
	SLICE,     // elements, and their number by value
	STRUCT,    // struct *
	VERSIONED, // struct * that begins with its version
	RAW,       // anything else
};

enum handle_kind { DEVICE, EVENT_SET, GPU_INSTANCE, COMPUTE_INSTANCE, OTHER };

struct accept {
	uint32_t version, size; // the size of the caller's struct of that version
};

struct arg {
	enum role role;
	int at, size_at;          // positions; size_at is -1 where there is no length
	size_t bytes;             // the size of what the pointer points to, or of one element, in this header
	size_t least;             // the smallest size in any header
	enum handle_kind handle;  // of a handle
	bool optional;            // the pointer may be NULL
	bool in_bytes;            // the number of a SLICE counts bytes
	bool waits;               // the VALUE is a time to wait, or the struct has one
	size_t time;              // offset of the time to wait in such a struct
	bool unasked;             // the LIST must have room for all instances that there can be, whatever its number says
	size_t fills, element;    // of a struct that points to a list of the caller's: offset of the pointer, size of an element; 0 without
	size_t room;              // offset of the list's number of elements in such a struct
	bool counts;              // that number becomes what it should be
	bool reads;               // the list is read before it is filled
	const struct accept *accepts;
	int versions;
	const uint32_t *pointers; // offsets of pointers in a struct
	int npointers;
	size_t counted, array, stride; // of a struct that ends in an array: offset of its length, offset and element size of the array
};

struct function {
	const char *name;
	int (*call)(const uint64_t *args);
	int driver;       // the first driver branch that has it
	bool implemented; // not a stub
	bool life;        // starts or ends a generation
	bool anytime;     // is answered before nvmlInit too
	int mig;          // the answer that a MIG device gets whatever else is asked; 0 if it is like that of a GPU
	int nargs, nparams;
	const struct arg *args;
};

extern const struct function functions[];
extern const int nfunctions;

// slot is an entry of the table that nvidia-smi asks for.
void *slot(int number);

// ---- Memory that ends where the library must stop ------------------------------------------------------------------

enum { INSTANCES = 7, ARGS = 16, ROOM = 1 << 20, FILL = 0xa5, CANARY = 64 };

// A room for each argument, one for its length, and one for the list that it points to. After each room comes a page that cannot be
// accessed.
static char *room_end[3 * ARGS];

static inline void make_rooms(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (int i = 0; i < 3 * ARGS; i++) {
		char *room = mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(room != MAP_FAILED && mprotect(room + ROOM, page, PROT_NONE) == 0);
		room_end[i] = room + ROOM;
	}
}

// guarded is memory of exactly that size. A pattern fills it and the bytes before it.
static inline char *guarded(int room, size_t size)
{
	check(size + CANARY <= ROOM);
	char *p = room_end[room] - size;
	memset(p - CANARY, FILL, size + CANARY);
	return p;
}

static inline bool filled(const char *p, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)p[i] != FILL)
			return false;
	return true;
}

// The memory of each argument of make_call: its address, its size and its earlier content.
struct call {
	const struct function *f;
	uint64_t arg[ARGS];
	char *memory[ARGS];
	size_t size[ARGS];
	char before[ARGS][1 << 12];
	char *list[ARGS]; // the list that a struct points to
	size_t list_size[ARGS];
	char list_before[ARGS][1 << 12];
};

// now is the running call.
extern const struct call *volatile now;

static inline int invoke(const struct call *c)
{
	now = c;
	int answer = c->f->call(c->arg);
	now = NULL;
	return answer;
}

// content is the number in each word of a struct; NULL is the pattern.
static const uint32_t *content;

// What a caller provides: the number of bytes or elements, the accepted version, and whether structs have the size of
// this header or the smallest size of any header.
struct shape {
	uint32_t length, version;
	bool least;
};

static nvmlEventSet_t event_set;

// A MIG device and its instances, if there are any. Then functions that want a device get the MIG device.
static bool has_mig;
static nvmlDevice_t mig_device;
static nvmlGpuInstance_t gpu_instance;
static nvmlComputeInstance_t compute_instance;

static inline uint64_t handle_of(enum handle_kind kind)
{
	uint64_t word = 0;
	if (kind == DEVICE)
		memcpy(&word, has_mig ? &mig_device : &gpu[0].dev, sizeof word);
	if (kind == GPU_INSTANCE)
		memcpy(&word, &gpu_instance, sizeof word);
	if (kind == COMPUTE_INSTANCE)
		memcpy(&word, &compute_instance, sizeof word);
	if (kind == EVENT_SET)
		memcpy(&word, &event_set, sizeof word);
	return word;
}

// put makes memory of exactly that size for argument i.
static inline char *put(struct call *c, const struct arg *a, size_t size)
{
	c->memory[a->at] = guarded(a->at, size);
	c->size[a->at] = size;
	c->arg[a->at] = (uint64_t)(uintptr_t)c->memory[a->at];
	return c->memory[a->at];
}

// put_number does the same for the argument's length.
static inline void put_number(struct call *c, const struct arg *a, uint32_t n)
{
	c->memory[a->size_at] = guarded(ARGS + a->at, sizeof n);
	c->size[a->size_at] = sizeof n;
	c->arg[a->size_at] = (uint64_t)(uintptr_t)memcpy(c->memory[a->size_at], &n, sizeof n);
}

static inline void count_in(const struct arg *a, char *p, uint32_t n) { memcpy(p + a->counted, &n, sizeof n); }

// has_list says that a struct of that size points to a list.
static inline bool has_list(const struct arg *a, size_t size)
{
	return a->element > 0 && a->fills + sizeof(void *) <= size && a->room + sizeof(uint32_t) <= size;
}

// put_list lets a struct point to a list of so many elements.
static inline void put_list(struct call *c, const struct arg *a, uint32_t length)
{
	c->list_size[a->at] = length * a->element;
	c->list[a->at] = guarded(2 * ARGS + a->at, c->list_size[a->at]);
	if (a->reads)
		memset(c->list[a->at], 0, c->list_size[a->at]);
	memcpy(c->memory[a->at] + a->fills, &c->list[a->at], sizeof c->list[a->at]);
	memcpy(c->memory[a->at] + a->room, &length, sizeof length);
}

static inline void put_time(struct call *c, const struct arg *a, uint32_t ms) { memcpy(c->memory[a->at] + a->time, &ms, sizeof ms); }

static inline void put_struct(struct call *c, const struct arg *a, size_t size, uint32_t length)
{
	uint32_t n = 0;
	if (a->stride > 0) {
		uint32_t room = (uint32_t)((size - a->array) / a->stride);
		n = length < room ? length : room;
		size = a->array + n * a->stride;
	}
	char *p = put(c, a, size);
	if (a->npointers > 0)
		memset(p, 0, size); // no pattern where the library reads a pointer
	for (size_t at = 0; content != NULL && a->npointers == 0 && at + sizeof *content <= size; at += sizeof *content)
		memcpy(p + at, content, sizeof *content);
	if (a->stride > 0)
		count_in(a, p, n);
	if (has_list(a, size))
		put_list(c, a, length);
	if (a->waits)
		put_time(c, a, 1);
}

static inline void make_call(struct call *c, const struct function *f, struct shape s)
{
	c->f = f;
	memset(c->arg, 0, sizeof c->arg);
	memset(c->memory, 0, sizeof c->memory);
	memset(c->size, 0, sizeof c->size);
	memset(c->list, 0, sizeof c->list);
	for (int i = 0; i < f->nargs; i++) {
		const struct arg *a = &f->args[i];
		size_t bytes = s.least && a->least > 0 ? a->least : a->bytes;
		switch (a->role) {
		case HANDLE:
			c->arg[a->at] = handle_of(a->handle);
			break;
		case TEXT:
			strcpy(put(c, a, strlen(gpu[0].uuid) + 1), gpu[0].uuid);
			break;
		case IN:
			memset(put(c, a, bytes), 0, bytes);
			break;
		case OUT:
			put(c, a, bytes);
			break;
		case FIXED:
			put(c, a, a->least);
			break;
		case STRUCT:
			put_struct(c, a, bytes, s.length);
			break;
		case BUFFER:
			put(c, a, s.length);
			c->arg[a->size_at] = s.length;
			break;
		case SIZED:
			put(c, a, s.length);
			put_number(c, a, s.length);
			break;
		case LIST:
			put(c, a, (a->unasked && s.length < INSTANCES ? INSTANCES : s.length) * bytes);
			put_number(c, a, s.length);
			break;
		case ALSO:
			put(c, a, s.length * bytes);
			break;
		case SLICE:
			put(c, a, s.length * bytes);
			c->arg[a->size_at] = a->in_bytes ? s.length * bytes : s.length;
			break;
		case VERSIONED:
			if (a->versions > 0) {
				const struct accept *v = &a->accepts[s.version % (uint32_t)a->versions];
				put_struct(c, a, v->size > 0 ? v->size : bytes, s.length);
				memcpy(c->memory[a->at], &v->version, sizeof v->version);
			} else {
				put_struct(c, a, bytes, s.length);
			}
			break;
		case VALUE:
		case RAW:
			break;
		}
	}
}

// remember stores the content of the arguments, as far as there is room.
static inline void remember(struct call *c)
{
	for (int i = 0; i < c->f->nparams; i++) {
		if (c->memory[i] != NULL)
			memcpy(c->before[i], c->memory[i], c->size[i] < sizeof c->before[i] ? c->size[i] : sizeof c->before[i]);
		if (c->list[i] != NULL)
			memcpy(c->list_before[i], c->list[i], c->list_size[i] < sizeof c->list_before[i] ? c->list_size[i] : sizeof c->list_before[i]);
	}
}

static inline bool is_number(const struct function *f, int at)
{
	for (int i = 0; i < f->nargs; i++)
		if (f->args[i].size_at == at && (f->args[i].role == LIST || f->args[i].role == SIZED))
			return true;
	return false;
}

// list_inside is the argument at a place, if it is a struct with a list and its number of elements.
static inline const struct arg *list_inside(const struct function *f, int at)
{
	for (int i = 0; i < f->nargs; i++)
		if (f->args[i].at == at && f->args[i].counts)
			return &f->args[i];
	return NULL;
}

// list_intact checks the same of a list that a struct points to, and that nothing is written after the elements that are counted.
static inline void list_intact(const struct call *c, const struct arg *a, int answer)
{
	const char *list = c->list[a->at];
	size_t size = c->list_size[a->at], n = size < sizeof c->list_before[a->at] ? size : sizeof c->list_before[a->at];
	if (!filled(list - CANARY, CANARY))
		fail(__FILE__, __LINE__, "%s writes before the list of argument %d", c->f->name, a->at);
	if (answer != NVML_SUCCESS && memcmp(list, c->list_before[a->at], n) != 0)
		fail(__FILE__, __LINE__, "%s writes to the list of argument %d and answers %d", c->f->name, a->at, answer);
	if (answer == NVML_SUCCESS && a->counts) {
		uint32_t count;
		memcpy(&count, c->memory[a->at] + a->room, sizeof count);
		if (count * a->element > size || !filled(list + count * a->element, size - count * a->element))
			fail(__FILE__, __LINE__, "%s writes other than the %u elements that it counts", c->f->name, count);
	}
}

// intact checks that what no answer may change is unchanged; after an error that includes the arguments. Only the
// number of a list or buffer may change, since it becomes the size that is needed.
static inline void intact(const struct call *c, int answer)
{
	for (int i = 0; i < c->f->nparams; i++) {
		const char *p = c->memory[i];
		if (p == NULL)
			continue;
		if (!filled(p - CANARY, CANARY))
			fail(__FILE__, __LINE__, "%s writes before argument %d", c->f->name, i);
		size_t n = c->size[i] < sizeof c->before[i] ? c->size[i] : sizeof c->before[i];
		const struct arg *a = list_inside(c->f, i);
		if (a != NULL && answer == NVML_ERROR_INSUFFICIENT_SIZE && a->room + sizeof(unsigned) <= n)
			memcpy((char *)c->before[i] + a->room, p + a->room, sizeof(unsigned));
		if (answer != NVML_SUCCESS && memcmp(p, c->before[i], n) != 0 &&
		    !(answer == NVML_ERROR_INSUFFICIENT_SIZE && is_number(c->f, i)))
			fail(__FILE__, __LINE__, "%s writes to argument %d and answers %d", c->f->name, i, answer);
	}
	for (int i = 0; i < c->f->nargs; i++)
		if (c->list[c->f->args[i].at] != NULL)
			list_intact(c, &c->f->args[i], answer);
}

#endif
