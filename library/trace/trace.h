/* The library that nvmlfab trace puts in front of a libnvidia-ml.so.1. It exports the same functions, writes a line for each
 * call, and counts. It needs no nvml.h and nothing of nvmlfab's own library, so it works with NVIDIA's too. */
#ifndef NVMLFAB_TRACE_H
#define NVMLFAB_TRACE_H

#include <stdatomic.h>
#include <stdint.h>

/* ---- What the generator knows about NVML ----------------------------------------------------------------------------- */

enum kind { SIGNED, UNSIGNED, REAL, CHAR, ENUM, STRUCT, UNION, POINTER };

struct value {
    const char *name;
    int64_t value;
};

/* A member of a struct or union. count is the length of an array, 0 if it is none. choice is for a union: the number of
 * the sibling, counted from 1, that says which member of the union counts. */
struct field {
    const char *name;
    uint32_t offset;
    uint16_t type, count;
    uint8_t choice;
};

struct type {
    uint8_t kind;
    uint32_t size;
    uint16_t count; /* of values or fields; what a pointer points to is its only field */
    const struct value *values;
    const struct field *fields;
};

/* What a parameter is. The names are those of the generator's roles. */
enum role { VALUE, TEXT, IN, OUT, BUFFER, FIXED, SIZED, BYTES, COUNT, LIST, SLICE, RECORD, GUID, WORD };

struct param {
    const char *name;
    uint16_t type;     /* of what is passed, or of what it points to */
    uint8_t role;
    uint8_t size;      /* the number of the parameter with the length or the count, from 1 */
    uint8_t in_bytes;  /* the count is one of bytes */
    uint8_t versioned; /* the struct begins with its version */
    uint8_t tells;     /* the struct tells the function something, so it is shown after a failure too */
    uint8_t fills, room, counted; /* fields of a struct, from 1: a pointer to an array, its length, that of the last member */
    uint32_t extent; /* the bytes of one element that the caller is known to have */
};

#define PARAM(n, t, ...) {.name = n, .type = t, .role = __VA_ARGS__}

struct function {
    const char *name;
    uint8_t count;
    uint8_t text; /* it returns a string, not a code */
    const struct param *params;
};

#define TRACE_FUNCTIONS 1024 /* more than there are numbers of functions */
#define TRACE_SLOTS 256

extern const struct type trace_types[];
extern const uint16_t trace_return; /* the type nvmlReturn_t */
extern const struct function trace_functions[TRACE_FUNCTIONS];
extern const struct function trace_slots[TRACE_SLOTS];

/* ---- What all processes of a trace share ------------------------------------------------------------------------------ */

#define TRACE_CODES 32

/* A function's counts. The last of codes stands for all codes from 31 on. */
struct entry {
    uint64_t stub; /* the library only answers that it is not supported */
    _Atomic uint64_t calls, ended, ns, longest;
    _Atomic uint64_t codes[TRACE_CODES];
};

/* nvmlfab makes the file, and reads it at the end. cmd/nvmlfab/summary.go has the same struct. */
struct shared {
    uint64_t magic;
    uint64_t json;
    uint64_t device, file; /* what the link to the output leads to */
    _Atomic uint64_t processes;
    _Atomic uint64_t lost; /* lines that could not be written */
    _Atomic uint64_t error; /* the errno of the last of them */
    struct entry entry[TRACE_FUNCTIONS + TRACE_SLOTS];
};

#define TRACE_MAGIC UINT64_C(0x3165636172746e66)

/* ---- The call --------------------------------------------------------------------------------------------------------- */

/* An argument is an integer or a pointer, so a word holds it. No function of nvml.h has more than eight; of nvidia-smi's table
 * nobody knows. */
typedef uint64_t word;
#define TRACE_WORDS 10

/* Calls a function of the library after this one, writes the line, and counts. */
word trace_call(unsigned index, const word *args);

/* The same for nvmlInternalGetExportTable, whose table is replaced by one that leads here. */
word trace_export_table(unsigned index, const word *args);

#define TRACED(number, name, call) \
    __attribute__((visibility("default"))) word name(word a, word b, word c, word d, word e, word f, word g, word h) \
    { \
        return call(number, (const word[TRACE_WORDS]){a, b, c, d, e, f, g, h, 0, 0}); \
    }

/* ---- The line --------------------------------------------------------------------------------------------------------- */

#define COPY_OF_STRUCT (16 << 10)
#define COPY_OF_ELEMENT (8 << 10)

struct out {
    char *text;
    unsigned char *copy; /* room for a copy of what the caller has, COPY_OF_STRUCT and COPY_OF_ELEMENT bytes */
    uint32_t size, room;
    uint8_t json, cut;
};

#define TRACE_PARAMS 8

/* A line while it is made: one part for each parameter, in any order. */
struct line {
    struct out out;
    struct {
        uint32_t from, to;
    } part[TRACE_PARAMS];
};

/* Write what is known of the arguments before and after the call. */
void trace_before(struct line *l, const struct function *f, const word *args);
void trace_after(struct line *l, const struct function *f, const word *args, word result);

/* Puts the line together. */
void trace_finish(struct line *l, struct out *to, const struct function *f, int pid, int tid, word result, uint64_t ns, int stub);

#endif
