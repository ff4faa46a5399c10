// SPDX-License-Identifier: GPL-2.0-only
#include "gpus.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Takes min to max hexadecimal digits, without a prefix. */
static bool hex(const char **text, u32 min, u32 max, u32 *value)
{
	u32 n = 0;

	for (*value = 0; n < max && hex_digit(**text) >= 0; n++)
		*value = *value << 4 | hex_digit(*(*text)++);
	return n >= min;
}

static bool decimal(const char **text, u64 max, u64 *value)
{
	const char *start = *text;

	for (*value = 0; **text >= '0' && **text <= '9'; (*text)++) {
		u32 digit = **text - '0';

		if (*value > (max - digit) / 10)
			return false;
		*value = *value * 10 + digit;
	}
	return *text != start && (*start != '0' || *text == start + 1);
}

static bool take(const char **text, char c)
{
	if (**text != c)
		return false;
	(*text)++;
	return true;
}

static bool address(const char **text, struct gpu *gpu)
{
	u32 bus, slot, function;

	if (!hex(text, 4, 8, &gpu->domain) || !take(text, ':') || !hex(text, 2, 2, &bus) || !take(text, ':') ||
	    !hex(text, 2, 2, &slot) || !take(text, '.') || !hex(text, 1, 1, &function) || slot > 31 || function > 7)
		return false;
	gpu->bus = bus;
	gpu->slot = slot;
	gpu->function = function;
	return true;
}

static bool uuid(const char **text, struct gpu *gpu)
{
	const char *start = *text;
	u32 i, byte, any = 0;

	if (!take(text, 'G') || !take(text, 'P') || !take(text, 'U'))
		return false;
	for (i = 0; i < 16; i++) {
		bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

		if ((dash && !take(text, '-')) || !hex(text, 2, 2, &byte))
			return false;
		gpu->uuid[i] = byte;
		any |= byte;
	}
	memcpy(gpu->uuid_text, start, *text - start);
	gpu->uuid_text[*text - start] = 0;
	return any;	/* programs take an all-zero UUID for no GPU */
}

/* One to size - 1 bytes of text up to the next slash or the end. */
static bool words(const char **text, char *out, u32 size)
{
	u32 n = 0, byte;

	for (; **text && **text != '/'; n++) {
		char c = *(*text)++;

		if (c == '_')
			c = ' ';
		else if (c == '%') {
			if (!hex(text, 2, 2, &byte))
				return false;
			c = byte;
		}
		if ((u8)c < ' ' || c == 127 || n + 1 >= size)
			return false;
		out[n] = c;
	}
	out[n] = 0;
	return n > 0;
}

const char *gpu_parse(const char *text, struct gpu *gpu)
{
	u32 vendor, device;
	u64 minor, bits;

	memset(gpu, 0, sizeof(*gpu));
	if (!address(&text, gpu) || !take(&text, '/'))
		return "the bus id, such as 0000:1a:00.0";
	if (!decimal(&text, GPU_MINOR_MAX, &minor) || !take(&text, '/'))
		return "the minor number, 0 to 247";
	if (!hex(&text, 4, 4, &vendor) || !take(&text, ':') || !hex(&text, 4, 4, &device) || !take(&text, '/'))
		return "vendor and device, such as 10de:2330";
	if (!decimal(&text, U64_MAX, &gpu->memory) || !take(&text, '/'))
		return "the memory in bytes";
	if (!uuid(&text, gpu) || !take(&text, '/'))
		return "the UUID, GPU- and a UUID other than zero";
	if (!words(&text, gpu->name, sizeof(gpu->name)) || !take(&text, '/'))
		return "the name, up to 95 bytes, with _ for a blank";
	if (!words(&text, gpu->vbios, sizeof(gpu->vbios)) || !take(&text, '/'))
		return "the version of the VBIOS, up to 31 bytes";
	if (!decimal(&text, 64, &bits) || bits < 32 || !take(&text, '/'))
		return "the bits of a DMA address, 32 to 64";
	if (!words(&text, gpu->firmware, sizeof(gpu->firmware)) || *text)
		return "the version of the firmware, up to 31 bytes, and nothing after it";
	gpu->minor = minor;
	gpu->vendor = vendor;
	gpu->device = device;
	gpu->dma_bits = bits;
	return NULL;
}

const char *gpu_clash(const struct gpu *gpus, u32 count)
{
	const struct gpu *last = &gpus[count - 1];
	u32 i;

	for (i = 0; i + 1 < count; i++) {
		if (gpu_id(&gpus[i]) == gpu_id(last))
			return "the bus id";
		if (gpus[i].minor == last->minor)
			return "the minor number";
		if (!memcmp(gpus[i].uuid, last->uuid, sizeof(last->uuid)))
			return "the UUID";
	}
	return NULL;
}

bool driver_version_valid(const char *text)
{
	u32 numbers = 0, n;

	if (strlen(text) >= 32)
		return false;
	for (;; text++) {
		for (n = 0; *text >= '0' && *text <= '9'; n++)
			text++;
		if (!n || ++numbers > 4)
			return false;
		if (!*text)
			return numbers >= 2;
		if (*text != '.')
			return false;
	}
}
