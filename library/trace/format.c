/* How a call becomes a line of text or of JSON. Nothing here locks or allocates, since a signal handler may call NVML. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "trace.h"

#define MOST_ELEMENTS 32
#define MOST_TEXT 256

/* What is kept of a line's room so that it can be closed where it is cut: quotes and brackets, and before each value the room
 * for a number or a name too. */
#define ROOM_TO_CLOSE 64
#define ROOM_FOR_ONE 256

/* ---- Output ------------------------------------------------------------------------------------------------------------ */

static void put(struct out *o, const char *text, size_t n)
{
    if (n > o->room - o->size) {
        o->cut = 1;
        return;
    }
    memcpy(o->text + o->size, text, n);
    o->size += (uint32_t)n;
}

static void puts_(struct out *o, const char *text) { put(o, text, strlen(text)); }

static void number(struct out *o, uint64_t v, int negative)
{
    char digits[24], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    if (negative)
        *--at = '-';
    put(o, at, (size_t)(digits + sizeof digits - at));
}

static void hex(struct out *o, uint64_t v)
{
    char digits[24], *at = digits + sizeof digits;
    if (o->json)
        *--at = '"';
    do
        *--at = "0123456789abcdef"[v % 16];
    while ((v /= 16) != 0);
    *--at = 'x';
    *--at = '0';
    if (o->json)
        *--at = '"';
    put(o, at, (size_t)(digits + sizeof digits - at));
}

static void pointer(struct out *o, uint64_t v)
{
    if (v == 0)
        puts_(o, o->json ? "null" : "NULL");
    else
        hex(o, v);
}

/* A string between quotes. Bytes that are not printable ASCII are escaped, so that a line is a line and JSON is UTF-8. */
static void quoted(struct out *o, const char *text, size_t n)
{
    put(o, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        if (o->room - o->size < ROOM_TO_CLOSE + sizeof escape) {
            o->cut = 1;
            break;
        }
        if (c == '"' || c == '\\')
            put(o, (char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            puts_(o, "\\n");
        else if (c >= ' ' && c < 0x7f)
            put(o, text + i, 1);
        else
            put(o, escape, (size_t)snprintf(escape, sizeof escape, o->json ? "\\u%04x" : "\\%03o", c));
    }
    put(o, "\"", 1);
}

/* A name that the generator wrote. */
static void name(struct out *o, const char *text)
{
    if (o->json)
        put(o, "\"", 1);
    puts_(o, text);
    if (o->json)
        put(o, "\"", 1);
}

static void key(struct out *o, const char *text)
{
    name(o, text);
    put(o, o->json ? ":" : "=", 1);
}

/* ---- Memory of the caller ---------------------------------------------------------------------------------------------- */

/* Copies memory that may not be there. Answers whether it is. */
static int fetch(void *to, uint64_t from, size_t n)
{
    struct iovec here = {to, n}, there = {(void *)(uintptr_t)from, n};
    if (from == 0)
        return 0;
    ssize_t got = (ssize_t)syscall(SYS_process_vm_readv, (int)syscall(SYS_getpid), &here, 1UL, &there, 1UL, 0UL);
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) { /* a sandbox forbids it */
        memcpy(to, (void *)(uintptr_t)from, n);
        return 1;
    }
    return got == (ssize_t)n;
}

/* A string that ends at a NUL or after room bytes, whichever comes first. */
static void text_at(struct out *o, uint64_t from, size_t room)
{
    char text[MOST_TEXT];
    size_t n = 0;
    if (from == 0) {
        pointer(o, from);
        return;
    }
    while (n < room && n < sizeof text) { /* not beyond the page, whose neighbour may not be there */
        size_t part = 4096 - (from + n) % 4096;
        part = part < room - n ? part : room - n;
        part = part < sizeof text - n ? part : sizeof text - n;
        if (!fetch(text + n, from + n, part))
            break;
        char *end = memchr(text + n, 0, part);
        if (end != NULL) {
            quoted(o, text, (size_t)(end - text));
            return;
        }
        n += part;
    }
    if (n == 0) {
        pointer(o, from);
        return;
    }
    quoted(o, text, n);
    if (!o->json && n == sizeof text)
        puts_(o, "...");
}

/* ---- Values ------------------------------------------------------------------------------------------------------------ */

/* An integer of up to eight bytes; memory beyond it may follow. */
static uint64_t integer(const struct type *t, const void *at)
{
    uint64_t v = 0;
    memcpy(&v, at, t->size < sizeof v ? t->size : sizeof v);
    int spare = 64 - 8 * (int)t->size;
    if (t->kind != UNSIGNED && spare > 0 && t->kind != POINTER)
        v = (uint64_t)((int64_t)(v << spare) >> spare);
    return v;
}

static void enumerator(struct out *o, const struct type *t, int64_t v)
{
    for (unsigned i = 0; i < t->count; i++)
        if (t->values[i].value == v) {
            name(o, t->values[i].name);
            return;
        }
    number(o, v < 0 ? -(uint64_t)v : (uint64_t)v, v < 0);
}

static void value_at(struct out *o, const struct type *t, const unsigned char *at, size_t known, const struct param *p);

static void elements(struct out *o, const struct type *t, const unsigned char *at, size_t count, size_t apart)
{
    if (t->kind == CHAR) {
        quoted(o, (const char *)at, strnlen((const char *)at, count));
        return;
    }
    if (t->kind == UNSIGNED && t->size == 1) {
        if (o->json)
            put(o, "\"", 1);
        for (size_t i = 0; i < count && i < MOST_ELEMENTS; i++)
            put(o, (char[]){"0123456789abcdef"[at[i] / 16], "0123456789abcdef"[at[i] % 16]}, 2);
        if (count > MOST_ELEMENTS)
            puts_(o, "...");
        if (o->json)
            put(o, "\"", 1);
        return;
    }
    put(o, "[", 1);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            puts_(o, o->json ? "," : ", ");
        if (i == MOST_ELEMENTS || o->room - o->size < ROOM_FOR_ONE) {
            puts_(o, o->json ? "\"...\"" : "...");
            break;
        }
        value_at(o, t, at + i * apart, apart, NULL);
    }
    put(o, "]", 1);
}

