# make            the library into dist/lib, the commands into dist/bin
# make run        NVIDIA's own nvidia-smi on GPUs that are not there
# make test       everything that can be checked here; sets up what it needs
# make generate   generated/ anew, after a change in handwritten/ or generator/
# make bench      what a call and a start cost, beside a C library and the smallest Go library
# make lib        the libraries alone, for every version of NVML; NVML=12.4 builds that one alone into dist/nvml/12.4.127
# make mockfs-shim, make test-mockfs   libmockfs.so alone, and its tests
# make musl       the libraries to preload into programs on musl, into dist/lib/musl
# make kernel, example, load, reload, unload, fingerprint, test-kernel, test-kunit, verify-compute, verify-cgroup…
#                 the kernel modules; kernel/Makefile says what each does and which variables it takes
# make install-headers   the headers for programs in C, with their documents, into DESTDIR PREFIX
# make release    what people install, in dist: tarball, packages for Debian and RPM, an image, for amd64 and arm64
# make clean      removes dist

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

generator   := go run ./generator
staticcheck := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# go-nvml calls functions that NVIDIA's header marks as deprecated; that is no news.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

.PHONY: all lib fronts older-fronts bin run test bench release generate clean setup mockfs-shim test-mockfs install-headers
all: lib bin

# ---- The machine it is for -----------------------------------------------------------------------------------------

# FOR=arm64 on amd64, and the other way round, builds lib and bin for that machine, with Debian's cross compiler, into a folder of
# its own: dist/arm64/lib and so on. What runs while building is for this machine.
native := $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(shell uname -m)))
FOR    ?= $(native)
triple := $(or $(and $(filter amd64,$(FOR)),x86_64),$(and $(filter arm64,$(FOR)),aarch64))-linux-gnu
ifeq ($(triple),-linux-gnu)
$(error FOR=$(FOR): name amd64 or arm64)
endif
ifeq ($(FOR),$(native))
out := dist
gcc := gcc
go_build := go build
other    := $(if $(filter amd64,$(native)),arm64,amd64)
dist/$(other)/%: always
	@$(MAKE) --no-print-directory FOR=$(other) $@
else
out := dist/$(FOR)
gcc := $(triple)-gcc
go_build := GOARCH=$(FOR) CC=$(gcc) go build
endif

# ---- The library ---------------------------------------------------------------------------------------------------

# The newest front lies in dist/lib, and dist/nvml has a folder for each version, from which run and stage take the one that
# fits the driver. NVML=12.4 builds that one alone.
versions := $(shell sed -nE 's/^- \{nvml: "([^"]+)".*/\1/p' nvml-headers/versions.yaml)
newest   := $(lastword $(versions))

ifdef NVML
wanted := $(or $(filter $(NVML),$(versions)),$(filter $(NVML:.=).%,$(versions)))
ifneq ($(words $(wanted)),1)
$(error NVML=$(NVML): name one of $(versions))
endif
else
wanted := $(versions)
endif
older  := $(filter-out $(newest),$(wanted))
fronts := $(older:%=$(out)/nvml/%/libnvidia-ml.so.1)

go_files   := $(shell find generated handwritten engine library profiles -type f ! -name '*_test.go' 2>/dev/null) go.mod go.sum
front_deps := $(shell find generated/front library/front library/host library/core/shared.h nvml-headers -type f ! -name '*_test.go' 2>/dev/null) Makefile
older_deps := $(shell find generator -type f ! -name '*_test.go' 2>/dev/null)

lib: $(out)/lib/libnvidia-ml.so $(out)/lib/libnvidia-ml.so.1 $(out)/lib/libnvmlfab-core.so.1 $(out)/nvml/$(newest) fronts
ifndef NVML
lib: $(out)/lib/libnvgpufilter.so $(out)/lib/libmockfs.so $(out)/lib/libibmocksys.so $(out)/lib/libibmockverbs.so $(out)/lib/libibmockumad.so
endif

# Everything is made under another name and renamed, so that whoever loads the library never meets half of one, and two
# makes at a time do no harm.

