// Calls every function with random arguments for a while. The library must access only the memory that it was given:
// pointers are NULL or point to memory that ends where a caller's would, and lengths are not greater.
#include <time.h>

#include "table.h"

static uint64_t state;

// SplitMix64
static uint64_t any(void)
{
	uint64_t x = state += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint32_t below(uint32_t n) { return n == 0 ? 0 : (uint32_t)(any() % n); }
static bool one_in(uint32_t n) { return below(n) == 0; }

static uint64_t scalar(void)
{
	switch (below(8)) {
	case 0:
		return any();
	case 1:
		return (uint64_t)1 << below(64);
	case 2:
		return ((uint64_t)1 << below(64)) - 1;
	case 3:
		return (uint64_t)-1 - below(16);
	case 4:
		return below(1024);
	default:
		return below(24);
	}
}

// Handles that were valid once, of devices and of event sets.
static uint64_t old[64];
static uint32_t nold;

static void outlive(uint64_t handle) { old[nold++ % 64] = handle; }

static uint64_t handle(enum handle_kind kind)
{
	uint64_t good;
	nvmlDevice_t dev = gpu[below(gpus)].dev;
	memcpy(&good, &dev, sizeof good);
	if (kind == EVENT_SET || one_in(16))
		good = handle_of(EVENT_SET);
	switch (below(12)) {
	case 0:
		return one_in(2) ? 0 : any();
	case 1:
		return good + scalar();
	case 2:
		return old[below(64)];
	default:
		return good;
	}
}

static void scribble(char *p, size_t n)
{
	uint32_t kind = below(3);
	for (size_t i = 0; i < n; i++)
		p[i] = kind == 0 ? (char)any() : kind == 1 ? (char)(i % 4 == 0 ? below(8) : 0) : 0;
}

static void text(struct call *c, const struct arg *a)
{
	static const char *const some[] = { "", "GPU-", "0000:53:00.0", "00000000:53:00.0", "MIG-", "%s%n", "\xff\xfe", ":::" };
	char s[256] = { 0 };
	switch (below(4)) {
	case 0:
		scribble(s, below(sizeof s - 1));
		break;
	case 1:
		strcpy(s, some[below(sizeof some / sizeof some[0])]);
		break;
	default:
		strcpy(s, gpu[below(gpus)].uuid);
		if (one_in(2))
			s[below((uint32_t)strlen(s) + 1)] = (char)any();
	}
	strcpy(put(c, a, strlen(s) + 1), s);
}

// In a struct with pointers, these point to enough memory for the small numbers in the struct.
static void structure(struct call *c, const struct arg *a)
{
	static char room[1 << 16];
	char *p = c->memory[a->at];
	size_t n = c->size[a->at], from = a->role == VERSIONED ? sizeof(uint32_t) : 0;
	if (a->npointers == 0) {
		scribble(p + from, n - from);
	} else {
		for (size_t i = from; i + 4 <= n; i += 4)
			p[i] = (char)below(3);
		for (int i = 0; i < a->npointers; i++) {
			void *target = one_in(2) ? room : NULL;
			if (a->pointers[i] + sizeof target <= n)
				memcpy(p + a->pointers[i], &target, sizeof target);
		}
		if (c->list[a->at] != NULL && !one_in(4)) { // a list that ends where a page does
			uint32_t length = below((uint32_t)(c->list_size[a->at] / a->element) + 1);
			put_list(c, a, length);
			if (a->reads)
				scribble(c->list[a->at], c->list_size[a->at]);
		} else {
			c->list[a->at] = NULL;
		}
	}
	if (a->waits)
		put_time(c, a, below(3));
	if (a->stride > 0)
		count_in(a, p, below((uint32_t)((n - a->array) / a->stride) + 1));
	if (a->role == VERSIONED && one_in(6)) {
		uint32_t version = one_in(2) ? (uint32_t)any() : a->versions > 0 ? a->accepts[0].version + below(3) - 1 : 1;
		bool accepted = false;
		for (int i = 0; i < a->versions; i++)
			accepted |= a->accepts[i].version == version;
		if (!accepted) // only the version itself can be read
			memcpy(put(c, a, sizeof version), &version, sizeof version);
	}
}

static void randomise(struct call *c, const struct function *f)
{
	static const uint32_t lengths[] = { 0, 1, 2, 3, 4, 8, 16, 80, 96, 128, 200 };
	struct shape s = { lengths[below(sizeof lengths / sizeof lengths[0])], below(8), one_in(2) };
	make_call(c, f, s);
	for (int i = 0; i < f->nargs; i++) {
		const struct arg *a = &f->args[i];
		switch (a->role) {
		case VALUE:
			c->arg[a->at] = a->waits ? below(3) : scalar();
			break;
		case HANDLE:
			c->arg[a->at] = handle(a->handle);
			break;
		case TEXT:
			text(c, a);
			break;
		case BUFFER:
			c->arg[a->size_at] = one_in(4) ? below(s.length + 1) : s.length;
			break;
		case SIZED:
		case LIST:
			if (one_in(4)) {
				uint32_t fewer = below(s.length + 1);
				memcpy(c->memory[a->size_at], &fewer, sizeof fewer);
			}
			scribble(c->memory[a->at], c->size[a->at]);
			break;
		case SLICE:
			if (one_in(8))
				c->arg[a->size_at] = UINT32_MAX - below(1 << 30); // an impossible number
			scribble(c->memory[a->at], c->size[a->at]);
			break;
		case STRUCT:
		case VERSIONED:
			structure(c, a);
			break;
		case IN:
			scribble(c->memory[a->at], c->size[a->at]);
			break;
		case OUT:
		case FIXED:
		case ALSO:
		case RAW:
			break;
		}
	}
	for (int i = 0; i < f->nparams; i++)
		if (c->memory[i] != NULL && one_in(16))
			c->arg[i] = 0;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void start(void)
{
	ok(nvmlInit_v2());
	learn();
	ok(nvmlEventSetCreate(&event_set));
}

int fuzz(int argc, char **argv)
{
	check(argc == 4);
	state = strtoull(argv[2], NULL, 0);
	double end = seconds() + atof(argv[3]);
	alarm(300 + (unsigned int)atof(argv[3]));
	static struct call c;
	static char reached[1024], succeeded[1024];
	long n = 0, references = 1, all = 0;
	make_rooms();
	start();
	for (; n % 256 != 0 || seconds() < end || all < nfunctions; n++) { // a slow machine takes longer
		uint32_t index = below((uint32_t)nfunctions);
		const struct function *f = &functions[index];
		if (f->life && !one_in(8))
			continue;
		randomise(&c, f);
		remember(&c);
		int got = invoke(&c);
		all += !reached[index];
		reached[index] = 1;
		if (f->args[0].role == RAW && f->nargs > 0)
			continue; // answered in C, and not with a return code
		if (got < 0 || got > 30 || (got == NVML_ERROR_UNINITIALIZED && references > 0))
			fail(__FILE__, __LINE__, "call %ld: %s answers %d", n, f->name, got);
		intact(&c, got);
		if (got != NVML_SUCCESS)
			continue;
		succeeded[index] = 1;
		if (f->life)
			references += strcmp(f->name, "nvmlShutdown") == 0 ? -1 : 1;
		if (strcmp(f->name, "nvmlEventSetFree") == 0) {
			outlive(c.arg[0]);
			if (c.arg[0] == handle_of(EVENT_SET))
				ok(nvmlEventSetCreate(&event_set));
		}
		if (references == 0) {
			for (uint32_t i = 0; i < gpus; i++) {
				uint64_t word;
				memcpy(&word, &gpu[i].dev, sizeof word);
				outlive(word);
			}
			outlive(handle_of(EVENT_SET));
			if (one_in(2)) // calls between nvmlShutdown and the next nvmlInit
				for (int i = 0; i < 100; i++) {
					f = &functions[below((uint32_t)nfunctions)];
					randomise(&c, f);
					if (!f->life && !f->anytime && !(f->nargs > 0 && f->args[0].role == RAW))
						answers(NVML_ERROR_UNINITIALIZED, invoke(&c));
				}
			start();
			references = 1;
		}
	}
	long good = 0;
	for (int i = 0; i < nfunctions; i++)
		good += succeeded[i];
	printf("%ld calls of %ld functions out of %d, of which %ld succeeded at least once\n", n, all, nfunctions, good);
	return 0;
}