/* The elements of an array of the caller's, copied in parts. */
static void array_at(struct out *o, const struct type *t, uint64_t from, size_t count, size_t apart)
{
    unsigned char *copy = o->copy + COPY_OF_STRUCT;
    if (from == 0 || apart == 0) {
        pointer(o, from);
        return;
    }
    if ((t->kind == UNSIGNED && t->size == 1) || t->kind == CHAR) {
        size_t n = count < MOST_ELEMENTS + 1 ? count : MOST_ELEMENTS + 1;
        if (fetch(copy, from, n))
            elements(o, t, copy, n, 1);
        else
            pointer(o, from);
        return;
    }
    put(o, "[", 1);
    for (size_t i = 0; i < count; i++) {
        size_t n = apart < COPY_OF_ELEMENT ? apart : COPY_OF_ELEMENT;
        if (i > 0)
            puts_(o, o->json ? "," : ", ");
        if (i == MOST_ELEMENTS || o->room - o->size < ROOM_FOR_ONE) {
            puts_(o, o->json ? "\"...\"" : "...");
            break;
        }
        if (fetch(copy, from + i * apart, n))
            value_at(o, t, copy, n, NULL);
        else
            pointer(o, from + i * apart);
    }
    put(o, "]", 1);
}

/* nvmlValueType_t says which member of an nvmlValue_t counts; the members have another order. */
static unsigned chosen(const struct type *t, int64_t type)
{
    static const char *const member[] = {"dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"};
    for (unsigned i = 0; i < t->count; i++)
        if (type >= 0 && type < (int64_t)(sizeof member / sizeof member[0]) && strcmp(t->fields[i].name, member[type]) == 0)
            return i;
    return t->count;
}

