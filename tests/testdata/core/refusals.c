// Calls every function with invalid arguments, and compares the answers with the documented ones.
#include "table.h"

// Large enough for every text and every list.
static const struct shape ample = { .length = 128 };

static int driver_branch(void)
{
	char version[80];
	ok(nvmlSystemGetDriverVersion(version, sizeof version));
	return atoi(version);
}

static int branch;

static bool there(const struct function *f) { return f->driver <= branch; }

static void expect(const struct call *c, int got, int want, const char *what, int position)
{
	if (got != want)
		fail(__FILE__, __LINE__, "%s with %s in position %d answers %d, want %d", c->f->name, what, position, got, want);
}

static bool is_pointer(const struct function *f, int position, const struct arg **arg)
{
	for (int i = 0; i < f->nargs; i++) {
		const struct arg *a = &f->args[i];
		*arg = a;
		if (a->at == position)
			return a->role != VALUE;
		if (a->size_at == position)
			return a->role == LIST || a->role == SIZED;
	}
	return false;
}

// of_instance says that a function wants a handle of an instance.
static bool of_instance(const struct function *f)
{
	for (int i = 0; i < f->nargs; i++)
		if (f->args[i].role == HANDLE && f->args[i].handle >= GPU_INSTANCE)
			return true;
	return false;
}

// The answer to NULL in one position; -1 if several answers are right.
static int answer_to_null(const struct function *f, const struct arg *a, int position)
{
	if (!there(f))
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	if (!f->implemented)
		return NVML_ERROR_NOT_SUPPORTED;
	if (of_instance(f))
		return NVML_ERROR_INVALID_ARGUMENT; // there is no such handle
	if (position == a->at && (a->optional || a->role == LIST || a->role == ALSO || a->role == SIZED))
		return -1;
	return NVML_ERROR_INVALID_ARGUMENT;
}

static bool documented(int answer)
{
	return answer >= 0 && answer <= 30 && answer != NVML_ERROR_UNINITIALIZED && answer != NVML_ERROR_LIBRARY_NOT_FOUND;
}

static long nulls(bool initialised)
{
	long n = 0;
	static struct call c;
	for (const struct function *f = functions; f < functions + nfunctions; f++) {
		const struct arg *a;
		for (int position = 0; position < f->nparams && !f->life; position++) {
			if (!is_pointer(f, position, &a) || a->role == RAW)
				continue;
			make_call(&c, f, ample);
			c.arg[position] = 0;
			remember(&c);
			int got = invoke(&c);
			int want = initialised || f->anytime ? answer_to_null(f, a, position) : NVML_ERROR_UNINITIALIZED;
			if (want >= 0)
				expect(&c, got, want, "NULL", position);
			else if (!documented(got))
				fail(__FILE__, __LINE__, "%s with NULL in position %d answers %d", f->name, position, got);
			if (got != NVML_SUCCESS)
				intact(&c, got);
			n++;
		}
		if (!initialised && f->nparams == 0 && !f->life)
			answers(NVML_ERROR_UNINITIALIZED, f->call(NULL));
	}
	return n;
}

// Passes every kind of invalid value for a handle.
static long handles(uint64_t stale_device, uint64_t stale_set, int want)
{
	static long foreign[32];
	long n = 0;
	static struct call c;
	for (const struct function *f = functions; f < functions + nfunctions; f++)
		for (int i = 0; i < f->nargs; i++) {
			const struct arg *a = &f->args[i];
			if (a->role != HANDLE || !f->implemented || !there(f))
				continue;
			uint64_t good = handle_of(a->handle), other = handle_of(a->handle == DEVICE ? EVENT_SET : DEVICE);
			const uint64_t none[] = {
				0, 1, 2, 7, 8, 16, 4096, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, (uint64_t)(uintptr_t)foreign,
				(uint64_t)(uintptr_t)&foreign[16], good + 1, good + 8, good - 8, good + 15, good ^ (uint64_t)1 << 40,
				good + (1 << 20), good + ((uint64_t)1 << 28), good - (good & 0xfffff), other, stale_device, stale_set,
			};
			for (size_t k = 0; k < sizeof none / sizeof none[0]; k++) {
				make_call(&c, f, ample);
				c.arg[a->at] = none[k];
				remember(&c);
				int got = invoke(&c);
				if (got != want)
					fail(__FILE__, __LINE__, "%s with the handle %#lx (number %zu) answers %d, want %d", f->name,
					     (long)none[k], k, got, want);
				intact(&c, got);
				n++;
			}
		}
	return n;
}