$(out)/lib/libnvidia-ml.so: | $(out)/lib
	@ln -sfn libnvidia-ml.so.1 $@

$(out)/nvml/$(newest): | $(out)/nvml
	@[ -L $@ ] || rm -rf $@; ln -sfn ../lib $@

# The libraries run with glibc 2.28 and later (library/host/glibc.h).
old_glibc := -include library/host/glibc.h
old_libs  := -Wl,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--as-needed

# Nothing but glibc is linked. nodelete: what the library leaves in a process, fork handlers above all, outlives a dlclose.
front_flags := $(old_glibc) -std=c11 -Wall -Wextra -Werror -O2 -fPIC -fvisibility=hidden -shared -s \
  -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,nodelete -Wl,-z,now -Wl,-z,defs -Wl,--as-needed

# $(call front,FOLDER,VERSION) compiles a front from the generated sources in a folder and the header of that version.
front = header=$$($(generator) --nvml $(2) --header); \
	$(gcc) $(front_flags) -I $(1) -I library/front -I library/host -I nvml-headers -I "$$(dirname "$$header")" $(1)/*.c library/front/*.c library/host/*.c $(old_libs) -o $@.$$$$; \
	mv $@.$$$$ $@

$(out)/lib/libnvidia-ml.so.1: $(front_deps) | $(out)/lib
	@echo "$(gcc) generated/front/*.c library/front/*.c library/host/*.c -o $@"; $(call front,generated/front,$(newest))

# The older fronts ask one generator, which is built once, since go run takes as long as gcc does.
dist/generator: $(older_deps) $(shell find nvml-headers -name '*.go') go.mod go.sum
	@mkdir -p $(@D); go build -o $@.$$$$ ./generator; mv $@.$$$$ $@

$(fronts): generator := dist/generator
$(fronts): $(out)/nvml/%/libnvidia-ml.so.1: $(front_deps) $(older_deps) | dist/generator
	@echo "$(gcc) the front of NVML $* -o $@"; \
	mkdir -p $(@D); ln -sfn libnvidia-ml.so.1 $(@D)/libnvidia-ml.so; ln -sfn ../../lib/libnvmlfab-core.so.1 $(@D)/libnvmlfab-core.so.1; \
	source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; $(generator) --nvml $* --front "$$source"; $(call front,"$$source",$*)

# A make of its own, so that all CPUs take part without a -j: the fronts are independent of one another.
fronts:
	@$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$$(nproc)) older-fronts

older-fronts: $(fronts)
	@:

# What is built with another runtime is built again when NVMLFAB_UNPATCHED is set or not set any more.
dist/unpatched: always
	@mkdir -p $(@D); value='$(filter 1,$(NVMLFAB_UNPATCHED))'; [ -f $@ ] && [ "$$(cat $@)" = "$$value" ] || echo "$$value" > $@
.PHONY: always

# The core is one for all fronts. Its Go runtime sends no signals, gives no stack back (see makeRoom in library/core) and
# keeps no descriptors; library/goruntime says what else is different about it. It makes no threads as long as the front has some
# for it (library/core/threads.c). It is linked for an address that is free in nearly every process, so that there its data needs
# no relocation (library/core/relocate.c). The collector that is the default since Go 1.26 writes to twice as many pages at the start.
overlay    := $(filter-out %_test.go,$(wildcard library/goruntime/*.go))
core_debug := asyncpreemptoff=1,gcshrinkstackoff=1,containermaxprocs=0,updatemaxprocs=0

$(out)/lib/libnvmlfab-core.so.1: package := ./library/core
$(out)/lib/libnvmlfab-core.so.1: golink := -extldflags=$(old_libs),--wrap=pthread_create,--wrap=free,-init=nvmlfab_relocate,$\
-Ttext-segment=0x7ec000000000,-z,norelro,-z,noseparate-code
$(out)/lib/libnvmlfab-core.so.1: wraps := -DNVMLFAB_WRAPS_PTHREAD_CREATE
$(out)/lib/libnvmlfab-core.so.1: pack := go run ./library/relr
$(out)/lib/libnvmlfab-core.so.1: $(filter-out %_test.go,$(wildcard library/relr/*.go))
$(out)/lib/libnvmlfab-core.so.1: $(go_files)

# The NVENC filter as a library is built the same way.
$(out)/lib/libnvgpufilter.so: package := ./shims/gpufilter/lib
$(out)/lib/libnvgpufilter.so: golink := -extldflags=$(old_libs),-soname,libnvgpufilter.so
$(out)/lib/libnvgpufilter.so: $(filter-out %_test.go,$(wildcard shims/gpufilter/*.* shims/gpufilter/lib/*.* library/host/*)) go.mod go.sum

# Without -buildid= they would hold a hash of the folder that they were built in, and without -B none one of nothing.
$(out)/lib/libnvmlfab-core.so.1 $(out)/lib/libnvgpufilter.so: $(overlay) dist/unpatched Makefile | $(out)/lib
	@echo "go build $(package) -o $@"; \
	overlay=$$(mktemp -d); trap 'rm -rf "$$overlay"' EXIT; \
	go run ./library/goruntime library "$$overlay"; \
	$(if $(filter 1,$(NVMLFAB_UNPATCHED)),,GOEXPERIMENT=nogreenteagc )CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -include '$(CURDIR)/library/host/glibc.h' $(wraps)" $(go_build) -buildmode=c-shared -trimpath -buildvcs=false -overlay "$$overlay/overlay.json" \
	  -ldflags '-s -w -buildid= -B none -X runtime.godebugDefault=$(core_debug) $(golink)' -o $@.$$$$.so $(package); \
	$(if $(pack),$(pack) $@.$$$$.so; )rm -f $@.$$$$.h; mv $@.$$$$.so $@

ifndef NVML
lib: $(out)/lib/valgrind.supp
endif
$(out)/lib/valgrind.supp: library/valgrind.supp | $(out)/lib
	@cp $< $@.$$$$; mv $@.$$$$ $@

# ---- The libraries to preload --------------------------------------------------------------------------------------

mockfs-shim: $(out)/lib/libmockfs.so

# They define libc's own functions, so libc's fortified variants of these must not come in.
shim_flags := $(old_glibc) -std=gnu11 -Wall -Wextra -Werror -O2 -U_FORTIFY_SOURCE -fPIC -fvisibility=hidden -shared \
  -Wl,-z,nodelete -Wl,-z,now -Wl,-z,defs -Wl,--as-needed

$(out)/lib/libmockfs.so: $(wildcard shims/preload/*.* shims/preload/pci/*) Makefile | $(out)/lib
	@echo "$(gcc) shims/preload/*.c shims/preload/pci/*.c -o $@"; \
	$(gcc) $(shim_flags) -Wl,-soname,libmockfs.so -Wl,--version-script,shims/preload/pci/exports.map -I shims/preload shims/preload/*.c shims/preload/pci/*.c $(old_libs) -o $@.$$$$; \
	mv $@.$$$$ $@

# The InfiniBand libraries. That of sysfs has the path engine, the others stand alone.
infiniband := shims/preload/infiniband
ib_flags   := $(shim_flags) -Wl,--version-script,shims/preload/pci/exports.map -I shims/preload -I $(infiniband)

$(out)/lib/libibmocksys.so: $(wildcard shims/preload/*.* $(infiniband)/*.h $(infiniband)/sys/*) shims/preload/pci/exports.map Makefile | $(out)/lib
	@echo "$(gcc) shims/preload/*.c $(infiniband)/sys/*.c -o $@"; \
	$(gcc) $(ib_flags) -Wl,-soname,libibmocksys.so shims/preload/*.c $(infiniband)/sys/*.c $(old_libs) -o $@.$$$$; mv $@.$$$$ $@

$(out)/lib/libibmockverbs.so: $(wildcard shims/preload/kernel.h $(infiniband)/*.h $(infiniband)/verbs/*) shims/preload/pci/exports.map Makefile | $(out)/lib
	@echo "$(gcc) $(infiniband)/verbs/*.c -o $@"; \
	$(gcc) $(ib_flags) -Wl,-soname,libibmockverbs.so $(infiniband)/verbs/*.c $(old_libs) -o $@.$$$$; mv $@.$$$$ $@

$(out)/lib/libibmockumad.so: shims/preload/infiniband/umad.c shims/preload/infiniband/umad.map shims/preload/kernel.h Makefile | $(out)/lib
	@echo "$(gcc) $< -o $@"; $(gcc) $(shim_flags) -Wl,-soname,libibmockumad.so -Wl,--version-script,shims/preload/infiniband/umad.map $< $(old_libs) -o $@.$$$$; \
	mv $@.$$$$ $@

# The same libraries for programs on musl, with the headers of Debian's, which are fetched. They name no libc that they need, since a
# program on musl may start one on glibc, which inherits LD_PRELOAD and would end without that libc. So the linker cannot say what
# is missing; a program that loads them can. musl has no __chk_fail, by which glibc's checked functions end a program.
musl_libraries := $(addprefix $(out)/lib/musl/,libmockfs.so libibmocksys.so libibmockverbs.so libibmockumad.so)
musl_flags := -std=gnu11 -Wall -Wextra -Werror -O2 -U_FORTIFY_SOURCE -fPIC -fvisibility=hidden -shared -nostdinc -nostdlib -s \
  -D__chk_fail=abort -Wl,-z,nodelete -Wl,-z,now

$(out)/lib/musl/libmockfs.so:       musl_sources = shims/preload/*.c shims/preload/pci/*.c
$(out)/lib/musl/libibmocksys.so:    musl_sources = shims/preload/*.c $(infiniband)/sys/*.c
$(out)/lib/musl/libibmockverbs.so:  musl_sources = $(infiniband)/verbs/*.c
$(out)/lib/musl/libibmockumad.so:   musl_sources = $(infiniband)/umad.c
$(out)/lib/musl/libibmockumad.so:   musl_map = $(infiniband)/umad.map
musl_map = shims/preload/pci/exports.map

.PHONY: musl
musl: $(musl_libraries)
$(musl_libraries): $(wildcard shims/preload/*.* shims/preload/pci/* $(infiniband)/*.* $(infiniband)/sys/* $(infiniband)/verbs/*) tests/debian/packages.go Makefile
	@mkdir -p $(@D); musl=$$(go run ./tests/fetch -q musl$(if $(filter arm64,$(FOR)),-arm64)); \
	echo "$(gcc) $(musl_sources) -o $@"; \
	$(gcc) $(musl_flags) -isystem "$$musl/usr/include/$(triple:-gnu=-musl)" -isystem "$$($(gcc) -print-file-name=include)" \
	  -idirafter /usr/$(triple)/include -idirafter /usr/include/$(triple) -idirafter /usr/include \
	  -I shims/preload -I $(infiniband) -Wl,-soname,$(@F) -Wl,--version-script,$(musl_map) $(musl_sources) -o $@.$$$$; \
	mv $@.$$$$ $@

# The library of nvmlfab trace. Its tables are written when it is built. It needs the library that it stands in front of, by a name that leads there. nvmlfab writes a
# folder over @nvmlfab-trace-session@ and what follows it, in a copy for each trace.
session := @nvmlfab-trace-session@$(shell printf '%0176d' 0)

$(out)/lib/libnvmlfab-trace.so: $(older_deps) $(shell find nvml-headers -type f) $(wildcard library/trace/* library/host/*) Makefile | $(out)/lib dist/generator
	@echo "$(gcc) its tables library/trace/*.c library/host/*.c -o $@"; \
	after=$$(mktemp -d); trap 'rm -rf "$$after"' EXIT; dist/generator --tables "$$after"; \
	$(gcc) -x c -shared -nostdlib -Wl,-soname,libnvmlfab-traced.so.1 -o "$$after/after.so" /dev/null; \
	$(gcc) $(front_flags) -DTRACE_SESSION='"$(session)"' -Wl,-rpath,'$(session)' \
	  -I library/trace -I library/host "$$after"/*.c library/trace/*.c library/host/*.c $(old_libs) -Wl,--no-as-needed "$$after/after.so" -o $@.$$$$; \
	mv $@.$$$$ $@

$(out)/lib $(out)/nvml $(out)/bin:
	@mkdir -p $@

# ---- The commands --------------------------------------------------------------------------------------------------

# go build itself knows whether there is anything to do.
bin: $(out)/bin/nvidia-imex | $(out)/bin
	@overlay=$$(mktemp -d); trap 'rm -rf "$$overlay"' EXIT; \
	go run ./library/goruntime launcher "$$overlay"; \
	export CGO_ENABLED=0; \
	$(go_build) -trimpath -overlay "$$overlay/overlay.json" -o $(out)/bin/ ./cmd/nvmlfab; \
	$(go_build) -trimpath -o $(out)/bin/ ./cmd/vgpuctl ./cmd/mock-ib; \
	$(go_build) -trimpath -buildvcs=false -ldflags '-s -w' -o $(out)/bin/ ./cmd/nvmlfab-hook

# nvidia-imex hands on what Go's runtime would change in a process.
$(out)/bin/nvidia-imex: $(filter-out %_test.go,$(wildcard cmd/nvidia-imex/*.go)) $(overlay) dist/unpatched go.mod Makefile | $(out)/bin
	@echo "go build ./cmd/nvidia-imex -o $@"; \
	overlay=$$(mktemp -d); trap 'rm -rf "$$overlay"' EXIT; \
	go run ./library/goruntime exec "$$overlay"; \
	CGO_ENABLED=0 $(go_build) -trimpath -buildvcs=false -overlay "$$overlay/overlay.json" -ldflags '-s -w' \
	  -o $@.$$$$ ./cmd/nvidia-imex; \
	mv $@.$$$$ $@

generate:
	go generate ./profiles
	$(generator) --update

clean:
	rm -rf dist

# ---- What the commands need beside them ----------------------------------------------------------------------------

# Libraries and helpers beside the front and the core.
extras := $(out)/lib/nvmlfab-enter $(out)/lib/nvmlfab-call $(out)/lib/libcuda-none.so.1 $(out)/lib/libnvgpufilter.so $(out)/lib/libmockfs.so \
  $(out)/lib/libibmocksys.so $(out)/lib/libibmockverbs.so $(out)/lib/libibmockumad.so $(out)/lib/libnvmlfab-trace.so

bin: $(extras)

# Static, so that nothing that is preloaded or on a library path comes into it.
$(out)/lib/nvmlfab-enter: shims/enter/enter.c | $(out)/lib
	@echo "$(gcc) $< -o $@"; $(gcc) -std=gnu11 -Wall -Wextra -Werror -O2 -static -s -o $@.$$$$ $<; mv $@.$$$$ $@

# Dynamic, since it loads a libnvidia-ml.
$(out)/lib/nvmlfab-call: shims/call/call.c library/host/glibc.h | $(out)/lib
	@echo "$(gcc) $< -o $@"; $(gcc) $(old_glibc) -std=gnu11 -Wall -Wextra -Werror -O2 -s -Wl,--wrap=__libc_start_main -o $@.$$$$ $< $(old_libs); mv $@.$$$$ $@

$(out)/lib/libcuda-none.so.1: shims/cuda/cuda.c | $(out)/lib
	@echo "$(gcc) $< -o $@"; $(gcc) -std=c11 -Wall -Wextra -Werror -O2 -fPIC -fvisibility=hidden -shared -s \
	  -Wl,-soname,libcuda.so.1 -o $@.$$$$ $<; mv $@.$$$$ $@

# ---- The kernel modules --------------------------------------------------------------------------------------------

# Variables of the command line reach the kernel's Makefile by themselves: make reload DRY_RUN=0 ALLOW_ENFORCE=1.
here     := kernel programs example load reload unload fingerprint
machines := test-kernel test-kunit verify-compute verify-cgroup verify-cgroup-policy verify-cgroup-compute verify-cgroup-memory
.PHONY: $(here) $(machines)

$(machines): setup
$(here) $(machines):
	@$(MAKE) --no-print-directory -C kernel $@

# ---- The headers for programs in C ---------------------------------------------------------------------------------

PREFIX  ?= /usr/local
headers := kernel/uapi/fakegpu.h kernel/uapi/vgpuctl.h shims/gpufilter/nvgpufilter.h
about   := docs/fakegpu.md docs/vgpuctl.md docs/vgpu-device-plugin.md docs/nvenc-filter.md

# $(call install-headers,INCLUDE,DOC) puts them into two folders. The kernel's licence is that of the first two headers.
install-headers = install -d $(1)/nvmlfab $(2); install -m 644 $(headers) kernel/COPYING $(1)/nvmlfab/; install -m 644 $(about) $(2)/

install-headers:
	@$(call install-headers,"$(DESTDIR)$(PREFIX)/include","$(DESTDIR)$(PREFIX)/share/doc/nvmlfab"); \
	for h in $(notdir $(headers)); do echo "$(DESTDIR)$(PREFIX)/include/nvmlfab/$$h"; done

# ---- make run ------------------------------------------------------------------------------------------------------

run: all
	@$(generator) --stats --line
	@export LD_LIBRARY_PATH='$(CURDIR)/dist/lib'; \
	if dir=$$(go run ./tests/fetch nvidia-smi-550); then \
	  echo "Running NVIDIA's nvidia-smi 550.163.01, unmodified, as Debian ships it:"; \
	  exec "$$dir/usr/lib/nvidia/current/nvidia-smi"; \
	elif smi=$$(command -v nvidia-smi); then \
	  echo "Running $$smi, the nvidia-smi of this machine, since none could be fetched:"; \
	  exec "$$smi"; \
	else \
	  echo "Running a program on NVIDIA's go-nvml, since there is no nvidia-smi here and none could be fetched:"; \
	  exec go run ./tests/hello; \
	fi

# ---- make test -----------------------------------------------------------------------------------------------------

# Debian packages that the tests use: commands that bear the package's name, and the rest. On a derivative, the archive's
# keyring and debootstrap, which knows a mirror, let tests/fetch bring programs from Debian.
commands  := gcc make git python3 curl
libraries := libc6-dev ca-certificates gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user pciutils hwloc-nox udev \
  qemu-system-x86 lz4 xz-utils libelf1 sparse strace clang-14 libclang-rt-14-dev $(if $(shell . /etc/os-release; [ "$$ID" = debian ] || echo other),debian-archive-keyring debootstrap)

setup:
	@missing=; \
	if command -v dpkg-query >/dev/null; then \
	  for p in $(commands) $(libraries); do \
	    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$p 2>/dev/null)" = installed ] || missing+=" $$p"; \
	  done; \
	else \
	  for p in $(commands); do command -v $$p >/dev/null || missing+=" $$p"; done; \
	fi; \
	if [ -z "$$missing" ]; then \
	  :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "== installing$$missing"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  install() { apt-get install -y -q --no-install-recommends $$missing </dev/null; }; \
	  install || { apt-get update -q && install; }; \
	else \
	  echo "missing:$$missing; install them (on Debian as root: apt-get install$$missing) and run make test again" >&2; \
	  exit 1; \
	fi

# $(call phase,NAME,COMMAND) runs one phase between a line that names it and a line that says how long it took.
phase = @echo "== $(1)"; SECONDS=0; $(2); echo "== $(1): $${SECONDS} s"

# $(call gotest,PACKAGES) runs tests, keeps the whole output in the log and shows what is of interest: what failed or was
# skipped, and go's line for each package.
log    := dist/test.log
gotest  = go test -timeout 3h -v $(1) 2>&1 | tee -a $(log) | grep -vE '^(=== |PASS$$| *--- PASS|.*\[no test files\]$$)'

test: setup
	@mkdir -p dist; : > $(log)
	$(call phase,vet,go vet ./... && go vet -tags guest ./kernel/vm)
	$(call phase,gofmt,unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "run gofmt -w on: "$$unformatted; exit 1; })
	$(call phase,staticcheck,if $(staticcheck) -version >/dev/null; then $(staticcheck) ./... && $(staticcheck) -tags guest ./kernel/vm; \
	  else printf 'skipped: staticcheck could not be fetched\n--- SKIP: staticcheck\n' | tee -a $(log); fi)
	$(call phase,generated code is fresh,$(generator) --check)
	$(call phase,unit tests,$(call gotest,$$(go list ./... | grep -v '/tests$$')))
	$(call phase,engine under the race detector,$(call gotest,-race ./handwritten/... ./engine/... ./library/...))
	$(call phase,build,$(MAKE) --no-print-directory all)
	$(call phase,end-to-end tests,$(call gotest,-count=1 -parallel 8 ./tests))
	$(call phase,kernel modules in a virtual machine,{ \
	  $(MAKE) --no-print-directory -C kernel test-kernel || failed=1; \
	  $(MAKE) --no-print-directory -C kernel test-kernel KERNEL=6.12 SHORT=1 || failed=1; [ -z "$${failed:-}" ]; } 2>&1 | tee -a $(log))
	@echo "== skipped"; \
	if grep -E 'skipped: |^ *--- SKIP' $(log); then [ "$${CI:-}" != true ] || { echo "CI=true: nothing may be skipped" >&2; exit 1; }; \
	else echo "nothing"; fi

test-mockfs: setup mockfs-shim
	@go test -count=1 -v -run 'TestMockfs' ./tests | grep -vE '^(=== |PASS$$)'

# ---- make bench ----------------------------------------------------------------------------------------------------

bench: all
	@go run ./tests/bench

# ---- make release --------------------------------------------------------------------------------------------------

# What people install, the same byte for byte wherever it is built from one commit with one toolchain: a tarball, a package for
# Debian, one for RPM, and an image for containers; for this machine and, if there is a compiler for it, the other one.
# FOR=amd64 builds those of one machine alone, and PACKAGES=no the tarball alone.
VERSION  ?= $(patsubst v%,%,$(shell git describe --tags --always 2>/dev/null || echo unversioned))
PACKAGES ?= yes

ifeq ($(origin FOR),file)
release:
	@$(MAKE) --no-print-directory FOR=$(native) release; compiler=$(if $(filter amd64,$(native)),aarch64,x86_64)-linux-gnu-gcc; \
	if command -v $$compiler >/dev/null; then $(MAKE) --no-print-directory FOR=$(other) release; \
	else echo "there is no $$compiler, so there is no release for $(other); Debian has it in the package gcc-$$(echo $${compiler%%-*} | tr _ -)-linux-gnu"; fi
else
stage = dist/release/$(FOR)
release: lib bin musl
	@[ $(FOR) = $(native) ] || $(MAKE) --no-print-directory FOR=$(native) bin; \
	rm -rf $(stage); mkdir -p $(stage)/bin $(stage)/overlay; trap 'rm -rf $(stage); rmdir --ignore-fail-on-non-empty dist/release' EXIT; \
	cp -rP $(out)/lib $(out)/nvml $(stage)/; cp $(out)/bin/nvidia-imex $(stage)/bin/; \
	go run ./library/goruntime launcher "$(CURDIR)/$(stage)/overlay"; \
	export CGO_ENABLED=0; flags='-trimpath -buildvcs=false'; \
	$(go_build) $$flags -overlay $(stage)/overlay/overlay.json -ldflags '-s -w -X main.version=$(VERSION)' -o $(stage)/bin/ ./cmd/nvmlfab; \
	$(go_build) $$flags -ldflags '-s -w -X main.version=$(VERSION)' -o $(stage)/bin/ ./cmd/vgpuctl ./cmd/mock-ib ./cmd/nvmlfab-hook; \
	$(generator) --stats --json > $(stage)/coverage.json; \
	go run ./release --version '$(VERSION)' --arch $(FOR) --built $(stage) --native dist/bin --coverage $(stage)/coverage.json \
	  --output dist $(if $(filter no,$(PACKAGES)),--no-packages)
endif

include $(wildcard kubernetes/Makefile) # the sources of the kernel modules come without it