static void structure(struct out *o, const struct type *t, const unsigned char *at, size_t known, const struct param *p)
{
    int first = 1;
    put(o, "{", 1);
    for (unsigned i = 0; i < t->count; i++) {
        const struct field *f = &t->fields[i];
        const struct type *of = &trace_types[f->type];
        size_t n = (size_t)of->size * (f->count > 0 ? f->count : 1), count = f->count;
        if (f->offset + n > known) {
            if (f->count == 0 || f->offset >= known)
                break;
            count = (known - f->offset) / of->size;
        }
        if (o->room - o->size < ROOM_FOR_ONE) {
            o->cut = 1;
            break;
        }
        if (!first)
            puts_(o, o->json ? "," : ", ");
        first = 0;
        key(o, f->name);
        if (p != NULL && p->counted > 0 && i == (unsigned)t->count - 1) {
            const struct field *c = &t->fields[p->counted - 1];
            uint64_t most = integer(&trace_types[c->type], at + c->offset);
            count = most < count ? most : count;
        }
        if (p != NULL && p->fills == i + 1) {
            const struct field *room = &t->fields[p->room - 1];
            uint64_t where = integer(of, at + f->offset), elements = integer(&trace_types[room->type], at + room->offset);
            const struct type *element = of->fields != NULL ? &trace_types[of->fields->type] : of;
            array_at(o, element, where, elements, element->size);
        } else if (f->choice > 0 && f->count == 0) {
            const struct field *c = &t->fields[f->choice - 1];
            unsigned member = chosen(of, (int64_t)integer(&trace_types[c->type], at + c->offset));
            if (member < of->count)
                value_at(o, &trace_types[of->fields[member].type], at + f->offset, of->size, NULL);
            else
                value_at(o, of, at + f->offset, of->size, NULL);
        } else if (f->count > 0)
            elements(o, of, at + f->offset, count, of->size);
        else if (i == 0 && strcmp(f->name, "version") == 0)
            hex(o, integer(of, at));
        else
            value_at(o, of, at + f->offset, of->size, NULL);
    }
    put(o, "}", 1);
}

static void value_at(struct out *o, const struct type *t, const unsigned char *at, size_t known, const struct param *p)
{
    switch (t->kind) {
    case STRUCT:
    case UNION:
        structure(o, t, at, known, p);
        break;
    case POINTER:
        pointer(o, integer(t, at));
        break;
    case ENUM:
        enumerator(o, t, (int64_t)integer(t, at));
        break;
    case REAL: {
        double v;
        char text[32];
        memcpy(&v, at, sizeof v);
        int n = snprintf(text, sizeof text, "%.9g", v);
        if (o->json && (v != v || v - v != 0)) /* JSON has neither infinities nor NaN */
            quoted(o, text, (size_t)n);
        else
            put(o, text, (size_t)n);
        break;
    }
    case UNSIGNED:
        number(o, integer(t, at), 0);
        break;
    default: {
        int64_t v = (int64_t)integer(t, at);
        number(o, v < 0 ? -(uint64_t)v : (uint64_t)v, v < 0);
    }
    }
}

/* What a pointer of the caller's points to. */
static void target(struct out *o, const struct param *p, uint64_t from, size_t known, int version_only)
{
    const struct type *t = &trace_types[p->type];
    uint32_t version = 0;
    if (p->versioned) {
        if (!fetch(&version, from, sizeof version)) {
            pointer(o, from);
            return;
        }
        size_t says = version & 0xffffff;
        if (says >= 8 && says <= t->size)
            known = says;
    }
    if (version_only) {
        put(o, "{", 1);
        key(o, "version");
        hex(o, version);
        puts_(o, o->json ? "}" : ", ...}");
        return;
    }
    if (known == 0 || known > t->size)
        known = t->size;
    if (known > COPY_OF_STRUCT)
        known = COPY_OF_STRUCT;
    if (fetch(o->copy, from, known))
        value_at(o, t, o->copy, known, p);
    else
        pointer(o, from);
}

/* ---- Parameters -------------------------------------------------------------------------------------------------------- */

/* Answers whether there is room for a parameter. */
static int begin(struct line *l, unsigned i)
{
    l->part[i].from = l->part[i].to = l->out.size;
    if (l->out.room - l->out.size >= ROOM_FOR_ONE)
        return 1;
    l->out.cut = 1;
    return 0;
}

static void end(struct line *l, unsigned i) { l->part[i].to = l->out.size; }

void trace_before(struct line *l, const struct function *f, const word *args)
{
    for (unsigned i = 0; i < f->count; i++) {
        const struct param *p = &f->params[i];
        if (p->role != VALUE && p->role != TEXT && p->role != IN && p->role != GUID && p->role != WORD)
            continue;
        if (!begin(l, i))
            continue;
        if (p->role == VALUE)
            value_at(&l->out, &trace_types[p->type], (const unsigned char *)&args[i], sizeof(word), NULL);
        else if (p->role == WORD)
            hex(&l->out, args[i]);
        else if (p->role == TEXT)
            text_at(&l->out, args[i], MOST_TEXT);
        else if (args[i] == 0)
            pointer(&l->out, 0);
        else if (p->role == GUID)
            array_at(&l->out, &trace_types[p->type], args[i], 16, 1);
        else
            target(&l->out, p, args[i], p->extent, 0);
        end(l, i);
    }
}

