// Calls every implemented function with valid arguments in memory that ends where the caller's does, so that reading or
// writing one byte too many faults.
#include "table.h"

static const uint32_t scalars[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 63, 64, 255, 256, 0xffff, INT32_MAX, UINT32_MAX };
enum { NSCALARS = sizeof scalars / sizeof scalars[0] };

static char answered[1024];

static bool takes(const struct function *f, enum role role)
{
	for (int i = 0; i < f->nargs; i++)
		if (f->args[i].role == role)
			return true;
	return false;
}

// takes_list says that a function takes a struct that points to a list.
static bool takes_list(const struct function *f)
{
	for (int i = 0; i < f->nargs; i++)
		if (f->args[i].element > 0)
			return true;
	return false;
}

static int branch;

static bool there(const struct function *f) { return f->driver <= branch; }

// ends checks that a text ends inside its buffer.
static void ends(const struct call *c)
{
	for (int i = 0; i < c->f->nargs; i++) {
		const struct arg *a = &c->f->args[i];
		if ((a->role == BUFFER || a->role == FIXED) && memchr(c->memory[a->at], 0, c->size[a->at]) == NULL)
			fail(__FILE__, __LINE__, "%s does not end its text within %zu bytes", c->f->name, c->size[a->at]);
	}
}

static long one(const struct function *f, struct shape s, const uint64_t *values)
{
	static struct call c;
	make_call(&c, f, s);
	for (int i = 0, v = 0; i < f->nargs; i++)
		if (f->args[i].role == VALUE)
			c.arg[f->args[i].at] = f->args[i].waits ? values[v] % 2 : values[v++ % 2];
	remember(&c);
	int got = invoke(&c);
	if (got < 0 || got > 30 || got == NVML_ERROR_UNINITIALIZED)
		fail(__FILE__, __LINE__, "%s answers %d", f->name, got);
	intact(&c, got);
	if (has_mig && f->mig != 0 && there(f) && got != f->mig)
		fail(__FILE__, __LINE__, "%s with a MIG device answers %d, want %d", f->name, got, f->mig);
	if (got == NVML_SUCCESS) {
		ends(&c);
		answered[f - functions] = 1;
	}
	return 1;
}

static long every_shape(const struct function *f, const uint64_t *values, bool all_lengths)
{
	static const uint32_t lengths[] = { 0, 1, 2, 3, 7, 8, 16, 64, 200 };
	long n = 0;
	int versions = 1;
	for (int i = 0; i < f->nargs; i++)
		if (f->args[i].versions > versions)
			versions = f->args[i].versions;
	for (int version = 0; version < versions; version++)
		for (int least = 0; least < 2; least++) {
			struct shape s = { .version = (uint32_t)version, .least = least };
			if (all_lengths)
				for (s.length = 0; s.length < 140; s.length++)
					n += one(f, s, values);
			else if (takes(f, LIST) || takes(f, SIZED) || takes(f, SLICE) || takes(f, ALSO) || takes(f, BUFFER) || takes_list(f))
				for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
					s.length = lengths[i];
					n += one(f, s, values);
				}
			else
				n += one(f, s, values);
		}
	return n;
}

static long every_value(const struct function *f)
{
	long n = 0;
	int scalars_of_f = 0;
	for (int i = 0; i < f->nargs; i++)
		scalars_of_f += f->args[i].role == VALUE;
	for (int i = 0; i < (scalars_of_f > 0 ? NSCALARS : 1); i++)
		for (int j = 0; j < (scalars_of_f > 1 ? NSCALARS : 1); j++)
			n += every_shape(f, (uint64_t[]){ scalars[i], scalars[j] }, false);
	if (takes(f, BUFFER))
		n += every_shape(f, (uint64_t[]){ 0, 0 }, true);
	static const uint32_t numbers[] = { 0, 1, 2, 64 }; // which a struct may ask for
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !answered[f - functions] && (takes(f, STRUCT) || takes(f, VERSIONED)); i++) {
		content = &numbers[i];
		n += every_shape(f, (uint64_t[]){ 0, 0 }, false);
	}
	content = NULL;
	return n;
}

// learn_again replaces a handle that a call may have made stale.
static void learn_again(void)
{
	learn();
	ok(nvmlEventSetCreate(&event_set));
}

// cut makes a MIG device of the first GPU, and its instances, if a call has removed them.
static void cut(void)
{
	nvmlDevice_t whole = gpu[0].dev;
	nvmlReturn_t activation;
	nvmlGpuInstanceInfo_t info;
	if (has_mig && nvmlGpuInstanceGetInfo(gpu_instance, &info) == NVML_SUCCESS &&
	    nvmlDeviceGetMigDeviceHandleByIndex(whole, 0, &mig_device) == NVML_SUCCESS)
		return;
	ok(nvmlDeviceSetMigMode(whole, NVML_DEVICE_MIG_DISABLE, &activation)); // without any instance
	ok(nvmlDeviceSetMigMode(whole, NVML_DEVICE_MIG_ENABLE, &activation));
	ok(nvmlDeviceCreateGpuInstance(whole, 9, &gpu_instance)); // 3g
	ok(nvmlGpuInstanceCreateComputeInstance(gpu_instance, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &compute_instance));
	ok(nvmlDeviceGetMigDeviceHandleByIndex(whole, 0, &mig_device));
	has_mig = true;
}

static bool among(const char *name, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

// guards calls those functions of the names, or all if there are none.
int guards(bool mig, char **names, int nnames)
{
	char version[80];
	long n = 0, implemented = 0, successes = 0;
	make_rooms();
	ok(nvmlInit_v2());
	ok(nvmlSystemGetDriverVersion(version, sizeof version));
	branch = atoi(version);
	for (const struct function *f = functions; f < functions + nfunctions; f++) {
		check((size_t)(f - functions) < sizeof answered);
		if (!f->implemented || f->life || (f->nargs > 0 && takes(f, RAW)) || (nnames > 0 && !among(f->name, names, nnames)))
			continue;
		learn_again();
		if (mig)
			cut();
		n += every_value(f);
		implemented++;
		successes += answered[f - functions];
		printf("%s: %s\n", answered[f - functions] ? "answers" : "refuses", f->name);
	}
	printf("%ld calls of %ld functions, of which %ld succeeded\n", n, implemented, successes);
	return 0;
}
