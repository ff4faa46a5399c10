package main

/*
#include <stddef.h>

#include "shared.h"

// Where the fields are.
enum {
    block_bytes = offsetof(struct nvmlfab_block, bytes),

    slot_size = sizeof(struct nvmlfab_slot),
    slot_device = offsetof(struct nvmlfab_slot, device),
    slot_serial = offsetof(struct nvmlfab_slot, serial),
    slot_generation = offsetof(struct nvmlfab_slot, generation),
    slot_record = offsetof(struct nvmlfab_slot, record),

    watch_size = sizeof(struct nvmlfab_watch),
    watch_seen = offsetof(struct nvmlfab_watch, seen),
    watch_word = offsetof(struct nvmlfab_watch, word),
    watch_changes = offsetof(struct nvmlfab_watch, changes),
    watch_file = offsetof(struct nvmlfab_watch, file),
    watch_clock = offsetof(struct nvmlfab_watch, clock),

    space_size = sizeof(struct nvmlfab_space),
    space_next = offsetof(struct nvmlfab_space, next),
    space_start = offsetof(struct nvmlfab_space, start),
    space_region = offsetof(struct nvmlfab_space, region),
    space_grow = offsetof(struct nvmlfab_space, grow),
    space_config = offsetof(struct nvmlfab_space, config),
    space_watch = offsetof(struct nvmlfab_space, watch),
    space_path = offsetof(struct nvmlfab_space, path),
};
*/
import "C"

import "unsafe"

// The structs have the front's layout. A difference makes an index other than 0, which the compiler refuses.
var _ = [...]struct{}{
	[1]struct{}{}[unsafe.Offsetof(block{}.bytes)-C.block_bytes],

	[1]struct{}{}[unsafe.Sizeof(slot{})-C.slot_size],
	[1]struct{}{}[unsafe.Offsetof(slot{}.device)-C.slot_device],
	[1]struct{}{}[unsafe.Offsetof(slot{}.serial)-C.slot_serial],
	[1]struct{}{}[unsafe.Offsetof(slot{}.generation)-C.slot_generation],
	[1]struct{}{}[unsafe.Offsetof(slot{}.record)-C.slot_record],

	[1]struct{}{}[unsafe.Sizeof(watch{})-C.watch_size],
	[1]struct{}{}[unsafe.Offsetof(watch{}.seen)-C.watch_seen],
	[1]struct{}{}[unsafe.Offsetof(watch{}.word)-C.watch_word],
	[1]struct{}{}[unsafe.Offsetof(watch{}.changes)-C.watch_changes],
	[1]struct{}{}[unsafe.Offsetof(watch{}.file)-C.watch_file],
	[1]struct{}{}[unsafe.Offsetof(watch{}.clock)-C.watch_clock],

	[1]struct{}{}[unsafe.Sizeof(space{})-C.space_size],
	[1]struct{}{}[unsafe.Offsetof(space{}.next)-C.space_next],
	[1]struct{}{}[unsafe.Offsetof(space{}.start)-C.space_start],
	[1]struct{}{}[unsafe.Offsetof(space{}.region)-C.space_region],
	[1]struct{}{}[unsafe.Offsetof(space{}.grow)-C.space_grow],
	[1]struct{}{}[unsafe.Offsetof(space{}.config)-C.space_config],
	[1]struct{}{}[unsafe.Offsetof(space{}.watch)-C.space_watch],
	[1]struct{}{}[unsafe.Offsetof(space{}.path)-C.space_path],
}