/* A count at a pointer, or passed as it is. */
static uint64_t counted(const struct function *f, unsigned param, const word *args)
{
    uint32_t n = 0;
    if (f->params[param].role == COUNT || f->params[param].role == OUT)
        return fetch(&n, args[param], sizeof n) ? n : 0;
    return (uint32_t)args[param];
}

enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7 };

void trace_after(struct line *l, const struct function *f, const word *args, word result)
{
    int done = (uint32_t)result == SUCCESS;
    for (unsigned i = 0; i < f->count; i++) {
        const struct param *p = &f->params[i];
        const struct type *t = &trace_types[p->type];
        uint64_t n = 0;
        if (p->role == VALUE || p->role == TEXT || p->role == IN || p->role == GUID || p->role == WORD)
            continue;
        if (!begin(l, i))
            continue;
        if (p->size > 0)
            n = counted(f, p->size - 1u, args);
        if (args[i] == 0)
            pointer(&l->out, 0);
        else if (p->role == COUNT && (done || (uint32_t)result == INSUFFICIENT_SIZE))
            target(&l->out, p, args[i], 4, 0);
        else if (!done && p->role == RECORD && (p->tells || p->versioned))
            target(&l->out, p, args[i], p->extent, !p->tells);
        else if (!done)
            pointer(&l->out, args[i]);
        else
            switch (p->role) {
            case BUFFER:
            case SIZED:
                text_at(&l->out, args[i], n);
                break;
            case FIXED:
                text_at(&l->out, args[i], p->extent);
                break;
            case LIST:
            case SLICE:
                array_at(&l->out, t, args[i], p->in_bytes ? n / t->size : n, p->extent);
                break;
            case BYTES:
                target(&l->out, p, args[i], n, 0);
                break;
            default:
                target(&l->out, p, args[i], p->extent, 0);
            }
        end(l, i);
    }
}

/* Nanoseconds as seconds. */
static void seconds(struct out *o, uint64_t ns)
{
    char text[40];
    put(o, text, (size_t)snprintf(text, sizeof text, "%llu.%06llu", (unsigned long long)(ns / 1000000000),
                                  (unsigned long long)(ns / 1000 % 1000000)));
}

static void put_result(struct out *o, const struct function *f, word result)
{
    if (f->text)
        text_at(o, result, MOST_TEXT);
    else
        enumerator(o, &trace_types[trace_return], (int32_t)result);
}

void trace_finish(struct line *l, struct out *o, const struct function *f, int pid, int tid, word result, uint64_t ns, int stub)
{
    if (o->json) {
        struct timespec now = {0};
        clock_gettime(CLOCK_REALTIME, &now);
        puts_(o, "{\"time\":");
        seconds(o, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
        puts_(o, ",\"pid\":");
        number(o, (uint64_t)pid, 0);
        puts_(o, ",\"tid\":");
        number(o, (uint64_t)tid, 0);
        puts_(o, ",\"call\":");
        name(o, f->name);
        puts_(o, ",\"args\":{");
    } else {
        number(o, (uint64_t)pid, 0);
        if (tid != pid) {
            put(o, "/", 1);
            number(o, (uint64_t)tid, 0);
        }
        put(o, " ", 1);
        puts_(o, f->name);
        put(o, "(", 1);
    }
    int first = 1;
    for (unsigned i = 0; i < f->count; i++) {
        uint32_t n = l->part[i].to - l->part[i].from;
        if (n == 0)
            continue;
        if (o->room - o->size < n + ROOM_FOR_ONE) { /* the end of the line needs some */
            l->out.cut = 1;
            break;
        }
        if (!first)
            puts_(o, o->json ? "," : ", ");
        first = 0;
        key(o, f->params[i].name);
        put(o, l->out.text + l->part[i].from, n);
    }
    if (o->json) {
        puts_(o, "},\"result\":");
        put_result(o, f, result);
        if (!f->text) {
            puts_(o, ",\"code\":");
            number(o, (uint32_t)result, 0);
        }
        puts_(o, ",\"ns\":");
        number(o, ns, 0);
        puts_(o, stub ? ",\"stub\":true" : "");
        puts_(o, l->out.cut ? ",\"cut\":true" : "");
        puts_(o, "}\n");
        return;
    }
    puts_(o, l->out.cut ? ", ...) = " : ") = ");
    put_result(o, f, result);
    puts_(o, stub ? " (stub) <" : " <");
    seconds(o, ns);
    puts_(o, ">\n");
}