// Passes versions that a struct does not have. The library may read only the version, since nothing else is known to be
// there.
static long versions(void)
{
	long n = 0;
	static struct call c;
	for (const struct function *f = functions; f < functions + nfunctions; f++)
		for (int i = 0; i < f->nargs; i++) {
			const struct arg *a = &f->args[i];
			if (a->role != VERSIONED || !f->implemented || !there(f) || (has_mig ? f->mig != 0 : of_instance(f)))
				continue;
			for (int v = 0; v < a->versions; v++) {
				uint32_t good = a->accepts[v].version;
				const uint32_t wrong[] = { 0, good + 1, good - 1, good + (1 << 24), good - (1 << 24), good ^ 1u << 31,
					                   good & 0xffffff, good >> 24, UINT32_MAX };
				for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
					bool right = false;
					for (int w = 0; w < a->versions; w++)
						right |= wrong[k] == a->accepts[w].version;
					if (right)
						continue;
					make_call(&c, f, ample);
					memcpy(put(&c, a, sizeof wrong[k]), &wrong[k], sizeof wrong[k]);
					remember(&c);
					int got = invoke(&c);
					if (got != ARGUMENT_VERSION_MISMATCH)
						fail(__FILE__, __LINE__, "%s with version %#x answers %d", f->name, wrong[k], got);
					intact(&c, got);
					n++;
				}
			}
		}
	return n;
}

// lists passes structs whose list is NULL, although they count elements in it.
static long lists(void)
{
	long n = 0;
	static struct call c;
	for (const struct function *f = functions; f < functions + nfunctions; f++)
		for (int i = 0; i < f->nargs; i++) {
			const struct arg *a = &f->args[i];
			if (a->element == 0 || !f->implemented || !there(f))
				continue;
			make_call(&c, f, ample);
			memset(c.memory[a->at] + a->fills, 0, sizeof(void *));
			remember(&c);
			int got = invoke(&c);
			if (!documented(got) || (a->reads && got != NVML_ERROR_INVALID_ARGUMENT && got != NVML_ERROR_NOT_SUPPORTED))
				fail(__FILE__, __LINE__, "%s with a list that is NULL answers %d", f->name, got);
			if (got != NVML_SUCCESS)
				intact(&c, got);
			n++;
		}
	return n;
}

int refusals(void)
{
	make_rooms();
	strcpy(gpu[0].uuid, "GPU-00000000-0000-0000-0000-000000000000");
	branch = INT32_MAX;
	long before = nulls(false);
	before += handles(8, 16, NVML_ERROR_UNINITIALIZED);

	ok(nvmlInit_v2());
	branch = driver_branch();
	learn();
	ok(nvmlEventSetCreate(&event_set));
	uint64_t device = handle_of(DEVICE), set = handle_of(EVENT_SET);
	ok(nvmlShutdown());
	before += nulls(false);
	before += handles(device, set, NVML_ERROR_UNINITIALIZED);

	ok(nvmlInit_v2());
	learn();
	ok(nvmlEventSetCreate(&event_set));
	printf("%ld calls before nvmlInit, ", before);
	printf("%ld with NULL, ", nulls(true));
	printf("%ld with handles that are none, ", handles(device, set, NVML_ERROR_INVALID_ARGUMENT));
	printf("%ld with lists that are NULL, ", lists());
	printf("%ld with versions that are none\n", versions());
	return 0;
}
